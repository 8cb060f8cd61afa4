"""The option that says what a device can do at most, where its name does not tell or tells wrong."""

import argparse

from ...schema.device_peaks import Peak
from ..command_parser import OptionGroup


def add_peak_option(parser: OptionGroup) -> None:
    """Adds `--peak`, whose value is then pairs of a field of Peak and its value."""
    parser.add_argument(
        "--peak", dest="peaks", action="append", default=[], type=_peak, metavar="NAME=N",
        help=f"what devices can do at most, where their names do not tell: TFLOP/s of {', '.join(Peak._fields[:-1])}, or "
        f"GB/s of {Peak._fields[-1]}; repeatable",
    )  # fmt: skip


def _peak(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if name not in Peak._fields or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected one of {', '.join(Peak._fields)}, = and a number above 0")
    return name, value
