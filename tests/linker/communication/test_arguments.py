"""Communications in the form of every version: what each is to a simulator must not depend on the version.

The members of groups that communications name, and the peers and roots among them: by records made by hand.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from execgraph.converter.communication import meaning, peers
from execgraph.linker.communication import ProcessGroups, from_device, from_host, groups_of_host
from execgraph.linker.communication.arguments import MEMBERS_EACH, members
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema.comm_groups import LARGEST_JOB
from execgraph.schema.graph import CollectiveType, NodeType
from execgraph.schema.linked import Args, Communication, ProcessGroup, RecordedArguments
from support.builder.records import ITEM_SIZE, Tensor, boxed
from support.builder.timeline import TraceBuilder
from support.folders import DATA

OWN, WORLD, UNKNOWN = 1, 4, -7
NUMBERS = iter(range(2, 10_000))
COMMS_DTYPE = {"c10::Float8_e4m3fn": "Float8_e4m3fn", "c10::Half": "Half", "c10::BFloat16": "BFloat16", "int": "Int"}
COMMS_DTYPE |= {"float": "Float", "double": "Double", "long int": "Long", "unsigned char": "Byte"}
ITEM_SIZE |= {"c10::Float8_e4m3fn": 1, "unsigned char": 1}


class Case(NamedTuple):
    """A communication of rank 1 of 4. `group_rank` is the recorded rank: own, root's or peer's. `given` is None without
    a tensor.
    """

    name: str
    dtype: str
    given: list[int] | None
    taken: list[int]
    expected: CollectiveType | NodeType
    bytes: int
    group_rank: int = OWN
    source: int = -1
    target: int = -1
    in_split: tuple[int, ...] = ()
    out_split: tuple[int, ...] = ()

    @property
    def p2p(self) -> bool:
        return self.name in ("send", "recv")

    @property
    def members_in(self) -> int:
        """The elements that named arguments give as those that go in: a scatter counts the root's on all ranks."""
        return sum(self.taken) * WORLD if self.given is None else sum(self.given)


C, N = CollectiveType, NodeType
CASES = [
    Case("allreduce", "c10::Half", [100], [100], C.ALL_REDUCE, 200),
    Case("allreduce_coalesced", "float", [10, 6], [10, 6], C.ALL_REDUCE, 64),
    Case("broadcast", "long int", [10], [10], C.BROADCAST, 80, group_rank=2, source=2),
    Case("_broadcast_oop", "long int", [10], [10], C.BROADCAST, 80, group_rank=3, source=3),
    Case("reduce", "float", [3], [3], C.REDUCE, 12, group_rank=0, target=0),
    Case("_allgather_base", "c10::Float8_e4m3fn", [6], [24], C.ALL_GATHER, 6),
    Case("all_gather", "float", [6], [6, 6, 6, 6], C.ALL_GATHER, 24),
    Case("all_gather_into_tensor_coalesced", "float", [6, 2], [24, 8], C.ALL_GATHER, 32),
    Case("_reduce_scatter_base", "c10::BFloat16", [24], [6], C.REDUCE_SCATTER, 48),
    Case("reduce_scatter", "float", [6, 6, 6, 6], [6], C.REDUCE_SCATTER, 96),
    Case("reduce_scatter_tensor_coalesced", "float", [24, 8], [6, 2], C.REDUCE_SCATTER, 128),
    Case("all_to_all", "long int", [24], [24], C.ALL_TO_ALL, 192),
    Case("all_to_allv", "int", [3392], [768], C.ALL_TO_ALL, 13568, in_split=(96, 224, 3000, 72), out_split=(192,) * 4),
    Case("all_to_allv", "int", [0], [5], C.ALL_TO_ALL, 20, in_split=(0, 0, 0, 0), out_split=(5, 0, 0, 0)),
    Case("gather", "float", [5], [5, 5, 5, 5], C.GATHER, 20, group_rank=1, target=1),
    Case("scatter", "float", None, [5], C.SCATTER, 80, group_rank=3, source=3),
    Case("send", "double", [7], [7], N.COMM_SEND, 56, group_rank=3, target=3),
    Case("recv", "double", [7], [7], N.COMM_RECV, 56, group_rank=0, source=0),
]


def tensors(case: Case, sizes: list[int] | None) -> Any:
    """A tensor, or a list of them; an empty list where there is none."""
    made = [Tensor(next(NUMBERS), next(NUMBERS), 0, (size,), case.dtype, "cuda:0") for size in sizes or []]
    return made[0] if len(made) == 1 else made


