"""Ops that move bytes and compute next to nothing: copies, sets, gathers and scatters."""

from collections.abc import Callable

from .family import NEW, Family, Rule, everything, like_first, moved, nothing, unknown_results
from .recorded_op import RecordedOp, Tensor, Unknown

COPY = Family("copy", "none; comparisons of sorting and searching are not counted", "the definitions of the ops")
SET = Family("set", "none; drawing random numbers is not counted", "the definitions of the ops", "tensors written")
GATHER = Family("gather", "none", "the definitions of the ops", "indices read, what is picked read and written")
SCATTER = Family(
    "scatter",
    "what is added, a step of each element; otherwise none",
    "the definitions of the ops",
    "indices and values read; in place as much written as there are values, and read before where they are added;"
    " otherwise the whole tensor",
)
BAG = Family(
    "embedding bag",
    "a step of each element of a picked row",
    "the definitions of the ops",
    "indices, picked rows, results",
)
Moved = Callable[[RecordedOp], int]

COPIES = (
    "copy_ clone contiguous _to_copy cat _cat stack repeat flip roll tril triu tril_ triu_ constant_pad_nd "
    "reflection_pad1d reflection_pad2d replication_pad2d pixel_shuffle im2col masked_select nonzero sort topk argsort "
    "_unique2 unique_consecutive unique_dim kthvalue upsample_nearest1d upsample_nearest2d upsample_nearest3d "
    "_foreach_copy_ _chunk_cat _pack_padded_sequence split_with_sizes_copy "
    "slice_scatter select_scatter diag_embed diag "
    "channel_shuffle _local_scalar_dense _pin_memory expand_copy permute_copy view_copy searchsorted bucketize "
    "masked_scatter"
)
FBGEMM_COPIES = "permute_2D_sparse_data permute_1D_sparse_data bounds_check_indices"
SETS = (
    "fill_ zero_ zeros ones full full_like zeros_like ones_like new_zeros arange eye linspace uniform_ normal_ "
    "bernoulli_ "
    "random_ exponential_ geometric_ log_normal_ cauchy_ randperm randn rand randint _foreach_zero_ scalar_tensor "
    "logspace"
)
SCATTERS = {"index_put_": 2, "_index_put_impl_": 2, "scatter_": 3, "index_copy_": 3, "put_": 2}
ADDING_SCATTERS = {"index_add_": 3, "scatter_add_": 3, "index_add": 3, "scatter_add": 3}
ACCUMULATE = {"index_put_": 3, "_index_put_impl_": 3}


def _set(op: RecordedOp) -> int:
    return moved([], op.written or list(op.tensors(0)))


def _copied(op: RecordedOp) -> int:
    """Returns the bytes of a copy; the old content of the tensor that it overwrites is not read."""
    reads = op.read[1:] if op.name == "aten::copy_" else op.read
    if op.name == "aten::_foreach_copy_":
        into = {tensor.memory for tensor in op.tensors(0)}
        reads = [tensor for tensor in op.read if tensor.memory not in into]
    return moved(reads, op.written)


def _picked(op: RecordedOp) -> int:
    """Returns the bytes of the result, read and written, and of the indices: all tensors but the source."""
    results = op.results[:1]
    source = op.tensor(0)
    return moved(results, results) + moved([tensor for tensor in op.read if tensor is not source], [])


def _picked_part(op: RecordedOp) -> int:
    return moved(op.results[:1], op.results[:1])


def _put(values: int, adds: Callable[[RecordedOp], bool]) -> Moved:
    def put(op: RecordedOp) -> int:
        source = op.tensor(0)
        beside = moved([tensor for tensor in op.read if tensor is not source], [])
        if not op.name.endswith("_"):
            return beside + source.bytes + sum(tensor.bytes for tensor in op.results[:1])
        written = _values(op, values).elements * source.item
        return beside + written * (2 if adds(op) else 1)

    return put


