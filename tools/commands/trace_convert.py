"""The command trace-convert: converts a linked trace to an execution graph."""

import argparse
import dataclasses
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from ...schema.arguments import GOAL, WHOLE_JOB
from ...schema.errors import Audience, said_to
from ..command import print_json, progress_bar, run_command, step
from ..command_parser import CommandParser, Inputs, Output, without_leading_word
from ..option_kinds import ends_as
from ..options import chosen_for
from ..terminal import format_counts, summary_line

if TYPE_CHECKING:
    from ...schema.graph import ConvertReport

log = logging.getLogger("execgraph")
NOTEWORTHY_PCT = 0.5
OPS_SHOWN = 3


@said_to(Audience.TERMINAL)
def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs trace-convert and ends the process: 0 done, 1 unusable data, 2 wrong usage."""
    parser = CommandParser(
        "trace-convert",
        "Turns a linked trace into an execution graph.",
        "trace-convert linked.json.gz -o graph.0.et",
        Inputs(
            "LINKED.json", "a linked trace (gzip accepted, - is stdin)", ("--input", "--input_filename"), max_count=1
        ),
        Output("GRAPH.et", "execution graph (- is stdout)", ("--output_filename",), ends_as(".et").read),
    )
    parser.add_argument("--simulate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(without_leading_word(arguments))
    if options.simulate:
        parser.error("--simulate is a command of its own: trace-replay GRAPH.et")
    if options.target == GOAL:
        parser.error(str(WHOLE_JOB))
    run_command(_convert, options, "trace-convert")


def _convert(options: argparse.Namespace) -> None:
    from ...converter.convert import convert
    from ...converter.options import Options
    from ...linker.link import read_linked
    from ...schema.comm_groups import read_groups
    from ...schema.graph import ConvertReport, TargetChanges
    from ..recognise import InputKind
    from ..wrong_kind import reading

    by_option = {InputKind.LINKED: "as its input", InputKind.GROUPS: "as --comm-groups"}
    with progress_bar("read linked trace") as on_progress, reading(options.inputs[0], InputKind.LINKED, by_option):
        linked = read_linked(options.inputs[0], on_progress)
    with reading(options.comm_groups, InputKind.GROUPS, by_option):
        groups = read_groups(options.comm_groups) if options.comm_groups else None
    with step("convert"):
        graph = convert(linked, Options(**chosen_for("Options", options)), groups)
    report, changes = graph.report or ConvertReport(), graph.changes or TargetChanges()
    with step("write graph"):
        graph.write(options.output)
    if options.json:
        print_json({**dataclasses.asdict(report), "dropped": report.dropped.in_words(), "target": changes.counts})
    log.info(summary(report))
    for change, count in changes.counts.items():
        log.info(summary_line("target", f"{change}: {count:g}"))
    for note in (*linked.report.notes, *changes.notes):
        log.info(summary_line("note", note))


def _work(report: "ConvertReport") -> str:
    """Returns how many kernels have known work, and the ops of most of the others."""
    lacking = report.kernels_without_work
    count = report.kernels_with_work + sum(lacking.values())
    shares = (
        f"known of {report.kernels_with_work} of {count} kernels and memory operations, {report.time_with_work_pct:.1f} % of "
        "their time"
    )
    op_counts = [f"{number} of {name}" for name, number in list(lacking.items())[:OPS_SHOWN]]
    more = ["…"] * (len(lacking) > OPS_SHOWN)
    return f"{shares}; unknown: {', '.join(op_counts + more)}" if op_counts else shares


def _remedies() -> dict[str, str]:
    """Returns what to do for a trace without such delays."""
    from ...schema.graph import Delay

    return {
        Delay.LOST_RECORDS.label: "; record fewer steps, or raise Kineto's ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB, "
        "for a whole trace",
        Delay.START_OF_RECORDING.label: "; synchronise before recording, or give the profiler warm-up steps",
    }


def summary(report: "ConvertReport") -> str:
    """Returns what the graph holds and what stayed unexplained, a line each."""
    edges = ", ".join(f"{count} {kind}" for kind, count in report.edges.items())
    folded = f"{report.folded_slices} host slices into their neighbours, {report.zero_length_ops} ops without length"
    gaps = f"{report.gaps_us:.1f} µs of launch latency and gaps kept, {report.overlap_us:.1f} µs of overlap trimmed"
    lines = [
        summary_line("nodes", f"{report.nodes}: {report.host_slices} on the host, {report.activities} activities"),
        summary_line("edges", edges),
        summary_line("folded", folded),
        summary_line("device", gaps),
    ]
    if report.host_time_after_us:
        lines.append(summary_line("host time", f"{report.host_time_after_us:.1f} µs after the last activity kept"))
    for cause, count in report.delays.items():
        share = 100 * report.delays_us[cause] / max(report.span_us, 1e-3)
        beside = f", {share:.1f} % of the run" if share > NOTEWORTHY_PCT else ""
        in_all = f"{count} {cause}, {report.delays_us[cause]:.1f} µs in all"
        lines.append(summary_line("delays", in_all + beside + _remedies().get(cause, "")))
    lines += format_counts("dropped", report.dropped.in_words())
    if report.kernels_with_work or report.kernels_without_work:
        lines.append(summary_line("work", _work(report)))
    unknown = {
        "communications of unknown type kept as computation": report.unknown_communications,
        "communications of unknown dtype, taken as one byte an element": report.unknown_dtypes,
    }
    lines += format_counts("unknown", {what: count for what, count in unknown.items() if count})
    return "\n".join(lines)
