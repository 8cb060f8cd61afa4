"""Reads the recorded arguments of one communication from either trace, of any version of PyTorch.

They are named arguments, positional ones, or the tensors of an annotation. Peers and roots are recorded in two ways: by
their rank in the group (positional arguments, "Rank") and by their global rank ("Src Rank", "Dst Rank").
`Communication.group_rank` keeps the rank in the group until the group's members are known.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from ...schema.comm_groups import INT32_MAX, LARGEST_JOB
from ...schema.linked import Communication, argument_lists, integer, integer_list, kineto, listed, recorded_tensors

TENSOR_TYPE = re.compile(r"Tensor\((?!nullptr)([^()]*)\)")


def from_device(args: kineto.Args) -> Communication:
    """Returns the named arguments on a kernel or `record_param_comms` row of the device trace.

    Without named arguments it returns what follows from the recorded shapes.
    """
    if args.collective is None and args.group_name is None:
        return _from_shapes(args)
    size = integer(args.group_size, -1)
    return Communication(
        name=str(args.collective or ""),
        dtype=str(args.dtype or ""),
        in_elements=integer(args.in_elements, -1),
        out_elements=integer(args.out_elements, -1),
        in_split=integers(args.in_split),
        out_split=integers(args.out_split),
        group=str(args.group_name if args.group_name is not None else ""),
        description=str(args.group_description or ""),
        group_size=size,
        ranks=members(args.group_ranks)
        or regular_ranks(integer(args.first_rank, -1), integer(args.rank_stride, -1), size),
        sequence=integer(args.comm_sequence, -1),
        group_rank=_rank(args.group_rank),
        source=_rank(args.source_rank),
        target=_rank(args.target_rank),
    )


def _from_shapes(args: kineto.Args) -> Communication:
    """Returns the first tensors among an op's arguments: they are the rank's input."""
    shapes, types = listed(args.input_dims), listed(args.input_types)
    for shape, kind in zip(shapes, types, strict=False):
        if kind == "TensorList" and shape:
            return Communication(in_elements=integer(sum(map(_product, shape)), -1))
        if kind and kind not in ("TensorList", "Scalar", "ScalarList"):
            return Communication(dtype=str(kind), in_elements=_product(shape))
    return Communication()


def _product(shape: Any) -> int:
    elements = 1
    for size in shape if isinstance(shape, list) else ():
        elements *= integer(size, 0)
    return integer(elements, -1)


class _Positional(NamedTuple):
    """The positional arguments of `record_param_comms` except tensors, -1 and empty where a version has none."""

    sequence: int
    group: str
    description: str
    group_rank: int
    name: str
    in_split: list[int]
    out_split: list[int]
    ranks: Sequence[int]
    group_size: int


def _positional(values: list[Any], types: list[str]) -> _Positional:
    """Returns the positional arguments.

    Up to PyTorch 2.3, sequence, group and group rank are numbers in this order; later the first one, and then the first
    two, are tuples. The name and two lists of splits follow, then the group's size, from 2.3 on after its first rank
    and the stride of its ranks.
    """
    scalars = [(value, kind) for value, kind in zip(values, types, strict=False) if "Tensor(" not in kind]
    name_at = next((at for at, (_, kind) in enumerate(scalars) if kind == "String"), len(scalars))
    before = [integer(value, -1) for value, kind in scalars[:name_at] if kind == "Int"]
    after = [integer(value, -1) for value, kind in scalars[name_at:] if kind == "Int"]
    tuples = [(_list(value), kind) for value, kind in scalars if kind.startswith("Tuple[")]
    sequence = next((value for value, kind in tuples if kind.startswith("Tuple[Int")), before)
    group = next((value for value, kind in tuples if kind.startswith("Tuple[String")), None)
    name, description = [*map(str, before[1:2] if group is None else group), "", ""][:2]
    splits = [integers(value) for value, kind in scalars[name_at:] if kind.startswith("GenericList")]
    first, stride, size = after[:3] if len(after) > 2 else (-1, -1, after[0] if len(after) == 1 else -1)
    return _Positional(
        sequence=integer(next(iter(sequence), None), -1),
        group=name,
        description=description,
        group_rank=before[-1] if before else -1,
        name=str(scalars[name_at][0]) if name_at < len(scalars) else "",
        in_split=splits[0] if splits else [],
        out_split=splits[1] if len(splits) > 1 else [],
        ranks=regular_ranks(first, stride, size),
        group_size=size,
    )


def from_host(inputs: bytes, outputs: bytes, attributes: dict[str, Any]) -> Communication:
    """Returns the arguments of a `record_param_comms` host node: its attributes, else its positional inputs."""
    values, kinds = argument_lists(inputs, "values", "types")
    types = [str(kind) for kind in kinds]
    positional = _positional(values, types)
    size = integer(attributes.get("pg_size"), positional.group_size)
    first, stride = (integer(attributes.get(f"global_rank_{what}"), -1) for what in ("start", "stride"))
    return Communication(
        name=str(attributes.get("collective_name", positional.name)),
        dtype=str(attributes.get("dtype", "") or dtype_of(inputs) or dtype_of(outputs)),
        in_elements=integer(attributes.get("in_msg_nelems"), elements(inputs)),
        out_elements=integer(attributes.get("out_msg_nelems"), elements(outputs)),
        in_split=integers(attributes.get("in_split_size", positional.in_split)),
        out_split=integers(attributes.get("out_split_size", positional.out_split)),
        group=str(attributes.get("pg_name", positional.group)),
        description=str(attributes.get("pg_desc", positional.description)),
        group_size=size,
        ranks=regular_ranks(first, stride, size) or positional.ranks,
        sequence=positional.sequence,
        group_rank=_rank(positional.group_rank),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def merge(first: Communication, second: Communication) -> Communication:
    """Returns the fields of `first`, those that it lacks from `second`."""
    fields = zip(*map(msgspec.structs.astuple, (first, second, Communication())), strict=True)
    return Communication(*(value if value != empty else other for value, other, empty in fields))


def integers(value: Any) -> list[int]:
    """Returns a recorded list of integers, empty where it is unknown."""
    return integer_list(value) or []


def members(value: Any) -> list[int]:
    """Returns the recorded ranks of a group, empty where they are not valid ranks."""
    ranks = integers(value)
    usable = ranks and min(ranks) >= 0 and max(ranks) <= INT32_MAX and len(set(ranks)) == len(ranks)
    return ranks if usable else []


def _rank(value: Any) -> int:
    number = integer(value, -1)
    return number if 0 <= number <= INT32_MAX else -1


def regular_ranks(first: int, stride: int, size: int) -> Sequence[int]:
    """Returns the ranks of a group with a constant stride as a range, empty where it is not recorded."""
    stride = 1 if size == 1 and stride < 1 else stride
    regular = first >= 0 and stride > 0 and 0 < size <= LARGEST_JOB and first + stride * (size - 1) <= INT32_MAX
    return range(first, first + size * stride, stride) if regular else []


def elements(text: bytes) -> int:
    """Returns the elements of all tensors in an op's arguments as the host trace writes them; -1 if there is none."""
    counts = [tensor.elements for tensor in recorded_tensors(text)]
    return integer(sum(counts), -1) if counts else -1


def dtype_of(text: bytes) -> str:
    """Returns the dtype of the first tensor in an op's arguments as the host trace writes them."""
    [types] = argument_lists(text, "types")
    tensor = TENSOR_TYPE.search(" ".join(map(str, types)))
    return tensor.group(1) if tensor else ""
