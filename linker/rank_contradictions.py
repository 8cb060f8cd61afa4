"""Finds ranks that cannot be right: beyond the world, outside the process's groups, or different in the two traces.

Only groups whose ranks are listed one by one count: a first rank, a stride and a size describe irregular groups
wrongly.
"""

import re
from collections import Counter, defaultdict
from itertools import chain

import numpy as np

from ..schema.linked import name_of
from .communication import RECORD, from_host, groups_of_host, members
from .contradiction import Contradiction
from .readers import DeviceTrace, HostTrace, Role

RECORDS_OWN_RANK = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")
"""Collectives that record the group rank of the process itself; others record that of a root or peer."""
TENSOR_DEVICE = re.compile(rb'"cuda:(\d+)"')
CUDA_CALL = re.compile(r"^cu(da)?[A-Z]")
RANKS_SHOWN = 8
NODES_SEARCHED = 1 << 12
"""Nodes of a host trace that are searched for the process's device; mostly it has only one."""


def rank_beyond_world(device: DeviceTrace) -> Contradiction | None:
    """Checks whether the recorded rank is beyond the world size."""
    if device.rank is None or device.world_size is None or device.rank < device.world_size:
        return None
    what = (
        f"is of rank {device.rank} in a job of {device.world_size} ranks, the last of which is {device.world_size - 1}"
    )
    meaning = "the graph is of a rank that no collective of the job waits for"
    return Contradiction(
        device.path, what, meaning, "correct distributedInfo, or record with RANK and WORLD_SIZE of one job"
    )


def groups_without_rank(host: HostTrace | None, device: DeviceTrace) -> Contradiction | None:
    """Checks whether the process communicates in groups that it is not a member of."""
    if device.rank is None:
        return None
    uses = _groups_used(device)
    members_of: dict[str, set[int]] = defaultdict(set)
    for name, ranks in chain(_described(host, device), uses):
        members_of[name].update(ranks)
    names = Counter[str]()
    for (name, _), count in uses.items():
        names[name] += count
    foreign = sorted(name for name in names if members_of[name] and device.rank not in members_of[name])
    if not foreign:
        return None
    first = foreign[0]
    ranks_in_words = ", ".join(map(str, sorted(members_of[first])[:RANKS_SHOWN]))
    what = (
        f"rank {device.rank} communicates in {len(foreign)} of {len(names)} process groups that it is not in (the "
        f"first: group {first!r} of ranks {ranks_in_words}, {names[first]} times)"
    )
    meaning = "other ranks' collectives cannot be recognised as the same ones"
    return Contradiction(
        device.path, what, meaning, "correct distributedInfo or the groups' ranks, if it is not another rank's trace"
    )


def _described(host: HostTrace | None, device: DeviceTrace) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the groups that either trace describes, with their listed ranks."""
    described = [*device.groups, *(groups_of_host(host.name, host.inputs) if host is not None else ())]
    groups = ((name_of(entry.get("pg_name", "")), tuple(members(entry.get("ranks")))) for entry in described)
    return [(name, ranks) for name, ranks in groups if ranks]


def _groups_used(device: DeviceTrace) -> Counter[tuple[str, tuple[int, ...]]]:
    """Returns how often the process communicates in each group; the ranks are () where they are not listed.

    Most collectives are recorded twice, with their op and with their activity.
    """
    of_activities, of_ops = (
        Counter(
            (name_of(args.group_name), str(args.group_ranks))
            for args in device.communication[role].values()
            if args.group_name is not None
        )
        for role in (Role.ACTIVITY, Role.OP)
    )
    used = Counter[tuple[str, tuple[int, ...]]]()
    for (name, ranks), count in (of_activities | of_ops).items():
        used[name, tuple(members(ranks))] += count
    return used


def other_rank(host: HostTrace, device: DeviceTrace) -> Contradiction | None:
    """Checks whether the host trace, by its collectives or tensors, is of another rank than the device trace.

    Traces of different processes are not checked: they were refused before, or allowed by the user.
    """
    if host.pid is not None and device.processes and host.pid not in device.processes:
        return None
    rank, devices = _rank_of_host(host, device), _devices_of_host(host)
    advice = "pair each host trace with the device trace of its own rank"
    meaning = "ops of one rank are joined to the times of another"
    if rank is not None and device.rank is not None and rank != device.rank:
        what = f"is of rank {rank} by its collectives, {device.path} of rank {device.rank}"
        return Contradiction(host.path, what, meaning, advice)
    ran_on = set(np.unique(device.activities.device).tolist())
    is_cuda = any(CUDA_CALL.search(name) for name in device.calls.name.table)
    if not devices or not ran_on or not is_cuda or devices & ran_on:
        return None
    of_host, of_device = (", ".join(map(str, sorted(numbers))) for numbers in (devices, ran_on))
    what = f"its tensors are on device {of_host}, while all that {device.path} holds ran on device {of_device}"
    return Contradiction(host.path, what, meaning, advice)


def _rank_of_host(host: HostTrace, device: DeviceTrace) -> int | None:
    """Returns the rank of a host trace, None if unknown.

    It is known from a collective that records the process's own group rank, in a group whose ranks are listed.
    """
    members_of = dict(_described(host, device))
    for row in np.flatnonzero(host.name.equal(RECORD)).tolist():
        args = from_host(host.inputs[row], host.outputs[row], host.extra.get(row, {}))
        if args.group_rank < 0 or not RECORDS_OWN_RANK.search(args.name.lower()):
            continue
        if args.group_size == device.world_size and args.group_rank < args.group_size:
            return args.group_rank
        ranks = members_of.get(args.group, ())
        if len(ranks) == args.group_size and args.group_rank < len(ranks):
            return ranks[args.group_rank]
    return None


def _devices_of_host(host: HostTrace) -> set[int]:
    """Returns the numbers of the devices that the tensors of the first nodes are on."""
    arguments = chain(host.inputs[:NODES_SEARCHED], host.outputs[:NODES_SEARCHED])
    return {int(number) for text in arguments for number in TENSOR_DEVICE.findall(text)}
