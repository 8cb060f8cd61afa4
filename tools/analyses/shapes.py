"""The input shapes of host ops as text: from the host trace where there is one, else from the arguments in the device trace."""

from collections.abc import Iterator

import msgspec

from ...schema.columns import Strings
from ...schema.host import TensorLists
from ...schema.linked import Ops
from .recorded import RecordedArguments

NO_SHAPES = "[]"


def op_shapes(ops: Ops, recorded: RecordedArguments | None) -> Strings:
    """For each op the JSON list of its inputs' shapes, such as `[[4,8],[]]`; empty where it has none."""
    return Strings.of(_shapes(ops, recorded.shapes if recorded is not None else {}))


def _shapes(ops: Ops, recorded: dict[tuple[int, int, str], str]) -> Iterator[str]:
    decoder = msgspec.json.Decoder(TensorLists)
    columns = (ops.recorded_by_host.tolist(), ops.thread.tolist(), ops.start.tolist(), ops.name.codes.tolist())
    for inputs, by_host, thread, start, code in zip(ops.inputs, *columns, strict=True):
        if by_host:
            text = bytes(decoder.decode(inputs).shapes).decode().replace(" ", "")
        else:
            text = recorded.get((thread, start, ops.name.table[code]), "")
        yield "" if text == NO_SHAPES else text
