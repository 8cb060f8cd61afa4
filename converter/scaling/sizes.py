"""How many bytes a rank puts into a collective when its group grows: as many as before, or its shard of the whole."""

import numpy as np

from ...schema.choices import ASTRA_SIM
from ...schema.columns import Int64, rows_by_number
from ..targets import LEAST_BYTES
from .group_roles import GroupRole
from .group_use import GATHERING
from .rank_facts import RankFacts


def shard(size: int, role: GroupRole, kind: int, members: int) -> int:
    """Returns the bytes that a member puts in when there are so many members.

    If the group scatters what it reduces, it gathers shards of a whole that stays, so these shrink, rounded up.
    """
    if kind not in GATHERING or not role.use.scatters:
        return size
    return -(-size * len(role.use.members) // members)


def sizes(rank: RankFacts, group: Int64, roles: list[GroupRole], new_members: list[int]) -> tuple[Int64, int]:
    """Returns the new size of each call, and how many calls gather data that may not be shards, which
    keep their size.
    """
    size, undivided = rank.calls.size.copy(), 0
    # an all-gather of nothing, or of fewer bytes than its data set is split into, never ends in ASTRA-sim
    least = LEAST_BYTES if rank.target == ASTRA_SIM else 1
    gathering = np.flatnonzero((group >= 0) & np.isin(rank.calls.kind, GATHERING))
    for number, rows in rows_by_number(gathering, group).items():
        role = roles[number]
        if new_members[number] == len(role.use.members):
            continue
        if not role.use.scatters:
            undivided += len(rows)
        for row in rows.tolist():
            before = int(size[row])
            size[row] = max(shard(before, role, int(rank.calls.kind[row]), new_members[number]), min(before, least))
    return size, undivided
