"""The options of replays: changed durations, and what a device can do at most where its name does not tell."""

import argparse
import math

from ...schema.machine import Peak
from ..command_parser import OptionGroup
from ..replay import SCALABLE, Scale, parse_scale
from .argument_types import number


def add_scale_options(parser: OptionGroup, intro: str = "", end: str = "") -> None:
    """Adds `--scale`, whose help has these texts around it, and `--peak`: pairs of a field of Peak and a value."""
    parser.add_argument(
        "--scale", action="append", default=[], type=_scale, metavar="SPEC",
        help=f"{intro}REGEX=F multiplies the durations of nodes whose name matches; class:CLASS=F those of a class "
        f"({', '.join(SCALABLE)}), bound:compute=F or bound:memory=F those of kernels limited by operations or bytes; "
        f"repeatable{end}",
    )  # fmt: skip
    parser.add_argument(
        "--peak", dest="peaks", action="append", default=[], type=_peak, metavar="NAME=N",
        help=f"the peak of devices whose name is not known: TFLOP/s of {', '.join(Peak._fields[:-1])}, "
        f"or GB/s of {Peak._fields[-1]}; repeatable",
    )  # fmt: skip


def _scale(spec: str) -> Scale:
    try:
        return parse_scale(spec)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _peak(text: str) -> tuple[str, float]:
    name, _, value_text = text.partition("=")
    value = number(value_text)
    if name not in Peak._fields or not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(Peak._fields)}, = and a number above 0")
    return name, value
