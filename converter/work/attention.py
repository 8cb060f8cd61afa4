"""Attention of queries to keys and values: flash, memory-efficient, cuDNN and overridden kernels, forward
and backward.
"""

from collections.abc import Callable
from typing import NamedTuple

from .family import NEW, Family, Rule, everything
from .recorded_op import RecordedOp, Tensor, Unknown

FAMILY = Family(
    "attention",
    "2 (q + v) of each head and pair of a query with a key, q and v their widths; backward 2 (3 q + 2 "
    "v), the scores once more"
    " included; of a causal one the pairs up to the diagonal alone, softmax and dropout are not counted",
    "`sdpa_flop_count`, `sdpa_backward_flop_count` of torch.utils.flop_counter, which count all pairs "
    "of a causal one, too",
)
TOP, BOTTOM = "upper left", "lower right"
"""The corner from which the diagonal of a causal mask starts, if the numbers of queries and keys differ."""
CORNERS = {0: None, 1: TOP, 2: BOTTOM}
"""The corner by `custom_mask_type` of the memory-efficient kernels."""


class Layout(NamedTuple):
    """Positions of arguments: the query, with key and value after it, and the mask; whether heads come before sequence
    positions in the shapes.

    `lengths` is the position of the offsets of sequences of several lengths; the longest ones are two positions behind.
    """

    query: int
    causal: int
    heads_first: bool = True
    lengths: int | None = None
    corner: str = TOP
    argument: str = "is_causal"


FORWARD = {
    "aten::_scaled_dot_product_flash_attention": Layout(0, 4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": Layout(0, 4),
    "aten::_scaled_dot_product_efficient_attention": Layout(0, 6),
    "aten::_scaled_dot_product_cudnn_attention": Layout(0, 6),
    "aten::_scaled_dot_product_fused_attention_overrideable": Layout(0, 5),
    "aten::_cudnn_attention_forward": Layout(0, 10, lengths=4),
    "aten::_flash_attention_forward": Layout(0, 8, heads_first=False, lengths=3),
    "aten::_efficient_attention_forward": Layout(0, 9, heads_first=False, lengths=4, argument="custom_mask_type"),
    "flash_attn::_flash_attn_forward": Layout(0, 5, heads_first=False, corner=BOTTOM, argument="causal"),
}
BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": Layout(1, 11, lengths=6),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": Layout(1, 7),
    "aten::_scaled_dot_product_efficient_attention_backward": Layout(1, 11),
    "aten::_scaled_dot_product_cudnn_attention_backward": Layout(1, 14, lengths=9),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": Layout(1, 13, lengths=8),
    "aten::_cudnn_attention_backward": Layout(1, 14, lengths=9),
    "aten::_flash_attention_backward": Layout(1, 11, heads_first=False, lengths=6),
    "aten::_efficient_attention_backward": Layout(1, 14, heads_first=False, lengths=6, argument="custom_mask_type"),
    "flash_attn::_flash_attn_backward": Layout(1, 11, heads_first=False, corner=BOTTOM, argument="causal"),
}


class Sizes(NamedTuple):
    """The heads of all sequences together, the queries and keys of each head, and the widths of queries and values."""

    heads: int
    queries: int
    keys: int
    width: int
    value_width: int


def _sizes(op: RecordedOp, layout: Layout) -> Sizes:
    query, key, value = (list(op.shape(layout.query + offset)) for offset in range(3))
    if layout.lengths is not None and isinstance(op.argument(layout.lengths), Tensor):
        query, key, value = _of_one_length(op, layout.lengths, [shape[-3:] for shape in (query, key, value)])
    elif not len(query) == len(key) == len(value) == 4:
        raise Unknown("queries, keys and values")
    elif not layout.heads_first:
        query, key, value = ([batch, heads, positions, width] for batch, positions, heads, width in (query, key, value))
    batch, heads, queries, width = query
    if key[:1] + key[3:] != [batch, width] or value[:3] != key[:3] or not key[1] or heads % key[1]:
        raise Unknown("queries, keys and values that fit")
    return Sizes(batch * heads, queries, key[2], width, value[3])


def _of_one_length(op: RecordedOp, lengths: int, shapes: list[list[int]]) -> list[list[int]]:
    """Returns the shapes of concatenated sequences as a batch, if all have one length. Raises Unknown."""
    sequences = op.shape(lengths, 1)[0] - 1
    longest, longest_key = op.argument(lengths + 2), op.argument(lengths + 3)
    regular = []
    for shape, length in zip(shapes, (longest, longest_key, longest_key), strict=True):
        if not isinstance(length, int) or len(shape) != 3 or shape[0] != sequences * length:
            raise Unknown("lengths of sequences")
        regular.append([sequences, shape[1], length, shape[2]])
    return regular


def pairs(queries: int, keys: int, corner: str | None) -> int:
    """Returns how many pairs a mask with the diagonal from this corner leaves; all pairs without a corner.

    >>> pairs(3, 4, TOP), pairs(3, 4, BOTTOM), pairs(3, 4, None)
    (6, 9, 12)
    """
    if corner is None:
        return queries * keys
    # a triangle, and a rectangle beside or below it
    side = min(queries, keys)
    triangle = side * (side + 1) // 2
    if queries > keys:
        return triangle + (queries - keys) * keys * (corner == TOP)
    return triangle + queries * (keys - queries) * (corner == BOTTOM)


def _corner(op: RecordedOp, layout: Layout) -> str | None:
    for name in ("window_size", "window_size_left", "window_size_right"):
        window = op.named(name)
        if isinstance(window, int) and window >= 0 and not isinstance(window, bool):
            raise Unknown("attention within a window")
    flag = op.named(layout.argument, layout.causal)
    if layout.argument == "custom_mask_type":
        if not isinstance(flag, int) or flag not in CORNERS:
            raise Unknown("a mask")
        return CORNERS[flag]
    if not isinstance(flag, bool):
        raise Unknown("whether it is causal")
    return layout.corner if flag else None


def _operations_of(layout: Layout, of_query: int, of_value: int) -> Callable[[RecordedOp], int]:
    def operations(op: RecordedOp) -> int:
        sizes = _sizes(op, layout)
        each = of_query * sizes.width + of_value * sizes.value_width
        return 2 * sizes.heads * pairs(sizes.queries, sizes.keys, _corner(op, layout)) * each

    return operations


def _results(layout: Layout) -> Callable[[RecordedOp], list[Tensor]]:
    """Returns the result, which is like the query but as wide as values, and the logarithm of each query's sum in
    single precision.
    """

    def results(op: RecordedOp) -> list[Tensor]:
        sizes, query = _sizes(op, layout), op.tensor(layout.query)
        shape = (*query.shape[:-1], sizes.value_width)
        sums = Tensor.of((sizes.heads, sizes.queries), 4, NEW + 1)
        return [Tensor.of(shape, query.item, NEW, query.dtype), sums]

    return results


def _gradients(op: RecordedOp) -> list[Tensor]:
    """Returns the gradients of query, key and value."""
    return [Tensor.of(op.shape(position), op.tensor(position).item, NEW + position) for position in (1, 2, 3)]


RULES = {
    **{
        name: Rule(FAMILY, _operations_of(layout, 1, 1), everything, _results(layout))
        for name, layout in FORWARD.items()
    },
    **{name: Rule(FAMILY, _operations_of(layout, 3, 2), everything, _gradients) for name, layout in BACKWARD.items()},
}
