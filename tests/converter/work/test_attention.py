"""Where each attention op has its mask and its sequences, as PyTorch's schemas have them."""

import pytest
from execgraph.converter.work import Tensor, Unknown
from execgraph.converter.work.attention import BOTTOM, RULES, TOP, pairs
from support.graphs import FLOAT, ordered, work

LENGTHS = "cum_seq_q cum_seq_k max_q max_k"
SPANS = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
BACKWARD = "grad_out query key value"
ARGUMENTS = {
    "aten::_scaled_dot_product_flash_attention": "query key value dropout_p is_causal",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "query key value dropout_p is_causal",
    "aten::_scaled_dot_product_efficient_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "aten::_scaled_dot_product_cudnn_attention": "query key value attn_bias compute_log_sumexp dropout_p is_causal",
    "aten::_scaled_dot_product_fused_attention_overrideable": "query key value attn_bias dropout_p is_causal",
    "aten::_cudnn_attention_forward": f"query key value attn_bias {LENGTHS} compute_log_sumexp dropout_p is_causal",
    "aten::_flash_attention_forward": f"query key value {LENGTHS} dropout_p is_causal",
    "aten::_efficient_attention_forward": f"query key value bias {SPANS} dropout_p custom_mask_type",
    "flash_attn::_flash_attn_forward": "query key value dropout_p softmax_scale causal",
    "aten::_scaled_dot_product_flash_attention_backward": f"{BACKWARD} out logsumexp {LENGTHS} dropout_p is_causal",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": f"{BACKWARD} out logsumexp dropout_p is_causal",
    "aten::_scaled_dot_product_efficient_attention_backward": (
        f"{BACKWARD} attn_bias out logsumexp philox_seed philox_offset dropout_p grad_input_mask is_causal"
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": (
        f"{BACKWARD} out logsumexp philox_seed philox_offset attn_bias {LENGTHS} dropout_p is_causal"
    ),
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": (
        f"{BACKWARD} attn_bias grad_input_mask out logsumexp {LENGTHS} dropout_p is_causal"
    ),
    "aten::_cudnn_attention_backward": (
        f"{BACKWARD} out logsumexp philox_seed philox_offset attn_bias {LENGTHS} dropout_p is_causal"
    ),
    "aten::_flash_attention_backward": f"{BACKWARD} out logsumexp {LENGTHS} dropout_p is_causal",
    "aten::_efficient_attention_backward": (
        f"{BACKWARD} bias out {SPANS} logsumexp dropout_p philox_seed philox_offset custom_mask_type"
    ),
    "flash_attn::_flash_attn_backward": f"{BACKWARD} out softmax_lse dq dk dv dropout_p softmax_scale causal",
}
PLACES_FIRST = {
    "aten::_flash_attention_forward",
    "aten::_efficient_attention_forward",
    "flash_attn::_flash_attn_forward",
    "aten::_flash_attention_backward",
    "aten::_efficient_attention_backward",
    "flash_attn::_flash_attn_backward",
}
"""Ops whose shapes have sequence positions before heads."""


def operations(name: str, queries: int = 6, is_causal: bool = False, sequences: int = 0) -> int:
    """Of 2 x 3 heads of width 8 with 6 keys; or of so many sequences of that length one after the other."""
    shapes = [(2, 3, places, 8) for places in (queries, 6)]
    if sequences:
        shapes = [(sequences * places, 3, 8) for places in (queries, 6)]
    elif name in PLACES_FIRST:
        shapes = [(batch, places, heads, width) for batch, heads, places, width in shapes]
    query, key = (Tensor.of(shape, FLOAT, number) for number, shape in enumerate(shapes))
    offsets = Tensor.of((sequences + 1,), FLOAT, 7) if sequences else None
    values = {"query": query, "key": key, "value": key, "custom_mask_type": int(is_causal)}
    values |= dict.fromkeys(("is_causal", "causal"), is_causal)
    values |= dict.fromkeys(("cum_seq_q", "cum_seq_k", "cu_seqlens_q", "cu_seqlens_k"), offsets)
    values |= {"max_q": queries, "max_k": 6, "max_seqlen_q": queries, "max_seqlen_k": 6}
    found = work(name, ordered(ARGUMENTS[name], **values), []).operations
    assert found is not None
    return found


def test_every_attention_is_listed() -> None:
    assert ARGUMENTS.keys() == RULES.keys()


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_mask_is_where_the_schema_has_it(name: str) -> None:
    """Two products of 2 * 8 operations for each pair, five for the gradients; a causal mask leaves 21 of 36 pairs."""
    products = 5 if "backward" in name else 2
    assert operations(name) == 6 * 36 * products * 16
    assert operations(name, is_causal=True) == 6 * 21 * products * 16


@pytest.mark.parametrize("name", ARGUMENTS)
def test_with_fewer_queries_than_keys_the_mask_starts_in_a_corner(name: str) -> None:
    """Of 4 queries: 1 + 2 + 3 + 4 pairs from the first key on, 3 + 4 + 5 + 6 up to the last one."""
    left = 18 if name.startswith("flash_attn") else 10
    assert operations(name, queries=4, is_causal=True) * 24 == operations(name, queries=4) * left


@pytest.mark.parametrize(
    "name", [name for name in ARGUMENTS if any(word in ARGUMENTS[name] for word in (LENGTHS, SPANS))]
)
def test_sequences_one_after_the_other_are_where_the_schema_has_them(name: str) -> None:
    assert operations(name, sequences=2) == operations(name)


def test_a_memory_efficient_mask_may_start_in_the_other_corner() -> None:
    def masked(mask: object) -> int | None:
        query, key = Tensor.of((2, 4, 3, 8), FLOAT, 0), Tensor.of((2, 6, 3, 8), FLOAT, 1)
        values = {"query": query, "key": key, "value": key, "custom_mask_type": mask}
        return work(
            "aten::_efficient_attention_forward", ordered(ARGUMENTS["aten::_efficient_attention_forward"], **values), []
        ).operations

    assert [masked(mask) for mask in (0, 1, 2)] == [6 * left * 32 for left in (24, 10, 18)]
    for mask in (3, -1, None):
        with pytest.raises(Unknown):
            masked(mask)


@pytest.mark.parametrize(
    ("queries", "keys", "corner", "left"),
    [
        (3, 4, TOP, 6),
        (3, 4, BOTTOM, 9),
        (4, 3, TOP, 9),
        (4, 3, BOTTOM, 6),
        (3, 3, TOP, 6),
        (3, 3, BOTTOM, 6),
        (3, 4, None, 12),
    ],
)
def test_a_mask_leaves_the_pairs_below_its_diagonal(queries: int, keys: int, corner: str | None, left: int) -> None:
    assert pairs(queries, keys, corner) == left


def test_gradients_are_like_query_key_and_value() -> None:
    name = "aten::_scaled_dot_product_flash_attention_for_cpu_backward"
    query, key, value = (
        Tensor.of(shape, FLOAT, number) for number, shape in enumerate(((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 4)))
    )
    found = work(name, ordered(ARGUMENTS[name], query=query, key=key, value=value, is_causal=False), None)
    assert found.bytes == FLOAT * 2 * (48 + 80 + 40)
