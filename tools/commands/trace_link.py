"""The command trace-link: links a host trace and a device trace of one process."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ...schema.errors import RequestError, WrongUsage
from ...schema.reasons import LEFT_OUT, to_builtins
from ..command import log, print_json, progress_bar, step
from ..command_parser import Inputs, Output, command
from ..option_kinds import ends_as
from ..options import chosen_for
from ..terminal import format_counts, summary_line

if TYPE_CHECKING:
    from ...schema.linked import LinkedTrace
    from ...schema.machine import MachineCalibration


@command(
    "trace-link",
    "Joins the host trace and the device trace that the PyTorch profiler wrote of one process.",
    "host_rank0.json device_rank0.json -o linked.json.gz",
    Inputs(
        "TRACE",
        "the host trace and the device trace of one process, in either order, or a folder with them; or a device trace "
        "alone (gzip and zstd accepted); with --modules a detail trace, too",
        unless=("device_trace", "host_trace"),
    ),
    Output("LINKED.json", "linked trace (.gz compresses, - is stdout)", ("--output-file",), ends_as(".json")),
    is_chakra=True,
)
def main(options: argparse.Namespace) -> None:
    """Links two traces."""
    import msgspec

    from ...linker.link import link, read_traces
    from ...linker.windows import Window
    from ...schema.linked import write_linked
    from ..recognise import InputKind, kind_of, reading
    from ..trace_files import find_pair

    given = (path for path in options.inputs if kind_of(Path(path)) is not InputKind.DETAIL)
    if len([*given, *filter(None, (options.host_trace, options.device_trace))]) > 2:
        way = "trace-build builds all ranks of a folder"
        raise WrongUsage(f"a host trace and a device trace are linked, of one process; {way}")
    *pair, detail = find_pair(options.inputs, options.rank)
    host_trace, device_trace = options.host_trace or pair[0], options.device_trace or pair[1]
    if device_trace is None:
        raise RequestError(f"{host_trace} is a host trace: give the device trace of the same process, too")
    by_option = {
        InputKind.HOST: "as --host-trace",
        InputKind.DEVICE: "as --device-trace",
        InputKind.MERGED: "as --device-trace, with --rank N",
    }
    files = {"strict": options.strict, "modules": options.modules, "detail": detail}
    with (
        progress_bar("read traces") as on_progress,
        reading(host_trace, InputKind.HOST, by_option),
        reading(device_trace, InputKind.DEVICE, by_option),
    ):
        host, device = read_traces(host_trace, device_trace, on_progress=on_progress, **files)
    with step("link"):
        linked = link(host, device, options.rank, options.allow_mismatch, Window(**chosen_for("Window", options)))
    del host, device
    with progress_bar("write linked trace", len(linked.ops) + len(linked.activities), "node") as on_progress:
        write_linked(linked, options.output, on_progress)
    if options.json:
        print_json(to_builtins(linked.report) | {"machine": msgspec.to_builtins(linked.info.machine)})
    log.info(summary(linked))


def in_words(machine: "MachineCalibration") -> str:
    """Returns what was measured of a machine: `launch latency 14.2 µs median, gaps 1.1 µs, device clock +2.9 µs`."""
    measured = (
        ("launch latency {} median", machine.launch),
        ("gaps {}", machine.gap),
        ("returns from waits {}", machine.sync_return),
    )
    parts = [text.format(f"{table[''].median / 1000:.1f} µs") for text, table in measured if "" in table]
    drift = f", drifting by {machine.clock_drift_ns / 1000:+.1f} µs" if machine.clock_drift_ns else ""
    rounded = ["times in whole µs"] if machine.resolution_ns > 1 else []
    return ", ".join([*parts, f"device clock {machine.clock_offset_ns / 1000:+.1f} µs{drift}", *rounded])


def summary(linked: "LinkedTrace") -> str:
    """Returns what was matched, linked, odd, guessed, dropped and left out, a line each."""
    from ..sync_records_advice import UNRECORDED_WAITS, lacks_sync_records

    report = linked.report
    if report.matched_by:
        ops = f"{report.matched} of {report.host_ops} host ops matched by {report.matched_by}"
        lines = [summary_line("host ops", f"{ops}, agreement {report.agreement_pct:g} %")]
    else:
        lines = [summary_line("host ops", f"{report.device_ops} from the device trace alone")]
    launched = f"{report.linked} of {report.activities} linked to a launch call, {report.calls} calls"
    lines.append(summary_line("activities", launched))
    if report.activities:
        lines.append(summary_line("machine", in_words(linked.info.machine)))
    lines += format_counts("waits", report.waits.in_words()) + format_counts("oddities", report.oddities.in_words())
    dropped = report.dropped.but(LEFT_OUT)
    lines += format_counts("guessed", report.guessed.in_words()) + format_counts("dropped", dropped.in_words())
    lines += format_counts("left out", report.dropped.but(dropped).in_words())
    notes = [*report.notes, *([UNRECORDED_WAITS] if lacks_sync_records(linked) else [])]
    return "\n".join([*lines, *(summary_line("note", str(note)) for note in notes)])
