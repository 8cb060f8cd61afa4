"""The option of commands that read traces: which module and Python function each op was done for."""

import argparse


def add_modules_option(parser: argparse.ArgumentParser) -> None:
    """Adds --modules."""
    parser.add_argument(
        "--modules", action="store_true",
        help="read Python's calls, too, which a trace has that was recorded with with_stack=True and with_modules=True: the nn.Module and "
        "the Python function of each op and activity; takes more time and memory",
    )  # fmt: skip