def columns(arguments: list[Any]) -> RecordedArguments:
    boxes = [boxed(argument) for argument in arguments]
    names = ("values", "shapes", "types")
    text = json.dumps({name: [box[at] for box in boxes] for at, name in enumerate(names)})
    return RecordedArguments.of(text.encode())


def on_host(case, before, behind, attributes=False):
    """A host node's record: what stands before the name, the name, the splits, what stands behind them."""
    called = [case.group_rank, case.name, list(case.in_split), list(case.out_split)]
    inputs = columns([tensors(case, case.given), *before(case), *called, *behind])
    outputs = columns([tensors(case, case.taken)])
    return from_host(inputs, outputs, named(case) if attributes else {})


def named(case: Case) -> dict[str, Any]:
    return {
        "collective_name": case.name, "dtype": COMMS_DTYPE[case.dtype],
        "in_msg_nelems": case.members_in, "out_msg_nelems": sum(case.taken),
        "in_split_size": str(list(case.in_split)), "out_split_size": str(list(case.out_split)),
        "global_rank_start": 0, "global_rank_stride": 1, "pg_name": "0", "pg_desc": "default_pg", "pg_size": WORLD,
    }  # fmt: skip


def on_device(case: Case, **more: Any) -> Communication:
    """The arguments of a kernel."""
    args = {
        "Collective name": case.name, "dtype": COMMS_DTYPE[case.dtype], "Group size": WORLD,
        "In msg nelems": case.members_in, "Out msg nelems": sum(case.taken),
        "In split size": str(list(case.in_split)), "Out split size": str(list(case.out_split)),
    }  # fmt: skip
    return from_device(msgspec.convert(args | more, Args))


def peer(case: Case) -> dict[str, int]:
    return {"Dst Rank" if case.name == "send" else "Src Rank": case.group_rank} if case.p2p else {}


GROUP = {"Process Group Name": "0", "Process Group Description": "default_pg"}
REGULAR = {"Global rank start": 0, "Global rank stride": 1}
FORMS: dict[str, Callable[[Case], Communication]] = {
    "host 2.1": lambda case: on_host(case, lambda _: [147, 94594108284448], []),
    "host 2.2": lambda case: on_host(case, lambda _: [147, 94594108284448], [WORLD]),
    "host 2.3": lambda case: on_host(case, lambda _: [147, 0], [0, 1, WORLD]),
    "host 2.4 nightly": lambda case: on_host(case, lambda _: [147, ("0", "default_pg")], [0, 1, WORLD]),
    "host 2.4": lambda case: on_host(case, lambda _: [147, ("0", "default_pg")], [0, 1, WORLD], attributes=True),
    "host 2.6": lambda case: on_host(case, lambda c: [(147, c.p2p), ("0", "default_pg")], [0, 1, WORLD], True),
    "host 2.12": lambda case: on_host(case, lambda c: [(147, c.p2p), ("0", "default_pg")], [0, 1, WORLD, True], True),
    "device 2.2": lambda case: on_device(case, **{"Process Group ID": 0}),
    "device 2.4": lambda case: on_device(case, **GROUP, **REGULAR, Rank=case.group_rank),
    "device 2.5": lambda case: on_device(
        case, **GROUP, Rank=case.group_rank, **peer(case), **{"Process Group Ranks": "[0, 1, 2, 3]"}
    ),
    "device 2.12": lambda case: on_device(
        case, **GROUP, Rank=str(case.group_rank), **peer(case), Seq=147, **{"Process Group Ranks": [0, 1, 2, 3]}
    ),
}
RANK_NOT_RECORDED = ("device 2.2",)
NUMBERED = [form for form in FORMS if form.startswith("host") or form == "device 2.12"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.bytes}")
def test_what_a_communication_is_does_not_depend_on_the_version(form: str, case: Case) -> None:
    recorded = ProcessGroups([], WORLD).with_members([FORMS[form](case)])[0]
    found = meaning(recorded, "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)")
    assert found is not None
    assert (found.type if found.type is not None else found.node) == case.expected
    assert found.size == case.bytes
    assert recorded.ranks == [0, 1, 2, 3]
    assert recorded.in_split == list(case.in_split)
    if form not in RANK_NOT_RECORDED:
        assert (recorded.source, recorded.target) == (case.source, case.target)
        if found.type is None:
            ends = (OWN, case.target) if found.node is N.COMM_SEND else (case.source, OWN)
            assert peers(recorded, found.node, OWN) == ends
    if form in NUMBERED:
        assert recorded.sequence == 147


