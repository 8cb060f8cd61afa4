"""Training goes on whatever becomes of its recording."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def training_goes_on(clean_up: Callable[[], None]) -> Iterator[None]:
    """Cleans up after a failure of the block and warns of it, in the name of who called the method that this is in."""
    try:
        yield
    except Exception as error:
        clean_up()
        warn(f"recording stopped, training goes on: {str(error) or repr(error)}", stacklevel=5)


def warn(text: str, stacklevel: int) -> None:
    """Warns in one line."""
    warnings.warn(f"execgraph: {' '.join(text.split())}", stacklevel=stacklevel)
