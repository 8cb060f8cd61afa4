"""The input shapes of host ops as text, from the host trace or the device trace."""

import numpy as np

from ...schema.columns import Categorical
from ...schema.linked import Ops, argument_members

NO_SHAPES = "[]"


def op_shapes(ops: Ops) -> Categorical:
    """Returns the shapes of each op's inputs as a JSON list, such as `[[4,8],[]]`; "" if it has none."""
    _, example, number = np.unique(ops.arguments.input_form, return_index=True, return_inverse=True)
    members = map(argument_members, ops.inputs.at(example))
    shapes = (bytes(each.shapes).decode().replace(" ", "") for each in members)
    return Categorical.of("" if shape == NO_SHAPES else shape for shape in shapes).take(number)
