"""Finds the data-parallel process groups of a job, which its copies join.

Groups are named by the user, or recognised by their description, or by their use: members run the same kernels, and all
reductions are of gradients, that is in the backward pass, except ones smaller than any of these, such as of a loss. The
group of all ranks grows if it carries only what is the same for any number of ranks.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from ...schema.errors import DataError, RequestError
from ...schema.graph import CollectiveType
from ..ranks import Group, ranks_text
from .group_use import GATHERING, REDUCING, GroupUse

DATA_WORDS = {"dp", "ddp", "fsdp", "hsdp", "edp", "replicate"}
OTHER_WORDS = {
    "tp", "pp", "ep", "cp", "sp", "tensor", "model", "pipeline", "expert", "experts", "context", "sequence",
    "embedding", "position",
}  # fmt: skip
"""Words in descriptions by Megatron, DeepSpeed, torch's device meshes and users."""
WHOLE = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.BARRIER)
"""Collectives in which every member has the whole data, however many members there are."""
GROWING = (*WHOLE, *REDUCING, *GATHERING, CollectiveType.SCATTER)
DEFAULT = "default_pg"
OPTION = "--data-parallel-group"
NAMED, DESCRIBED, GRADIENTS, OF_ALL = "named", "by its description", "by the gradients that it reduces", "of all ranks"


class GroupRole(NamedTuple):
    """The use of a group, and the reason for which copies join it; empty if they do not."""

    use: GroupUse
    joined: str = ""


def roles_of(uses: Sequence[GroupUse], ranks: int, named: Sequence[str] = ()) -> list[GroupRole]:
    """Returns the role of each group. Raises DataError if no group is found, or if those found contradict each other or
    omit a rank.
    """
    reasons = [_named(use, named) if named else _recognised(use) for use in uses]
    if lacking := [name for name in named if not any(name in _names(use.group) for use in uses)]:
        raise RequestError(
            f"{OPTION} {lacking[0]}: no group has that name, description or ranks; there {_listing(uses)}"
        )
    if not any(reasons):
        raise DataError(
            "no data-parallel group is recognised: none is described as one, and none has members that run the same "
            f"kernels and reduces in the backward pass alone; name it with {OPTION}: there {_listing(uses)}"
        )
    reasons = [reason or _of_all(use, ranks) for reason, use in zip(reasons, uses, strict=True)]
    roles = [GroupRole(use, reason) for use, reason in zip(uses, reasons, strict=True)]
    _check([role.use for role in roles if role.joined], ranks)
    return roles


def _listing(uses: Sequence[GroupUse]) -> str:
    return ("are " + "; ".join(use.text for use in uses)) if uses else "is no collective at all"


def _names(group: Group) -> set[str]:
    return {group.name, group.description, group.ranks} - {""}


def _named(use: GroupUse, named: Sequence[str]) -> str:
    return "" if _names(use.group).isdisjoint(named) else NAMED


def _recognised(use: GroupUse) -> str:
    described = re.sub(r"[^a-z0-9]+", "_", use.group.description.lower())
    words = set(described.split("_"))
    if "data_parallel" in described or words & DATA_WORDS:
        return DESCRIBED
    if words & OTHER_WORDS:
        return ""
    return GRADIENTS if _reduces_gradients(use) else ""


def _reduces_gradients(use: GroupUse) -> bool:
    return use.same_work and use.kinds <= {*GROWING} and use.least_inside > use.most_beside


def _of_all(use: GroupUse, ranks: int) -> str:
    is_default = use.group.description in ("", DEFAULT) and len(use.members) == ranks
    return OF_ALL if is_default and use.kinds <= {*WHOLE} else ""


def _check(joined: Sequence[GroupUse], ranks: int) -> None:
    """Raises DataError unless every rank is in a joined group, these are nested, and their collectives work for any
    number of ranks.
    """
    for use in joined:
        if wrong := use.kinds - {*GROWING}:
            kind = CollectiveType(min(wrong)).name.lower() if min(wrong) >= 0 else "a collective of unknown type"
            raise DataError(
                f"{use.group.text} carries {kind}, whose parts depend on how many members there are: with more of "
                "them it is another program; expert and tensor parallel groups keep their size"
            )
    groups_of_rank = defaultdict[int, list[GroupUse]](list)
    for use in joined:
        for rank in use.members:
            groups_of_rank[rank].append(use)
    for first_use, second_use in dict.fromkeys(
        pair for uses in groups_of_rank.values() for pair in combinations(uses, 2)
    ):
        first, second = set(first_use.members), set(second_use.members)
        if not (first <= second or second <= first):
            raise DataError(
                f"{first_use.group.text} and {second_use.group.text} are two dimensions of data parallelism, of "
                f"which one can grow; name it with {OPTION}"
            )
    if without_group := sorted(set(range(ranks)) - set(groups_of_rank)):
        raise DataError(
            f"ranks {ranks_text(without_group)} are in no data-parallel group, so that their copies would have "
            f"nothing to do with each other; name their group with {OPTION}"
        )
