"""Options of what analyses count and show: thresholds, the operator of patterns, how many are named."""

import argparse
import math

from ..analyses import AnalysisOptions
from .argument_types import number

DEFAULT = AnalysisOptions()


def add_analysis_options(parser: argparse.ArgumentParser) -> None:
    """Adds --kernel-wait, --slow-call, --long-delay, --operator and --top."""
    group = parser.add_argument_group("what the analyses count and show", "durations in µs")
    group.add_argument(
        "--kernel-wait", type=_duration, default=DEFAULT.kernel_wait_us, metavar="µs",
        help="a shorter gap on a stream counts as the kernel's own wait, unless the host was late (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--slow-call", type=_duration, default=DEFAULT.slow_call_us, metavar="µs",
        help="a launch call that takes longer is slow (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--long-delay", type=_duration, default=DEFAULT.long_delay_us, metavar="µs",
        help="work that starts later after its call has a long delay (default %(default)g)",
    )  # fmt: skip
    group.add_argument(
        "--operator", default=DEFAULT.operator, metavar="TEXT",
        help="only kernel patterns of operators whose name contains this text (default: all)",
    )  # fmt: skip
    group.add_argument(
        "--top", type=_count, default=DEFAULT.top, metavar="N",
        help="how many kernels of each class to name, and how many patterns --perfetto marks (default %(default)s)",
    )  # fmt: skip


def options_of(arguments: argparse.Namespace) -> AnalysisOptions:
    """Returns the options that these and --peak give."""
    return AnalysisOptions(
        kernel_wait_us=arguments.kernel_wait,
        slow_call_us=arguments.slow_call,
        long_delay_us=arguments.long_delay,
        operator=arguments.operator,
        top=arguments.top,
        peaks=dict(arguments.peaks),
    )


def _duration(text: str) -> float:
    if not 0 <= (value := number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration in µs, such as 30 or 2.5")
    return value


def _count(text: str) -> int:
    if not (text.isdecimal() and 0 < int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)
