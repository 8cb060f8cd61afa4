"""What every command shares: its options, exit codes, one-line errors, the summary and the progress bar.

Exit 0: done. Exit 1: the data is unusable, one line says why. Exit 2: wrong usage.
"""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ..schema.errors import DataError
from ..schema.io import bytes_of, decompressing_at_most
from ..schema.optional import MissingLibrary, require
from . import terminal
from .ending import STOPPED, ended_by_signals, say_stopped

if TYPE_CHECKING:
    from tqdm import tqdm

T = TypeVar("T")
KNOWN_ENDINGS = (".json", ".et", ".html", ".htm", ".csv", ".svg", ".dot", ".graphml", ".pdf", ".png", ".db", ".goal")
EXIT_STATUS = "exit status: 0 done, 1 the data are unusable (one line says why), 2 wrong usage"
ARGCOMPLETE = "_ARGCOMPLETE"
"""What the shell sets while it asks a command for completions."""
log = logging.getLogger("execgraph")


OptionGroup = argparse._ArgumentGroup | argparse.ArgumentParser
"""What options are added to: a group with a title, or a command's few options."""


class CommandParser(argparse.ArgumentParser):
    """Has the options that all commands have after their own; answers a shell that asks for completions, by argcomplete."""

    reads = True

    def parse_args(self, *arguments: Any, **more: Any) -> Any:
        """As of argparse; ends the process where a shell asked."""
        if self.reads:
            _add_limit(self)
        _add_common_options(self)
        if ARGCOMPLETE in os.environ:
            self._complete()
        return super().parse_args(*arguments, **more)

    def _complete(self) -> None:
        try:
            require("completion")
        except MissingLibrary as error:
            usage_error(self, str(error))
        import argcomplete

        argcomplete.autocomplete(self)

    def error(self, message: str) -> NoReturn:
        """As of argparse, in one line."""
        super().error(terminal.in_one_line(message))

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(terminal.plain(message), file)


def command_parser(name: str, description: str, example: str, reads: bool = True) -> argparse.ArgumentParser:
    """An argument parser with the options that all commands have, or all that read files, and an example at the end of its help."""
    parser = CommandParser(
        prog=name,
        description=description,
        epilog=f"{EXIT_STATUS}\n\nexample:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        add_help=False,
    )
    parser.reads = reads
    return parser


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument_group("limits").add_argument(
        "--max-size",
        type=_size,
        metavar="SIZE",
        help="the most that a compressed file of yours may decompress to, such as 20G (default: far more than traces of its size do)",
    )


def _add_common_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("help and messages")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
    group.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="say more on stderr")
    loudness.add_argument("-q", "--quiet", action="store_true", help="say only errors, and show no progress")


def _size(text: str) -> str:
    try:
        bytes_of(text)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


class _Version(argparse.Action):
    """Looks the version up only where it is asked for, as that takes longer than to read a small trace."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        import importlib.metadata

        print(f"{parser.prog} {importlib.metadata.version('execgraph')}")
        parser.exit()


def run_command(work: Callable[[argparse.Namespace], int | None], arguments: argparse.Namespace, name: str) -> NoReturn:
    """Runs `work` and ends the process: a DataError, an interrupt or a closed pipe is one line, never a traceback."""
    level = logging.ERROR if arguments.quiet else logging.DEBUG if arguments.verbose else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(terminal.PlainFormatter())
    logging.basicConfig(handlers=[handler], level=level, force=True)
    try:
        at_most = decompressing_at_most(getattr(arguments, "max_size", None))
        with ended_by_signals(name), no_garbage_collection(), at_most:
            sys.exit(work(arguments) or 0)
    except DataError as error:
        log.error(f"{name}: error: {' '.join(str(error).split())}")
        sys.exit(2 if isinstance(error, MissingLibrary) else 1)
    except MemoryError:
        log.error(f"{name}: error: out of memory; use a machine with more, or a shorter trace")
        sys.exit(1)
    except KeyboardInterrupt:
        say_stopped(name)
        sys.exit(STOPPED)
    except BrokenPipeError:
        # the reader of our output left; keep Python from complaining about it again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        what = f"{name}: internal error: {error!r}; run again with -v and report what it prints"
        log.error(what, exc_info=arguments.verbose)
        sys.exit(1)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Leaves the garbage collector off: records and columns form no cycles, and to look for some takes a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def print_json(summary: dict[str, Any]) -> None:
    """The summary as one JSON object on stdout."""
    import orjson

    terminal.print_json([orjson.dumps(summary, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS), b"\n"])


def progress(items: Iterable[T], what: str, total: int | None = None, unit: str = "it") -> Iterable[T]:
    """`items`, with a progress bar on stderr while they are consumed, only when stderr is a terminal, and not with --quiet."""
    from tqdm import tqdm

    return tqdm(
        items, desc=what, total=total, unit=unit, unit_scale=True, leave=False, disable=_no_bars(), file=sys.stderr
    )


def progress_bar(what: str, total: int | None = None, unit: str = "B") -> "tqdm[NoReturn]":
    """A progress bar for work that is not an iteration; call `update(n)` on it."""
    from tqdm import tqdm

    return tqdm(desc=what, total=total, unit=unit, unit_scale=True, leave=False, disable=_no_bars(), file=sys.stderr)


def _no_bars() -> bool | None:
    """As tqdm takes it: None to look whether stderr is a terminal."""
    return True if logging.getLogger().level >= logging.ERROR else None


def usage_error(parser: argparse.ArgumentParser, text: str) -> NoReturn:
    """Wrong usage: one line and exit 2."""
    parser.exit(2, f"{parser.prog}: error: {text} (see {parser.prog} --help)\n")


def output_as(*endings: str) -> Callable[[str], str]:
    """A type of argument: a file to write, whose name does not end like some other kind of file."""

    def check(path: str) -> str:
        name = path.lower().removesuffix(".gz").removesuffix(".zst")
        ending = next((ending for ending in KNOWN_ENDINGS if name.endswith(ending)), "")
        if ending and ending not in endings:
            raise argparse.ArgumentTypeError(
                f"{path}: what is written here ends in {' or '.join(endings)}, not in {ending}"
            )
        return path

    return check


def without_leading_word(arguments: Sequence[str] | None) -> list[str]:
    """The command line without the leading sub-command that Chakra's tools want (`PyTorch`)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return given[1:] if given and given[0].lower() == "pytorch" else given
