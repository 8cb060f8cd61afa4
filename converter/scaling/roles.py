"""Finds the data-parallel process groups of a job, which its copies join: named by the user, or recognised by use. Such
a group reduces gradients of parameters as each is complete, and nothing in the backward of functions; or it is the only
one, of all ranks, which run the same kernels and only all-reduce, in the backward pass. Others may be tensor parallel.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ...schema.columns import Int64, rows_by_number
from ...schema.comm_groups import LARGEST_JOB, RankList
from ...schema.errors import DataError, Remedy, RequestError
from ...schema.graph import CollectiveType
from ..ranks import Group, given_ranks, ranks_of, ranks_text
from .facts import Phase, RankFacts, StepCalls

SCATTERING = (CollectiveType.REDUCE_SCATTER, CollectiveType.REDUCE_SCATTER_BLOCK)
REDUCING = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, *SCATTERING)
GATHERING = (CollectiveType.ALL_GATHER, CollectiveType.GATHER)
DATA_WORDS = {"dp", "ddp", "fsdp", "hsdp", "edp", "replicate"}
OTHER_WORDS = {
    "tp", "pp", "ep", "cp", "sp", "tensor", "model", "pipeline", "expert", "experts", "context", "sequence",
    "embedding", "position",
}  # fmt: skip
"""Words in descriptions by Megatron, DeepSpeed, torch's device meshes and users."""
WHOLE = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE, CollectiveType.BROADCAST, CollectiveType.BARRIER)
"""Collectives in which every member has the whole data, however many members there are."""
GROWING = (*WHOLE, *REDUCING, *GATHERING, CollectiveType.SCATTER)
FEW_BYTES = 64
"""So few are a loss, a norm or a flag, and no activations."""
DEFAULT = "default_pg"
OPTION = Remedy.DATA_PARALLEL_GROUP
NAMED, DESCRIBED, OF_ALL = "named", "by its description", "of all ranks"
GRADIENTS, BACKWARD = "by the gradients that it reduces", "by its all-reduces, which are all in the backward pass"


@dataclass(frozen=True, eq=False, slots=True)
class GroupUse:
    """A group and the calls of its members, a row each; `joined` is why the copies join it, empty if they do not."""

    group: Group
    members: RankList
    kinds: frozenset[int]
    kind: Int64
    size: Int64
    phase: Int64
    same_work: bool
    has_host: bool
    joined: str = ""

    @property
    def scatters(self) -> bool:
        """Whether it reduces and scatters; what it gathers are then shards of one whole."""
        return not self.kinds.isdisjoint(SCATTERING)

    @property
    def text(self) -> str:
        """The group and its collectives in words."""
        purpose = f", {self.group.description}" if self.group.description else ""
        return f"{self.group.text}{purpose}: {kinds_text(self.kinds) or 'nothing known'}"

    @property
    def words(self) -> list[str]:
        """The words of its description."""
        return re.split(r"[^a-z0-9]+", self.group.description.lower())

    def reduced(self, *phases: Phase) -> Int64:
        """Returns the sizes of what it reduces in these phases."""
        return self.size[np.isin(self.kind, REDUCING) & np.isin(self.phase, phases)]

    def gathered(self) -> Int64:
        """Returns the sizes of what it gathers other than as shards."""
        return self.size[np.isin(self.kind, GATHERING) & (not self.scatters)]


def kinds_text(kinds: Iterable[int]) -> str:
    """Returns the names of the known types of collectives among these."""
    return ", ".join(sorted(CollectiveType(kind).name.lower() for kind in kinds if kind >= 0))


def group_uses(facts: Sequence[RankFacts], calls: StepCalls) -> list[GroupUse]:
    """Returns the use of each group of the matched calls. O(n log n) in the calls."""
    rows_of, uses = rows_by_number(np.flatnonzero(calls.group >= 0), calls.group), []
    for number, group in enumerate(calls.groups):
        rows = rows_of[number]
        ranks = [facts[position] for position in np.unique(calls.rank[rows]).tolist()]
        same_work, has_host = len({rank.work for rank in ranks}) == 1, all(rank.has_host for rank in ranks)
        kind, columns = calls.kind[rows], (calls.size[rows], calls.phase[rows])
        members = ranks_of(group.ranks)
        uses.append(GroupUse(group, members, frozenset(kind.tolist()), kind, *columns, same_work, has_host))
    return uses