def _values(op: RecordedOp, position: int) -> Tensor:
    value = op.argument(position)
    if isinstance(value, Tensor):
        return value
    raise Unknown("values")


def _added(values: int, adds: Callable[[RecordedOp], bool]) -> Moved:
    return lambda op: _values(op, values).elements * adds(op)


def _rows(op: RecordedOp) -> int:
    """Returns the elements of the rows that an embedding bag picks."""
    return op.tensor(1).elements * op.shape(0, 2)[1]


def _bag(op: RecordedOp) -> int:
    weight = op.tensor(0)
    beside = moved([tensor for tensor in op.read if tensor is not weight], op.written)
    return beside + _rows(op) * weight.item


def _index_selected(op: RecordedOp) -> list[Tensor]:
    x, index = op.tensor(0), op.tensor(2)
    (dimension,) = op.integers(1)
    if not -len(x.shape) <= dimension < len(x.shape):
        raise Unknown("dimensions")
    shape = list(x.shape)
    shape[dimension] = index.elements
    return [Tensor.of(tuple(shape), x.item, NEW, x.dtype)]


def _embedded(op: RecordedOp) -> list[Tensor]:
    weight = op.tensor(0)
    return [Tensor.of((*op.shape(1), op.shape(0, 2)[1]), weight.item, NEW, weight.dtype)]


def _all_added(op: RecordedOp) -> int:
    return op.tensor(0).elements


def _table(op: RecordedOp) -> list[Tensor]:
    """Returns the gradient of the whole table; the third argument is its number of rows."""
    gradient = op.tensor(0)
    return [Tensor.of((*op.integers(2), *gradient.shape[-1:]), gradient.item, NEW, gradient.dtype)]


def _like_index(op: RecordedOp) -> list[Tensor]:
    return [Tensor.of(op.shape(2), op.tensor(0).item, NEW)]


def _rules() -> dict[str, Rule]:
    in_place = {"copy_", "fill_", "zero_", "clone", "contiguous", "uniform_", "normal_", "tril", "triu", "flip", "roll"}
    rules = {}
    for family, names, bytes_moved in ((COPY, COPIES, _copied), (SET, SETS, _set)):
        for name in names.split():
            results = like_first if name in in_place else unknown_results
            rules[f"aten::{name}"] = Rule(family, nothing, bytes_moved, results)
    rules |= {f"fbgemm::{name}": Rule(COPY, nothing, everything, unknown_results) for name in FBGEMM_COPIES.split()}
    for name, values in SCATTERS.items():
        accumulate = ACCUMULATE.get(name)

        def adds(op: RecordedOp, position: int | None = accumulate) -> bool:
            return position is not None and bool(op.argument(position))

        rules[f"aten::{name}"] = Rule(SCATTER, _added(values, adds), _put(values, adds), unknown_results)
    for name, values in ADDING_SCATTERS.items():
        rules[f"aten::{name}"] = Rule(SCATTER, _added(values, _always), _put(values, _always), unknown_results)
    for name, results_of in (("gather", _like_index), ("index_select", _index_selected), ("embedding", _embedded)):
        rules[f"aten::{name}"] = Rule(GATHER, nothing, _picked, results_of)
    for name in ("index", "take", "take_along_dim", "_unsafe_index"):
        rules[f"aten::{name}"] = Rule(GATHER, nothing, _picked, unknown_results)
    for name in ("narrow_copy", "slice_copy", "select_copy"):
        rules[f"aten::{name}"] = Rule(GATHER, nothing, _picked_part, unknown_results)
    for name in ("_embedding_bag", "_embedding_bag_forward_only"):
        rules[f"aten::{name}"] = Rule(BAG, _rows, _bag, unknown_results)
    rules["aten::embedding_dense_backward"] = Rule(SCATTER, _all_added, everything, _table)
    rules["aten::_embedding_bag_dense_backward"] = Rule(BAG, _rows, everything, unknown_results)
    return rules


def _always(op: RecordedOp) -> bool:
    return True


RULES = _rules()
