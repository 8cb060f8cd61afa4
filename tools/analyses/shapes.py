"""The input shapes of host ops as text, from the host trace or the device trace."""

import msgspec

from ...schema.columns import Categorical
from ...schema.linked import Ops, TensorLists

NO_SHAPES = "[]"


def op_shapes(ops: Ops) -> Categorical:
    """Returns the shapes of each op's inputs as a JSON list, such as `[[4,8],[]]`; "" if it has none."""
    decode = msgspec.json.Decoder(TensorLists).decode
    shapes = (bytes(decode(inputs).shapes).decode().replace(" ", "") for inputs in ops.inputs)
    return Categorical.of("" if shape == NO_SHAPES else shape for shape in shapes)