@pytest.mark.parametrize("form", ["2.1", "2.4", "2.12"])
def test_a_barrier_and_a_wait_have_no_tensor(form: str) -> None:
    before: list[Any] = {"2.1": [9, 94594108284448], "2.4": [9, ("", "")], "2.12": [(9, False), ("", "")]}[form]
    for name in ("barrier", "wait"):
        recorded = from_host(columns([*before, 0, name, [], []]), columns([]), {})
        assert (recorded.name, recorded.sequence, recorded.in_elements) == (name, 9, -1)
        found = meaning(recorded, "")
        assert (found.type if found else None) == (C.BARRIER if name == "barrier" else None)


def test_an_empty_list_of_tensors_is_no_split() -> None:
    recorded = from_host(columns([[], 9, 94594108284448, 1, "all_to_allv", [1, 2], [3, 4]]), columns([]), {})
    assert (recorded.in_split, recorded.out_split) == ([1, 2], [3, 4])


def test_damaged_arguments_are_no_arguments_and_what_cannot_be_a_group_has_no_members() -> None:
    tuples = ["Tuple[Int,Bool]", "Tuple[String,String]", "Int", "String"]
    for values, types in (
        ([7, "x", 3], tuples[:3]), ([[], ["only"], None, "send"], tuples), (5, [None, 3]),
        ([10**30, "send"], ["Int", "String", "Int"]),
    ):  # fmt: skip
        damaged = RecordedArguments.of(json.dumps({"values": values, "types": types}).encode())
        recorded = from_host(damaged, RecordedArguments.of(b"{}"), {})
        assert (recorded.sequence, recorded.ranks) == (-1, [])
    for wrong in (
        {"Group size": 2**62, **REGULAR},
        *({"Process Group Ranks": all_} for all_ in ([0, 10**12], "[1, 1]")),
    ):
        assert from_device(msgspec.convert({"Collective name": "allreduce", **wrong}, Args)).ranks == []


def test_bytes_that_are_not_those_of_the_tensors_are_said_and_not_taken(tmp_path: Path) -> None:
    trace = json.loads(gzip.decompress((DATA / "training/device_rank0.json.gz").read_bytes()))
    for event in trace["traceEvents"]:
        if "In msg nelems" in event.get("args", {}):
            event["args"] |= {"In msg nelems": 7, "dtype": "Double"}
    (changed := tmp_path / "device.json").write_text(json.dumps(trace))
    for host in (str(DATA / "training/host_rank0.json.gz"), None):
        found, original = (link(host, str(path)) for path in (changed, DATA / "training/device_rank0.json.gz"))
        sizes, true_sizes = ([meaning(each, "") for each in of.communications] for of in (found, original))
        assert sizes == true_sizes
        (said,) = set(found.report.notes) - {
            note.replace("device_rank0.json.gz", "device.json") for note in original.report.notes
        }
        assert "4 of 4 communications name other bytes than their tensors have (the first: allreduce, 56 bytes" in said


@pytest.mark.parametrize("keeps_arguments", [False, True])
def test_a_kernel_without_a_telling_name_communicates_by_its_launch_or_arguments(tmp_path, keeps_arguments) -> None:
    plain, path = DATA / "training" / "device_rank0.json.gz", tmp_path / "device.json"
    trace = json.loads(gzip.decompress(plain.read_bytes()))
    for row in trace["traceEvents"]:
        if row.get("cat") == "kernel":
            row["name"], args = "kernel", row["args"]
            row["args"] = args if keeps_arguments else {key: args[key] for key in ("device", "stream", "correlation")}
    path.write_text(json.dumps(trace))
    named, unnamed = link(None, str(plain)), link(None, str(path))
    rows = [linked.activities.communication_row.tolist() for linked in (named, unnamed)]
    assert rows[0] == rows[1] and unnamed.communications == named.communications
    count = sum(row >= 0 for row in rows[0])
    assert any(f": {count} kernels count as communication by " in note for note in unnamed.report.notes)
    assert not any("kernels count as" in note for note in named.report.notes)


