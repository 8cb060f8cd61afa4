"""Reads the recorded arguments of one communication from either trace, of any version of PyTorch, and process groups.
Peers and roots are recorded by their rank in the group (positional arguments, "Rank") or by their global rank ("Src
Rank", "Dst Rank"). Every process numbers its own groups, so a group is known by its ranks.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import Any

import msgspec
import numpy as np

from ...schema import linked
from ...schema.columns import Categorical
from ...schema.comm_groups import INT32_MAX, LARGEST_JOB, MEMBERS_EACH
from ...schema.linked import Arguments, Communication, ProcessGroup, RecordedArguments, integer, kineto

WAIT = "wait"
FROM_ROOT, TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")


def from_device(args: kineto.Args) -> Communication:
    """Returns the named arguments on a row of the device trace, or else what follows from the recorded shapes."""
    if args.collective is None and args.group_name is None:
        return from_shapes(args)
    size = integer(args.group_size, -1)
    return Communication(
        name=str(args.collective or ""), dtype=str(args.dtype or ""), in_elements=integer(args.in_elements, -1),
        out_elements=integer(args.out_elements, -1), in_split=integers(args.in_split),
        out_split=integers(args.out_split), group=str(args.group_name if args.group_name is not None else ""),
        description=str(args.group_description or ""), group_size=size,
        ranks=members(args.group_ranks) or regular_ranks(integer(args.first_rank, -1), integer(args.rank_stride, -1), size),
        sequence=integer(args.comm_sequence, -1), group_rank=_rank(args.group_rank), source=_rank(args.source_rank),
        target=_rank(args.target_rank),
    )  # fmt: skip


def from_shapes(args: kineto.Args) -> Communication:
    """Returns the first tensors among an op's arguments: they are the rank's input."""
    recorded = args.arguments
    for shape, kind in zip(recorded.shapes, recorded.types, strict=False):
        if kind == "TensorList" and shape:
            return Communication(in_elements=integer(sum(map(_product, shape)), -1))
        if kind and kind not in ("TensorList", "Scalar", "ScalarList"):
            return Communication(dtype=str(kind), in_elements=_product(shape))
    return Communication()


def _product(shape: Any) -> int:
    return integer(math.prod(integer(size, 0) for size in shape) if isinstance(shape, list) else 1, -1)


def _positional(values: list[Any], types: list[str]) -> Communication:
    """Returns the positional arguments of `record_param_comms` except tensors: sequence, group and group rank, which
    are numbers up to PyTorch 2.3 (later the first one, and then the first two, are tuples), name, two lists of splits,
    from 2.3 on first rank and stride, and size.
    """
    scalars = [(value, kind) for value, kind in zip(values, types, strict=False) if "Tensor(" not in kind]
    name_at = next((at for at, (_, kind) in enumerate(scalars) if kind == "String"), len(scalars))
    before = [integer(value, -1) for value, kind in scalars[:name_at] if kind == "Int"]
    after = [integer(value, -1) for value, kind in scalars[name_at:] if kind == "Int"]
    tuples = [(value if isinstance(value, list) else [], kind) for value, kind in scalars if kind.startswith("Tuple[")]
    sequence = next((value for value, kind in tuples if kind.startswith("Tuple[Int")), before)
    group = next((value for value, kind in tuples if kind.startswith("Tuple[String")), None)
    name, description = [*map(str, before[1:2] if group is None else group), "", ""][:2]
    splits = [integers(value) for value, kind in scalars[name_at:] if kind.startswith("GenericList")]
    first, stride, size = after[:3] if len(after) > 2 else (-1, -1, after[0] if len(after) == 1 else -1)
    return Communication(
        sequence=integer(next(iter(sequence), None), -1), group=name, description=description,
        group_rank=_rank(before[-1] if before else -1), name=str(scalars[name_at][0]) if name_at < len(scalars) else "",
        in_split=splits[0] if splits else [], out_split=splits[1] if len(splits) > 1 else [],
        ranks=regular_ranks(first, stride, size), group_size=size,
    )  # fmt: skip


def of_lists(inputs: RecordedArguments, outputs: RecordedArguments) -> Communication:
    """Returns what the tensors of an op say: the first dtype, and the elements of all of them."""
    return Communication("", inputs.dtype, inputs.elements, outputs.elements)


def from_host(inputs: RecordedArguments, outputs: RecordedArguments, attributes: dict[str, Any]) -> Communication:
    """Returns the arguments of a `record_param_comms` host node: its attributes, else its positional inputs."""
    positional = _positional(inputs.values, [str(kind) for kind in inputs.types])
    size = integer(attributes.get("pg_size"), positional.group_size)
    first, stride = (integer(attributes.get(f"global_rank_{what}"), -1) for what in ("start", "stride"))
    return msgspec.structs.replace(
        positional, name=str(attributes.get("collective_name", positional.name)),
        dtype=str(attributes.get("dtype", "") or inputs.dtype or outputs.dtype),
        in_elements=integer(attributes.get("in_msg_nelems"), inputs.elements),
        out_elements=integer(attributes.get("out_msg_nelems"), outputs.elements),
        in_split=integers(attributes.get("in_split_size", positional.in_split)),
        out_split=integers(attributes.get("out_split_size", positional.out_split)),
        group=str(attributes.get("pg_name", positional.group)),
        description=str(attributes.get("pg_desc", positional.description)), group_size=size,
        ranks=regular_ranks(first, stride, size) or positional.ranks,
    )  # fmt: skip


def merge(first: Communication, second: Communication) -> Communication:
    """Returns the fields of `first`, those that it lacks from `second`."""
    fields = zip(*map(msgspec.structs.astuple, (first, second, Communication())), strict=True)
    return Communication(*(value if value != empty else other for value, other, empty in fields))


def integers(value: Any) -> list[int]:
    """Returns a recorded list of integers, empty where it is unknown."""
    return linked.integer_list(value) or []


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


def groups_of_host(names: Categorical, arguments: Arguments) -> tuple[list[dict[str, Any]], int]:
    """Returns the process groups in host ops with these names and arguments, and how many cannot be read."""
    groups, unreadable = list[dict[str, Any]](), 0
    nodes = np.flatnonzero(names.where(lambda name: linked.GROUP_INIT in name))
    for node in nodes[np.argsort(names.codes[nodes], kind="stable")].tolist():
        inputs = arguments.inputs(node)
        for entries in compress(inputs.literals, [isinstance(value, str) for value in inputs.values]):
            readable = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
            unreadable += not isinstance(entries, list) or len(readable) < len(entries)
            groups += readable
    return groups, unreadable


@dataclass
class ProcessGroups:
    """The process groups of a trace, and of how many groups and communications the ranks are `unlisted`: too many."""

    groups: list[ProcessGroup]
    world_size: int
    unlisted: int = 0

    @staticmethod
    def of(described: Iterable[dict[str, Any]], world_size: int) -> "ProcessGroups":
        """Returns the groups of both traces, each name and list of ranks once; ranks not listed are 0 to size - 1."""
        groups: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
        budget, seen, unlisted = LARGEST_JOB, set[tuple[str, range]](), 0
        for entry in described:
            size = integer(entry.get("group_size", entry.get("pg_size")), -1)
            name = linked.name_of(entry.get("pg_name", ""))
            ranks = members(entry.get("ranks")) or regular_ranks(0, 1, size)
            if isinstance(ranks, range):
                if (name, ranks) in seen:
                    continue
                seen.add((name, ranks))
                if len(ranks) > budget:
                    unlisted += 1
                    continue
                budget -= len(ranks)
            unlisted += not ranks and size > LARGEST_JOB
            group = ProcessGroup(name, linked.name_of(entry.get("pg_desc", "")), list(ranks), size)
            groups.setdefault((name, tuple(ranks)), group)
        return ProcessGroups([*groups.values()], world_size, unlisted)

    def with_members(self, communications: Sequence[Communication]) -> list[Communication]:
        """Returns them with the global ranks of groups, peers and roots, from the arguments or the only such group."""
        world, described = regular_ranks(0, 1, self.world_size), defaultdict[str, list[ProcessGroup]](list)
        for group in self.groups:
            described[group.name].append(group)
        is_only = not self.groups and len({each.group for each in communications if each.name != WAIT}) == 1

        @cache
        def described_ranks(name: str, sizes: frozenset[int]) -> Sequence[int]:
            of_name = described.get(name, [])
            of_size = [group for group in of_name if not sizes or len(group.ranks) in sizes] or of_name
            if of_size:
                rank_lists = {tuple(group.ranks or world) for group in of_size}
                return rank_lists.pop() if len(rank_lists) == 1 else []
            return world if self.world_size in sizes or is_only else []

        # all that have the same ranks share their list
        budget, shared_list = LARGEST_JOB + MEMBERS_EACH * len(communications), cache(list[int])

        def with_list(each: Communication) -> Communication:
            nonlocal budget
            ranks = each.ranks
            if len(ranks) > budget:
                self.unlisted, ranks = self.unlisted + 1, []
            budget -= len(ranks)
            key = ranks if isinstance(ranks, range) else tuple(ranks)
            return msgspec.structs.replace(each, ranks=shared_list(key))

        def complete(each: Communication) -> Communication:
            sizes = frozenset({each.group_size, len(each.in_split), len(each.out_split)} - {-1, 0})
            ranks = each.ranks or described_ranks(each.group, sizes)
            self.unlisted += not ranks and each.group_size > LARGEST_JOB
            parts = [msgspec.structs.replace(part, ranks=part.ranks or ranks) for part in each.coalesced]
            parts = [with_list(_with_peer(part)) for part in parts]
            return with_list(_with_peer(msgspec.structs.replace(each, ranks=ranks, coalesced=parts)))

        return [*map(complete, communications)]


def _with_peer(each: Communication) -> Communication:
    """Returns the communication with the global rank of its peer or root, which is recorded as a rank in the group."""
    if not 0 <= each.group_rank < len(each.ranks):
        return each
    name, rank = each.name.lower().replace("_", ""), each.ranks[each.group_rank]
    if each.source < 0 and name.startswith(("recv", "irecv", *FROM_ROOT)):
        return msgspec.structs.replace(each, source=rank)
    to_root = name.startswith(TO_ROOT) and not name.startswith("reducescatter")
    if each.target < 0 and (name.startswith(("send", "isend")) or to_root):
        return msgspec.structs.replace(each, target=rank)
    return each
