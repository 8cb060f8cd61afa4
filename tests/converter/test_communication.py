"""Communication by hand-made records: its size on each rank, the attributes of its nodes, and what a wait is for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from execgraph.converter import communication
from execgraph.converter.communication import CommunicationColumns, Message, meaning, tags
from execgraph.linker.communication import CollectiveOps, awaited_collectives
from execgraph.linker.communication.arguments import WAIT
from execgraph.schema import dtypes
from execgraph.schema.columns import ABSENT
from execgraph.schema.dtypes import bytes_per_element
from execgraph.schema.graph import CollectiveType, NodeType
from execgraph.schema.linked import Communication
from support.references import linked_of
from support.tables import Op, Ran, activities, column, ops

SEND, RECV = NodeType.COMM_SEND, NodeType.COMM_RECV
UNKNOWN = -1


OF_THREE = {
    24: "allreduce alltoall broadcast reduce barrier send recv",
    8: "allgather gather",
    72: "reduce_scatter scatter",
}
"""The size by what comes out alone."""


@pytest.mark.parametrize(
    ("only_taken", "name"), [(size, name) for size, names in OF_THREE.items() for name in names.split()]
)
def test_what_a_rank_puts_in_is_its_size_else_what_comes_out(name: str, only_taken: int) -> None:
    """Of three ranks; 3 elements of 4 bytes go in, or 6 come out."""

    def size(given: int, taken: int, **group: object) -> int:
        return meaning(Communication(name, "Float", given, taken, **group), "").size

    three = {"ranks": [0, 1, 2]}
    assert (size(3, UNKNOWN, **three), size(UNKNOWN, 6, **three)) == (12, only_taken)
    assert size(3, 6, **three) == (24 if name == "recv" else 12)
    assert size(UNKNOWN, 6, group_size=3) == only_taken
    assert size(UNKNOWN, UNKNOWN) == 0
    assert size(UNKNOWN, 6) == 24


def test_a_size_is_no_larger_than_a_number_in_the_graph_can_be() -> None:
    assert meaning(Communication("allreduce", "Double", 1 << 62), "").size == (1 << 63) - 1


def test_of_messages_that_went_together_the_first_receive_stands_for_all() -> None:
    send, receive = Communication("send", "Float", 1), Communication("recv", "Float", 2, 2)
    unknown = Communication("mine", "Float", 4)
    for parts, size in (([send, receive, receive], 8), ([send, send], 4), ([unknown, send], 4)):
        found = meaning(Communication("coalesced", coalesced=parts), "")
        assert (found.size, found.node) == (size, RECV if receive in parts else SEND)
    assert meaning(Communication("coalesced", coalesced=[unknown]), "ncclDevKernel_AllReduce(x)") is None


def test_what_was_recorded_comes_before_the_kernel() -> None:
    """Of a gathered buffer a rank puts in its part; a barrier has no bytes, and a wait is no communication."""
    gathered = Communication(name="all_gather", dtype="Float", out_elements=24, ranks=[0, 1, 2, 3])
    assert meaning(gathered, "") == (NodeType.COMM_COLL, CollectiveType.ALL_GATHER, 24)
    barrier = Communication(name="barrier", dtype="Byte", in_elements=0)
    assert meaning(barrier, "") == (NodeType.COMM_COLL, CollectiveType.BARRIER, 0)
    assert meaning(Communication(name="wait"), "") is None
    exchanged = Communication(name="all_to_allv", dtype="Int", in_elements=3)
    found = meaning(exchanged, "ncclKernel_AllReduce_RING_LL_Sum")
    assert found == (NodeType.COMM_COLL, CollectiveType.ALL_TO_ALL, 12)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", CollectiveType.ALL_REDUCE),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", CollectiveType.ALL_REDUCE),
        ("ncclKernel_Reduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", CollectiveType.REDUCE),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", CollectiveType.BROADCAST),
        (
            "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            CollectiveType.REDUCE_SCATTER,
        ),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", CollectiveType.REDUCE),
        ("void ncclKernel_Reduce<gather>(y)", CollectiveType.REDUCE),
        ("mine::gather<int>(x)", CollectiveType.GATHER),
        ("my_gather_kernel", None),
        ("kernel<allreduce>", None),
        ("ncclDevKernel_AllGatherV(ncclDevKernelArgsStorage<4096ul>)", CollectiveType.ALL_GATHER),
        ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32", CollectiveType.ALL_REDUCE),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*)", CollectiveType.ALL_REDUCE),
        ("void c10d::symmetric_memory::two_shot_all_reduce_kernel<float>(float*)", CollectiveType.ALL_REDUCE),
        ("void vllm::cross_device_reduce_2stage<__hip_bfloat16, 8>(RankData*)", CollectiveType.ALL_REDUCE),
        ("xccl::broadcast", CollectiveType.BROADCAST),
        ("xccl::all_gather", CollectiveType.ALL_GATHER),
        ("xccl::recv", NodeType.COMM_RECV),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", None),
        ("ncclDevKernel_Generic_2(ncclDevKernelArgs)", None),
        ("void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", None),
        ("mscclKernel_Sum_half_LL(ncclDevComm*, mscclAlgo*)", None),
    ],
)
def test_a_kernel_tells_by_its_name_what_nothing_else_tells(kernel: str, expected: Any) -> None:
    found = meaning(Communication(), kernel)
    assert (None if found is None else found.node if found.type is None else found.type) == expected


SIZES = {
    1: "Byte Char Bool QInt8 QUInt8 QUInt4x2 QUInt2x4 Bits1x8 Bits2x4 Bits4x2 Bits8 Float8_e5m2 Float8_e4m3fn Float8_e5m2fnuz"
    " Float8_e4m3fnuz Float8_e8m0fnu Float4_e2m1fn_x2 bool uint8 int8 c10::Float8_e5m2 c10::quint8 torch.float8_e4m3fn",
    2: "Short Half fp16 bf16 BFloat16 UInt16 Bits16 c10::Half c10::BFloat16 torch.bfloat16 float16 int16_t",
    4: "Int Float fp32 ComplexHalf QInt32 UInt32 c10::complex<c10::Half> c10::qint32 torch.float32 int32",
    8: "Long Double ComplexFloat UInt64 c10::complex<float> int64_t torch.complex64",
    16: "ComplexDouble c10::complex<double> torch.complex128",
}


@pytest.mark.parametrize(
    ("size", "dtype"),
    [
        *((size, name) for size, names in SIZES.items() for name in names.split()),
        (1, "signed char"), (1, "unsigned char"), (2, "short int"), (2, "unsigned short"), (4, "unsigned int"), (8, "long int"),
    ],
)  # fmt: skip
def test_every_dtype_has_its_size(size: int, dtype: str) -> None:
    assert bytes_per_element(dtype, 0)
    assert bytes_per_element(dtype) == size


def test_an_unknown_dtype_is_one_byte_and_told_as_unknown() -> None:
    assert not bytes_per_element("Posit32", 0)
    assert bytes_per_element("Posit32") == 1
    assert "" not in dtypes.BYTES_OF_DTYPE


def columns_of(*found: Communication, rows: list[int] | None = None, count: int = 4) -> CommunicationColumns:
    """Of nodes 1, 2, … in a rank 2."""
    linked = linked_of([])
    linked.info.rank = 2
    linked.communications = list(found)
    rows = list(range(len(found))) if rows is None else rows
    return communication.communication_columns(
        linked, count, [communication.CommunicationNode(at + 1, row, "") for at, row in enumerate(rows)]
    )


def integers(columns: CommunicationColumns, name: str) -> list[int]:
    return [*map(int, columns.attributes.get(name, np.full(len(columns.types), ABSENT)))]


def values(columns: CommunicationColumns, name: str) -> list[list[int]]:
    found = columns.attributes[name]
    return [found[row].tolist() for row in range(len(columns.types))]


def test_a_collective_has_type_size_number_root_and_group() -> None:
    found = columns_of(
        Communication("broadcast", "Float", 4, group="5", ranks=[0, 2], sequence=0, source=0),
        Communication("reduce", "Float", 0, group="5", target=2),
    )
    assert found.types.tolist() == [NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_COLL, NodeType.COMP]
    told = {
        "comm_type": [CollectiveType.BROADCAST, CollectiveType.REDUCE], "comm_size": [16, 0], "comm_seq": [0, ABSENT],
        "comm_src": [0, ABSENT], "comm_dst": [ABSENT, 2], "comm_tag": [ABSENT, ABSENT],
    }  # fmt: skip
    assert {name: integers(found, name) for name in told} == {
        name: [ABSENT, *two, ABSENT] for name, two in told.items()
    }
    assert values(found, "pg_ranks") == [[], [0, 2], [], []]
    names = found.attributes["pg_name"]
    assert (names.codes.tolist(), names.table) == ([-1, 0, 0, -1], ["5"])
    assert "pg_ranks" not in columns_of(Communication("allreduce", "Float", 4)).attributes


def test_what_a_group_is_for_stands_on_its_nodes() -> None:
    described = columns_of(
        Communication("allreduce", "Float", 4, description="dp"), Communication("barrier", "Float", 0)
    )
    purpose = described.attributes["pg_desc"]
    assert [purpose[row] for row in range(4)] == ["", "dp", "", ""]
    assert "pg_desc" not in columns_of(Communication("allreduce", "Float", 4)).attributes


def test_types_and_dtypes_that_nobody_knows_are_counted() -> None:
    found = columns_of(
        Communication("mine", "Float", 4),
        Communication("allreduce", "quantum", 4),
        Communication("barrier", "quantum", 0),
    )
    assert (found.unknown_types, found.unknown_dtypes) == (1, 1)
    assert found.types.tolist() == [NodeType.COMP, NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_COLL]


def test_kernels_of_one_communication_share_its_bytes_to_the_last() -> None:
    found = columns_of(Communication("allreduce", "Byte", 11), rows=[0, 0, 0], count=5)
    assert integers(found, "comm_size") == [ABSENT, 4, 4, 3, ABSENT]
    exchanged = Communication("alltoall", "Byte", 12, ranks=[0, 1], in_split=[1, 2])
    assert values(columns_of(exchanged, rows=[0, 0]), "comm_split") == [[], [2, 4], [2, 4], []]


@pytest.mark.parametrize(
    ("told", "bytes_to_each"),
    [
        ({"in_split": [2, 1, 3]}, [16, 8, 24]), ({"in_split": [2, 0, 0]}, [48, 0, 0]),
        ({"in_split": [0, 0, 0]}, [0, 0, 0]), ({"in_split": [2, 1]}, None), ({"in_split": [4, -1, 3]}, None),
        ({"in_split": []}, None), ({"in_split": [2, 1, 3], "name": "allreduce"}, None),
    ],
)  # fmt: skip
def test_an_all_to_all_sends_each_member_its_share_of_the_bytes(told, bytes_to_each):
    """12 floats; splits may count rows, here of two elements."""
    found = columns_of(
        Communication(**{"name": "alltoall", "dtype": "Float", "in_elements": 12, "ranks": [0, 1, 2]} | told)
    )
    assert ("comm_split" in found.attributes) == (bytes_to_each is not None)
    if bytes_to_each is not None:
        assert values(found, "comm_split") == [[], bytes_to_each, [], []]


def test_messages_of_one_kernel_are_listed_the_sends_first() -> None:
    both = [Communication("recv", "Float", 1, 2, source=1), Communication("send", "Float", 3, target=3)]
    found = columns_of(Communication("coalesced", coalesced=both), Communication("send", "Float", 1, target=0))
    assert values(found, "coalesced_src") == [[], [2, 1], [], []]
    assert values(found, "coalesced_dst") == [[], [3, 2], [], []]
    assert values(found, "coalesced_size") == [[], [12, 8], [], []]
    assert integers(found, "comm_size") == [ABSENT, 8, 4, ABSENT]
    alone = columns_of(Communication("send", "Float", 1, target=0))
    assert not any(name.startswith("coalesced") for name in alone.attributes)
    shown = (integers(alone, "comm_src"), integers(alone, "comm_dst"))
    assert shown == ([ABSENT, 2, ABSENT, ABSENT], [ABSENT, 0, ABSENT, ABSENT])


def test_messages_of_groups_that_lie_elsewhere_in_memory_have_tags_by_which_came_first() -> None:
    def sent(*groups: str) -> list[int]:
        found = columns_of(*(Communication("send", "Float", 1, target=0, group=group) for group in groups))
        return integers(found, "comm_tag")[1:]

    one, two = "94594108284448", "94594108284999"
    assert sent(one, two, one) == sent(two, one, two) == [0, 1, 2]
    assert sent("9", "10", "9") == [0, 1, 2]
    assert sent("10", "9", "9") == [1, 0, 2]


def test_every_channel_between_two_ranks_has_tags_of_its_own() -> None:
    def message(target: int, tag: int) -> Message:
        return Message(0, SEND, 0, target, 8, ((), (0, ""), False, tag))

    assert tags([message(1, 0), message(1, 5), message(1, 0), message(1, 5), message(1, 5)]) == [0, 1, 2, 3, 5]
    assert tags([message(1, 5), message(2, 0), message(1, 5), message(2, 0)]) == [0, 0, 1, 1]
    assert tags([]) == []


def awaited(*launched: tuple[int, Communication], waiting: Communication) -> dict[int, int]:
    """The activity that a wait at 50 is for; each of those launched is given by the row of its op, which starts at 10
    times that.
    """
    table = ops(*(Op(start=10 * row, end=10 * row + 5) for row in range(5)), Op(start=50, end=55), Op(start=0, end=1))
    rows = np.arange(len(launched))
    ran = replace(
        activities(*(Ran(100, 200) for _ in launched)),
        communication_row=rows,
        op_row=column(*(op for op, _ in launched)),
    )
    recorded = CollectiveOps(column(5), [waiting], np.full(7, -1), table, {}, np.full(7, -1))
    found = awaited_collectives(recorded, ran, [found for _, found in launched])
    [row] = found.of(np.array([5])).tolist()
    return {5: row} if row >= 0 else {}


def test_a_wait_is_for_the_latest_collective_before_it_with_its_number_of_its_group_if_that_is_told() -> None:
    def group_ids(sequence: int, group: str = "5") -> Communication:
        return Communication("allreduce", group=group, sequence=sequence)

    wait = Communication(WAIT, sequence=0)
    assert awaited((0, group_ids(0)), waiting=wait) == {5: 0}
    assert awaited((1, group_ids(0)), (2, group_ids(0)), (3, group_ids(1)), waiting=wait) == {5: 1}
    of_group = Communication(WAIT, group="5", sequence=0)
    assert awaited((1, group_ids(0)), (2, group_ids(0, "6")), waiting=of_group) == {5: 0}
    assert awaited((1, group_ids(0, "6")), waiting=of_group) == {5: 0}
    assert awaited((-1, group_ids(0)), (5, group_ids(0)), waiting=wait) == {}
    assert awaited((1, group_ids(-1)), waiting=Communication(WAIT)) == {}
    assert awaited((1, group_ids(0)), waiting=group_ids(0)) == {}