def test_a_group_of_regular_ranks_needs_its_first_rank_their_distance_and_its_size() -> None:
    def recorded(first: int, stride: int, size: int) -> list[int]:
        given = {"Global rank start": first, "Global rank stride": stride, "Group size": size}
        known = {name: number for name, number in given.items() if number != UNKNOWN}
        return list(from_device(msgspec.convert({"Collective name": "allreduce", **known}, Args)).ranks)

    assert recorded(1, 3, 4) == [1, 4, 7, 10]
    assert recorded(5, UNKNOWN, 1) == recorded(5, 0, 1) == [5]
    assert recorded(UNKNOWN, 1, 2) == recorded(-1, 1, 2) == recorded(0, UNKNOWN, 2) == recorded(0, 1, UNKNOWN) == []
    assert recorded(0, 0, 2) == recorded(0, 1, 0) == []
    assert len(recorded(0, 1, LARGEST_JOB)) == LARGEST_JOB
    assert recorded(0, 1, LARGEST_JOB + 1) == recorded((1 << 31) - 1, 1, 2) == []
    assert recorded((1 << 31) - 2, 1, 2) == [(1 << 31) - 2, (1 << 31) - 1]


def test_groups_and_splits_are_told_by_their_position_where_attributes_do_not_name_them() -> None:
    two = from_host(columns([9, 94594108284448, 1, "allreduce", [], [], 0, 1]), columns([]), {})
    assert (two.group_size, two.ranks) == (-1, [])
    words = from_host(columns([9, 94594108284448, 1, "allreduce", [], [], 0, "word", 2, 4]), columns([]), {})
    assert words.ranks == range(0, 8, 2)
    given = [(147, False), ("5", "a mesh's rows"), 1, "allreduce", [], [], 0, 1, WORLD, True]
    recorded = from_host(columns(given), columns([]), {})
    assert (recorded.group, recorded.description, recorded.sequence) == ("5", "a mesh's rows", 147)
    assert (recorded.group_rank, recorded.group_size, recorded.ranks) == (1, WORLD, range(4))
    recorded = from_host(columns([9, 94594108284448, 1, "all_to_allv", [1, 2]]), columns([]), {})
    assert (recorded.in_split, recorded.out_split) == ([1, 2], [])


# groups


def test_a_shortened_list_of_ranks_counts_for_nothing() -> None:
    args = {"Collective name": "allreduce", "Process Group Ranks": "[0, 2, ..., 126]", "Group size": 64}
    assert from_device(msgspec.convert(args, Args)).ranks == []
    regular = args | {"Global rank start": 0, "Global rank stride": 2}
    assert from_device(msgspec.convert(regular, Args)).ranks == range(0, 128, 2)


@pytest.mark.parametrize(("name", "side"), [("send", "target"), ("recv", "source"), ("reduce", "target")])
def test_rank_0_is_a_peer_like_any_other(name: str, side: str) -> None:
    told = Communication(name=name, ranks=[0, 1, 2], group_rank=2, **{side: 0})
    assert getattr(ProcessGroups([], 8).with_members([told])[0], side) == 0
    by_group_rank = Communication(name=name, ranks=[0, 1, 2], group_rank=0)
    assert getattr(ProcessGroups([], 8).with_members([by_group_rank])[0], side) == 0


DESCRIBED = [{"pg_name": "3", "pg_desc": "pairs", "ranks": [2, 5], "group_size": 2}, {"pg_name": "4", "pg_size": 3}]


@pytest.mark.parametrize("write", [json.dumps, repr], ids=["JSON", "2.1"])
def test_groups_are_those_that_the_host_trace_describes(tmp_path: Path, write: Callable[[Any], str]) -> None:
    t = TraceBuilder(torch="2.3")
    t.leaf("aten::mm", 5, inputs=['[{"pg_name": "no group"}]'])
    host = t.host_trace()
    init = json.loads(json.dumps(host["nodes"][1]))
    init |= {"name": "## process_group:init ##", "id": 999}
    init["inputs"] = {"values": [write(DESCRIBED), 5], "shapes": [[], []], "types": ["String", "Int"]}
    (tmp_path / "host.json").write_text(json.dumps({**host, "nodes": [*host["nodes"], init]}))
    (tmp_path / "device.json").write_text(json.dumps(t.device_trace()))
    host, device = read_host_trace(str(tmp_path / "host.json")), read_device_trace(str(tmp_path / "device.json"))
    groups = ProcessGroups.of([*groups_of_host(host.name, host.arguments)[0], *device.groups], WORLD).groups
    found = [(group.name, group.description, group.ranks, group.size) for group in groups]
    assert found == [("3", "pairs", [2, 5], 2), ("4", "", [0, 1, 2], 3)]


