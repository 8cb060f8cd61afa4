"""The input shapes of host ops as text, as either trace recorded them."""

import msgspec

from ....schema.columns import Categorical
from ....schema.linked import Ops
from ....schema.traces import TensorLists

NO_SHAPES = "[]"


def op_shapes(ops: Ops) -> Categorical:
    """Returns for each op the JSON list of its inputs' shapes, such as `[[4,8],[]]`; empty where it has none."""
    decode = msgspec.json.Decoder(TensorLists).decode
    texts = (bytes(decode(inputs).shapes).decode().replace(" ", "") for inputs in ops.inputs)
    return Categorical.of("" if text == NO_SHAPES else text for text in texts)
