"""The options of commands that link traces: a part of a long one, and the modules of its ops."""

import argparse
import re
from typing import TYPE_CHECKING

from ..command_parser import OptionGroup

if TYPE_CHECKING:
    from ...linker.windows import Window

RULE = """\
If you give several, the part is what they have in common. The whole trace is linked
and then cut. A call belongs to the part in which it starts, and an activity to the part
of its launch call. An op belongs to every part that it overlaps, cut to its borders.
Waits and hand-offs across a border are left out and counted; what they delayed starts
as measured"""


def add_window_options(parser: argparse.ArgumentParser) -> None:
    """Adds --steps, --annotation and --window."""
    group = parser.add_argument_group("a part of a long trace", RULE)
    group.add_argument(
        "--steps",
        type=_steps,
        metavar="A[:B]",
        help="profiler step A, or steps A up to but not including B; a step lasts until the next one begins",
    )
    group.add_argument(
        "--annotation",
        metavar="NAME[:K|:all]",
        help="the first annotation of this name; with :K the one after K others; with :all from the first to the last",
    )
    group.add_argument(
        "--window", type=_window, metavar="T0:T1", help="from T0 to T1 µs after recording began, as viewers show it"
    )


def add_modules_option(parser: OptionGroup) -> None:
    """Adds --modules."""
    parser.add_argument(
        "--modules", action="store_true",
        help="give each op and activity its nn.Module and Python function, from Python's calls; record them with "
        "with_stack=True and with_modules=True",
    )  # fmt: skip


def window_of(options: argparse.Namespace) -> "Window":
    """Returns the window that these options give; the whole trace without any."""
    from ...linker.windows import Window

    return Window(options.steps, options.annotation, options.window)


def _steps(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,18})(?::(\d{1,18}))?", text)
    first, end = (int(number) for number in match.groups(int(match.group(1)) + 1)) if match else (0, 0)
    if first >= end:
        raise argparse.ArgumentTypeError(f"{text!r} is not A or A:B with A below B, such as 3 or 3:5")
    return first, end


def _window(text: str) -> tuple[float, float]:
    match = re.fullmatch(r"(\d{1,15}(?:\.\d+)?):(\d{1,15}(?:\.\d+)?)", text)
    if not match:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not T0:T1: write two times in µs in plain digits, such as 0:1500"
        )
    first, end = float(match.group(1)), float(match.group(2))
    if first >= end:
        raise argparse.ArgumentTypeError(f"{text!r} is not T0:T1 with T0 below T1: write the earlier time first")
    return first, end