def test_the_tensors_of_an_annotation_are_told_by_their_shapes() -> None:
    def told(dims: Any, types: Any) -> tuple[str, int]:
        text = json.dumps({"Input Dims": dims, "Input type": types})
        found = from_device(msgspec.json.decode(text, type=Args))
        return found.dtype, found.in_elements

    assert told([[4, 6]], ["float"]) == ("float", 24)
    assert told([[], [16]], ["", "c10::Half"]) == ("c10::Half", 16)
    assert told([[[4, 6], [2]], []], ["TensorList", "Scalar"]) == ("", 26)
    assert told([[0]], ["int"]) == ("int", 0)
    assert told([[]], ["double"]) == ("double", 1)
    assert told([[], []], ["TensorList", "Scalar"]) == ("", -1)


WORLD_SIZE = 8
PAIR, FOUR = ProcessGroup("g", "", [2, 5]), ProcessGroup("g", "", [1, 3, 5, 7])


def ranks_of(found: Communication, *groups: ProcessGroup, world: int = WORLD_SIZE) -> list[int]:
    return ProcessGroups(groups, world).with_members([found])[0].ranks


def ends_of(group_rank: int, name: str = "send", source: int = -1, target: int = -1) -> tuple[int, int]:
    """Source and target of a message or collective of the ranks 4, 6 and 9."""
    given = Communication(name, ranks=[4, 6, 9], group_rank=group_rank, source=source, target=target)
    (found,) = ProcessGroups([], WORLD_SIZE).with_members([given])
    return found.source, found.target


def test_a_group_is_the_described_one_of_its_name_and_size_unless_its_ranks_are_recorded() -> None:
    assert ranks_of(Communication(group="g", ranks=[1, 2]), PAIR) == [1, 2]
    assert ranks_of(Communication(group="g"), PAIR) == [2, 5]
    assert ranks_of(Communication(group="g", group_size=4), PAIR, FOUR) == [1, 3, 5, 7]
    assert ranks_of(Communication(group="g", in_split=[1, 1]), PAIR, FOUR) == [2, 5]
    assert ranks_of(Communication(group="g", out_split=[1, 1]), PAIR, FOUR) == [2, 5]
    assert ranks_of(Communication(group="g"), PAIR, FOUR) == []
    assert ranks_of(Communication(group="g"), PAIR, PAIR) == [2, 5]
    assert ranks_of(Communication(group="g", group_size=2), PAIR, ProcessGroup("g", "", [6, 7])) == []
    assert ranks_of(Communication(group="g", group_size=1), ProcessGroup("g", "", [3]), PAIR) == [3]
    assert ranks_of(Communication(group="g", in_split=[5]), ProcessGroup("g", "", [3]), PAIR) == [3]
    assert ranks_of(Communication(group="g", group_size=3), PAIR) == [2, 5]
    assert ranks_of(Communication(group="g"), ProcessGroup("g"), world=3) == [0, 1, 2]


@pytest.mark.parametrize("found", [Communication(group_size=WORLD_SIZE), Communication(in_split=[1] * WORLD_SIZE)])
def test_a_group_of_the_worlds_size_is_the_world(found: Communication) -> None:
    other = ProcessGroup("other", "", [0, 1])
    assert ranks_of(found, other) == list(range(WORLD_SIZE))
    assert ranks_of(Communication(group_size=WORLD_SIZE - 1), other) == []
    assert ranks_of(Communication(), other) == []


def test_the_only_group_of_a_trace_that_describes_none_is_the_world() -> None:
    one, wait = Communication("allreduce", group="g"), Communication("wait", group="")
    assert [found.ranks for found in ProcessGroups([], 2).with_members([one, one, wait])] == [[0, 1]] * 3
    two = [one, Communication("allreduce", group="h"), wait]
    assert [found.ranks for found in ProcessGroups([], 2).with_members(two)] == [[]] * 3
    assert [found.ranks for found in ProcessGroups([ProcessGroup("x", "", [0])], 2).with_members([one])] == [[]]