class NamedGroup(NamedTuple):
    """A group by its name, description or ranks, and the types of its collectives that are meant; all if empty.

    >>> NamedGroup.of("0-7=all_reduce,barrier").kinds == {CollectiveType.ALL_REDUCE, CollectiveType.BARRIER}
    True
    >>> NamedGroup.of("a=b").name
    'a=b'
    """

    text: str
    name: str
    kinds: frozenset[int] = frozenset()

    @staticmethod
    def of(text: str) -> "NamedGroup":
        """Returns the group of a text NAME or NAME=TYPE,TYPE; a text whose end is no type is a name."""
        name, _, types = text.rpartition("=")
        number_of = {kind.name.lower(): int(kind) for kind in CollectiveType}
        chosen = [number_of.get(type_, -1) for type_ in types.split(",")]
        return NamedGroup(text, name, frozenset(chosen)) if name and min(chosen) >= 0 else NamedGroup(text, text)

    def names(self, group: Group) -> bool:
        """Returns whether it is this group."""
        if self.name in {group.name, group.description, group.ranks} - {""}:
            return True
        return given_ranks(self.name, LARGEST_JOB) == ranks_of(group.ranks) != ()

    def means(self, group: Group, kinds: frozenset[int]) -> bool:
        """Returns whether it is this group, and collectives of all these types are meant."""
        return self.names(group) and (not self.kinds or kinds <= self.kinds)


def separated(calls: StepCalls, named: Sequence[NamedGroup]) -> StepCalls:
    """Returns the calls in which the other collectives of groups named with types are groups of their own."""
    groups, numbers = list(calls.groups), calls.group
    for number, group in enumerate(calls.groups):
        kinds = [*frozenset[int]().union(*(choice.kinds for choice in named if choice.names(group)))]
        of_group, is_chosen = numbers == number, np.isin(calls.kind, kinds)
        if is_chosen[of_group].any() and not is_chosen[of_group].all():
            numbers = np.where(of_group & ~is_chosen, len(groups), numbers)
            groups.append(group)
    return replace(calls, groups=groups, group=numbers)


def with_roles(uses: Sequence[GroupUse], ranks: int, named: Sequence[NamedGroup], has_messages: bool) -> list[GroupUse]:
    """Returns which groups the copies join, and why; DataError if there are none, or if they contradict each other."""
    for named_group in named:
        if not any(named_group.means(use.group, use.kinds) for use in uses):
            of_types = f" and {kinds_text(named_group.kinds)}" if named_group.kinds else ""
            raise RequestError(
                OPTION,
                f" {named_group.text}: no group has that name, description or ranks{of_types}; there {_listing(uses)}",
            )
    is_alone = not has_messages and len(uses) == 1 and len(uses[0].members) == ranks
    reasons = [_recognised(use, is_alone) for use in uses]
    if named:
        is_named = [any(named_group.means(use.group, use.kinds) for named_group in named) for use in uses]
        reasons = [NAMED if chosen else "" for chosen in is_named]
    if not any(reasons):
        raise DataError(
            "no data-parallel group is recognised; name it with ", OPTION, f": there {_listing(uses, is_alone)}"
        )
    roles = []
    for reason, use in zip(reasons, uses, strict=True):
        is_default = use.group.description in ("", DEFAULT) and len(use.members) == ranks
        roles.append(replace(use, joined=reason or (OF_ALL if is_default and use.kinds <= {*WHOLE} else "")))
    _check([use for use in roles if use.joined], ranks)
    return roles


def _listing(uses: Sequence[GroupUse], is_alone: bool | None = None) -> str:
    """Returns the groups in words, alike ones once; and why none is recognised, if `is_alone` is known."""
    alike = defaultdict[str, list[GroupUse]](list)
    for use in uses:
        # the first of the reasons
        why = "" if is_alone is None else f" ({next(_reasons_against(use, is_alone))})"
        alike[use.text.removeprefix(use.group.text) + why].append(use)
    texts = [
        same[0].group.text + (f" and {len(same) - 1} more" if len(same) > 1 else "") + what
        for what, same in alike.items()
    ]
    return f"are {'; '.join(texts)}" if texts else "is no collective at all"


