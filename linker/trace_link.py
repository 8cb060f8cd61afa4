"""The command trace-link: a host trace and a device trace in, a linked trace out."""

import argparse
import logging
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec

from ..schema.command import command_parser, print_json, run_command, usage_error, without_leading_word
from ..schema.errors import DataError
from ..schema.files import STANDARD_STREAM
from ..schema.linked import LinkedTrace, LinkReport
from ..schema.linked_file import write_linked
from .device_trace import DeviceTrace, read_device_trace
from .host_trace import HostTrace, read_host_trace
from .link import link
from .match import match_ops
from .merged import one_rank
from .windows import Span, annotation_span, clock_span, inside, step_span, whole

log = logging.getLogger("execgraph")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    parser = command_parser(
        "trace-link",
        "Joins the host trace and the device trace that the PyTorch profiler wrote of one process.",
        "trace-link --host-trace host_rank0.json --device-trace device_rank0.json --output linked.json.gz",
    )
    parser.add_argument(
        "--host-trace",
        "--chakra-host-trace",
        metavar="ET",
        help="PyTorch Execution Trace (JSON; gzip and zstd accepted)",
    )
    parser.add_argument(
        "--device-trace",
        "--chakra-device-trace",
        metavar="KINETO",
        required=True,
        help="Kineto trace (JSON; gzip and zstd accepted)",
    )
    parser.add_argument("--rank", type=int, metavar="N", help="the rank of a trace that records none")
    parser.add_argument(
        "--allow-mismatch", action="store_true", help="link files that do not seem to be of one run and rank"
    )
    parser.add_argument(
        "--output", "--output-file", metavar="LINKED", required=True, help="linked trace (.gz compresses, - is stdout)"
    )
    parser.add_argument("--strict", action="store_true", help="refuse damaged files instead of using what can be read")
    window = parser.add_argument_group("a part of a long trace", "what all that are given have in common")
    window.add_argument(
        "--steps",
        type=_steps,
        metavar="A[:B]",
        help="profiler step A, or steps A up to but without B, by their numbers",
    )
    window.add_argument("--annotation", metavar="NAME", help="the first annotation of that name")
    window.add_argument("--window", type=_window, metavar="T0:T1", help="from T0 to T1 µs after the trace's start")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object on stdout")
    options = parser.parse_args(without_leading_word(arguments, "pytorch"))
    if options.json and options.output == STANDARD_STREAM:
        usage_error(parser, "--json and --output - both want stdout")
    run_command(_run, options, "trace-link")


def _steps(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is no A or A:B, as 3 or 3:5")
    first = int(found.group(1))
    return first, int(found.group(2) or first + 1)


def _window(text: str) -> tuple[float, float]:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?):(\d{1,15}(?:\.\d+)?)", text)
    if not found or float(found.group(1)) >= float(found.group(2)):
        raise argparse.ArgumentTypeError(f"{text!r} is no T0:T1 in µs, as 0:1500")
    return float(found.group(1)), float(found.group(2))


def _run(options: argparse.Namespace) -> None:
    host = read_host_trace(options.host_trace, options.strict) if options.host_trace else None
    device = read_device_trace(options.device_trace, options.strict)
    if options.steps or options.annotation or options.window:
        host, device = _part(options, host, one_rank(device, options.rank))
    linked = link(host, device, options.rank, options.allow_mismatch)
    _add_findings(linked.report, host, device)
    write_linked(linked, options.output)
    if options.json:
        print_json(msgspec.to_builtins(linked.report))
    log.info(summary(linked))


def _part(
    options: argparse.Namespace, host: HostTrace | None, device: DeviceTrace
) -> tuple[HostTrace | None, DeviceTrace]:
    """What of both traces belongs to the window that the options ask for."""
    trace = span = whole(device)
    if options.window:
        span = _common(span, clock_span(device, *options.window))
    if options.steps:
        span = _common(span, step_span(device, *options.steps))
    if options.annotation:
        span = annotation_span(device, options.annotation, span)
    match = match_ops(host, device, options.allow_mismatch) if host is not None else None
    host, part = inside(host, device, match, span)
    begin, end = ((time - trace.start) / 1000 for time in span)
    if not len(part.ops.start) and not len(part.activities.start):
        raise DataError(f"{device.path}: nothing was recorded in the window, {begin:.0f} to {end:.0f} µs of the trace")
    part.remarks = [*part.remarks, f"the window is from {begin:.3f} to {end:.3f} µs of the trace"]
    return host, part


def _common(left: Span, right: Span) -> Span:
    return Span(max(left.start, right.start), min(left.end, right.end))


def _add_findings(report: LinkReport, host: HostTrace | None, device: DeviceTrace) -> None:
    """What reading found: rows that could not be read, and what was decided about others."""
    for trace in (host, device) if host is not None else (device,):
        report.dropped |= {what: count for what, count in trace.skipped.items() if count}
        report.noted |= {what: count for what, count in trace.noted.items() if count}
        report.remarks += trace.remarks


def summary(linked: LinkedTrace) -> str:
    """What was matched, linked, noted, dropped and guessed, a line each."""
    report = linked.report
    lines = [f"activities  {report.linked} of {report.activities} linked to a launch call, {report.calls} calls"]
    if report.matched_by:
        share = f"{report.matched} of {report.host_ops} host ops matched by {report.matched_by}"
        lines.insert(0, f"host ops    {share}, agreement {report.agreement_pct:g} %")
    else:
        lines.insert(
            0, f"host ops    {report.device_ops} from the device trace alone: no tensors, no data dependencies"
        )
    tables: tuple[tuple[str, dict[str, Any]], ...] = (
        ("waits", report.waits),
        ("noted", report.noted),
        ("guessed", report.guessed),
        ("dropped", report.dropped),
    )
    lines += [f"{title:<12}{count} {what}" for title, table in tables for what, count in table.items()]
    lines += [f"{'note':<12}{remark}" for remark in report.remarks]
    return "\n".join(lines)