def test_a_place_is_that_of_the_peer_or_of_the_root_where_none_is_recorded() -> None:
    receivers = "recv irecv recv_any_source broadcast _broadcast_oop scatter"
    neither = "reduce_scatter _reduce_scatter_base allreduce allgather"
    for names, expected in ("send isend reduce gather", (-1, 6)), (receivers, (6, -1)), (neither, (-1, -1)):
        assert {name: ends_of(1, name) for name in names.split()} == dict.fromkeys(names.split(), expected)
    assert [ends_of(group_rank) for group_rank in (-1, 0, 2, 3, 4)] == [(-1, -1), (-1, 4), (-1, 9), (-1, -1), (-1, -1)]
    assert ends_of(1, "send", target=0) == (-1, 0)
    assert ends_of(1, "send", target=6) == (-1, 6)
    assert ends_of(1, "recv", source=0) == (0, -1)


def test_what_is_coalesced_has_the_members_of_the_whole() -> None:
    parts = [Communication("send", group_rank=1), Communication("recv", group_rank=0, ranks=[7, 6])]
    (found,) = ProcessGroups([], WORLD_SIZE).with_members([Communication("coalesced", ranks=[4, 6], coalesced=parts)])
    assert [(part.ranks, part.source, part.target) for part in found.coalesced] == [([4, 6], -1, 6), ([7, 6], 7, -1)]


# Groups that claim many members


def claiming(size: int) -> Communication:
    return Communication("broadcast", group="g", ranks=range(size), group_rank=size - 1)


def test_communications_have_no_more_members_in_all_than_so_many_tell_of_and_equal_groups_share_their_list() -> None:
    groups, most = ProcessGroups([], -1), LARGEST_JOB + 3 * MEMBERS_EACH
    found = groups.with_members([claiming(most - 5), claiming(6), claiming(5)])
    assert ([len(one.ranks) for one in found], groups.unlisted) == ([most - 5, 0, 5], 1)
    assert found[1].source == 5
    groups = ProcessGroups([ProcessGroup("g", "", list(range(LARGEST_JOB)))], -1)
    found = groups.with_members([Communication(group="g")] * 2)
    assert ([len(one.ranks) for one in found], groups.unlisted) == ([LARGEST_JOB, 0], 1)
    first, second = ProcessGroups([], -1).with_members([claiming(4), claiming(4)])
    assert first.ranks is second.ranks and first.ranks == [0, 1, 2, 3]


def test_described_groups_without_ranks_have_the_first_ones_but_no_more_in_all_than_a_job() -> None:
    told = [{"pg_name": str(number), "pg_size": LARGEST_JOB // 2} for number in range(4)]
    found = ProcessGroups.of([*told, *told[:1], {"pg_name": "x", "ranks": [0, 3]}], -1)
    sizes = [(group.name, len(group.ranks)) for group in found.groups]
    assert (sizes, found.unlisted) == ([("0", LARGEST_JOB // 2), ("1", LARGEST_JOB // 2), ("x", 2)], 2)
    found = ProcessGroups.of([{"pg_name": "x", "pg_size": 3}, {"pg_name": "y", "ranks": []}], -1)
    assert [(group.ranks, group.size) for group in found.groups] == [([0, 1, 2], 3), ([], -1)]
    assert found.unlisted == 0
    found = ProcessGroups.of([{"pg_name": "x", "pg_size": LARGEST_JOB + 1}], -1)
    assert ([group.ranks for group in found.groups], found.unlisted) == ([[]], 1)
    for size, unlisted in ((LARGEST_JOB + 1, 2), (LARGEST_JOB, 2)):
        [communication] = found.with_members([Communication(group="x", group_size=size)])
        assert (communication.ranks, found.unlisted) == ([], unlisted)


def test_ranks_in_any_order_fit_32_bits_and_are_all_different() -> None:
    def recorded(ranks: Any) -> list[int]:
        return from_device(msgspec.convert({"Collective name": "allreduce", "Process Group Ranks": ranks}, Args)).ranks

    assert members([5, 0, (1 << 31) - 1]) == recorded([5, 0, (1 << 31) - 1]) == [5, 0, (1 << 31) - 1]
    assert recorded([3, 0, 6]) == recorded("[3, 0, 6]") == [3, 0, 6]
    assert members([5, 1 << 31]) == recorded([0, 1 << 31]) == members([5, -1]) == members([5, 5]) == members([]) == []