def _recognised(use: GroupUse, is_alone: bool) -> str:
    if "data_parallel" in "_".join(use.words) or not DATA_WORDS.isdisjoint(use.words):
        return DESCRIBED
    if not OTHER_WORDS.isdisjoint(use.words) or not use.kinds <= {*GROWING}:
        return ""
    # ranks that compute differently and have other groups or messages may be stages that share a few parameters
    if _reduces_gradients(use) and (use.same_work or is_alone):
        return GRADIENTS
    # where parameters' own nodes reduce gradients, functions reduce something else
    if not is_alone or not use.same_work or len(use.reduced(Phase.PARAMETER)) or not use.kinds <= {*WHOLE}:
        return ""
    before, backward = use.size[use.phase == Phase.OTHER], use.kind[use.phase != Phase.OTHER]
    reduces_all = len(backward) > 0 and (backward == CollectiveType.ALL_REDUCE).all()
    return BACKWARD if reduces_all and int(before.max(initial=-1)) <= FEW_BYTES else ""


def _reduces_gradients(use: GroupUse) -> bool:
    gradients = use.reduced(Phase.PARAMETER)
    beside = max(use.reduced(Phase.OTHER).max(initial=-1), use.gathered().max(initial=-1))
    return len(gradients) > 0 and len(use.reduced(Phase.FUNCTION)) == 0 and gradients.min() > beside


def _separable(use: GroupUse) -> str:
    """Returns the option by which copies join the reductions of a group alone, if it has any."""
    if not (reduced := kinds_text(use.kinds & {*REDUCING})):
        return ""
    name = f"{use.group.ranks or use.group.name}={reduced.replace(' ', '')}"
    return f"; {OPTION} {name} lets its {reduced} span all copies, and leaves the rest in each"


def _reasons_against(use: GroupUse, is_alone: bool) -> Iterator[str]:
    gradients, functions = use.reduced(Phase.PARAMETER), use.reduced(Phase.FUNCTION)
    if not OTHER_WORDS.isdisjoint(use.words):
        yield "its description is of another kind of parallelism"
    if wrong := use.kinds - {*GROWING}:
        yield f"it carries {kinds_text(wrong) or 'a collective of unknown type'}{_separable(use) if len(gradients) else ''}"
    if not use.has_host:
        yield "the graphs lack the host, which shows what the backward pass reduces"
    if not len(gradients) and not len(functions) and not len(use.reduced(Phase.THREAD)):
        yield "it reduces nothing in the backward pass"
    if len(gradients) and len(functions):
        yield "beside gradients of parameters it reduces others in the backward pass, as tensor parallelism does"
    if len(gradients) and not _reduces_gradients(use):
        yield "outside the backward pass it exchanges as much as in it"
    if not use.same_work:
        yield "its members run different kernels"
    elsewhere = "this group carries" if is_alone else "other groups or messages carry"
    yield f"what it reduces in the backward pass may be gradients of activations, as {elsewhere} other data, too"


def _check(joined: Sequence[GroupUse], ranks: int) -> None:
    """Raises DataError unless joined groups hold every rank, are nested, and work for any number of ranks."""
    for use in joined:
        if wrong := use.kinds - {*GROWING}:
            kinds = kinds_text(wrong) or "a collective of unknown type"
            raise DataError(
                f"{use.group.text} carries {kinds}, whose parts depend on how many members there are: with more of "
                f"them it is another program; expert and tensor parallel groups keep their size{_separable(use)}"
            )
    groups_of_rank = defaultdict[int, list[GroupUse]](list)
    for use in joined:
        for rank in use.members:
            groups_of_rank[rank].append(use)
    pairs = dict.fromkeys(pair for uses in groups_of_rank.values() for pair in combinations(uses, 2))
    for first_use, second_use in pairs:
        first, second = {*first_use.members}, {*second_use.members}
        if not (first <= second or second <= first):
            raise DataError(
                f"{first_use.group.text} and {second_use.group.text} are two dimensions of data parallelism, of "
                "which one can grow; name it with ",
                OPTION,
            )
    if without_group := sorted(set(range(ranks)) - set(groups_of_rank)):
        raise DataError(
            f"ranks {ranks_text(without_group)} are in no data-parallel group, so that their copies would have "
            "nothing to do with each other; name their group with ",
            OPTION,
        )
