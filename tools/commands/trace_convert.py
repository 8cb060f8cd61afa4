"""The command trace-convert: converts a linked trace to an execution graph."""

import argparse
import dataclasses
from typing import TYPE_CHECKING

from ...schema.arguments import GOAL, WHOLE_JOB
from ...schema.errors import WrongUsage
from ...schema.reasons import Reason
from ..command import log, print_json, progress_bar, step
from ..command_parser import Inputs, Output, command
from ..option_kinds import ends_as
from ..options import chosen_for
from ..terminal import format_counts, summary_line

if TYPE_CHECKING:
    from ...schema.graph import ConvertReport

NOTEWORTHY_PCT = 0.5
OPS_SHOWN = 3


@command(
    "trace-convert",
    "Turns a linked trace into an execution graph.",
    "linked.json.gz -o graph.0.et",
    Inputs("LINKED.json", "a linked trace (gzip accepted, - is stdin)", ("--input", "--input_filename"), max_count=1),
    Output("GRAPH.et", "execution graph (- is stdout)", ("--output_filename",), ends_as(".et")),
    is_chakra=True,
)
def main(options: argparse.Namespace) -> None:
    """Converts a linked trace."""
    from ...converter.convert import convert
    from ...converter.options import Options
    from ...linker.link import read_linked
    from ...schema.comm_groups import read_groups
    from ...schema.graph import ConvertReport, TargetChanges
    from ..recognise import InputKind, reading

    if options.target == GOAL:
        raise WrongUsage(str(WHOLE_JOB))
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


def summary(report: "ConvertReport") -> str:
    """Returns what the graph holds and what stayed unexplained, a line each."""
    from ...schema.graph import Delay

    remedies = {
        Delay.LOST_RECORDS.label: "; record fewer steps, or raise Kineto's ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB, for a "
        "whole trace",
        Delay.START_OF_RECORDING.label: "; synchronise before recording, or give the profiler warm-up steps",
    }
    folded = f"{report.folded_slices} host slices into their neighbours, {report.zero_length_ops} ops without length"
    gaps = f"{report.gaps_us:.1f} µs of launch latency and gaps kept, {report.overlap_us:.1f} µs of overlap trimmed"
    lines = [
        summary_line("nodes", f"{report.nodes}: {report.host_slices} on the host, {report.activities} activities"),
        summary_line("edges", ", ".join(f"{count} {kind}" for kind, count in report.edges.items())),
        summary_line("folded", folded),
        summary_line("device", gaps),
    ]
    if report.host_time_after_us:
        lines.append(summary_line("host time", f"{report.host_time_after_us:.1f} µs after the last activity kept"))
    for cause, count in report.delays.items():
        share = 100 * report.delays_us[cause] / max(report.span_us, 1e-3)
        beside = f", {share:.1f} % of the run" if share > NOTEWORTHY_PCT else ""
        in_all = f"{count} {cause}, {report.delays_us[cause]:.1f} µs in all"
        lines.append(summary_line("delays", in_all + beside + remedies.get(cause, "")))
    lines += format_counts("dropped", report.dropped.in_words())
    lacking = report.kernels_without_work
    if kernels := report.kernels_with_work + sum(lacking.values()):
        known = f"known of {report.kernels_with_work} of {kernels} kernels and memory operations"
        op_counts = [f"{number} of {name}" for name, number in lacking.items()]
        op_counts[OPS_SHOWN:] = ["…"] * (len(lacking) > OPS_SHOWN)
        unknown = f"; unknown: {', '.join(op_counts)}" if op_counts else ""
        lines.append(summary_line("work", f"{known}, {report.time_with_work_pct:.1f} % of their time{unknown}"))
    odd = {
        "communications of unknown type kept as computation": report.unknown_communications,
        Reason.UNKNOWN_DTYPES.value: report.unknown_dtypes,
    }
    lines += format_counts("unknown", {what: count for what, count in odd.items() if count})
    return "\n".join(lines)
