"""Names of process groups by which a simulator finds the groups of a graph's collectives."""

from collections.abc import Mapping

import numpy as np

from ...schema.columns import Categorical, Int32, Int64
from ...schema.comm_groups import RankList, number_groups
from ...schema.errors import DataError
from ...schema.graph import ExecutionGraph, NodeType
from ..ranks import Groups

ALL_RANKS = ""


def name_groups(
    graph: ExecutionGraph, groups: Groups, numbers: Mapping[RankList, int] | None, world: RankList | None
) -> dict[RankList, int]:
    """Sets `pg_name` of collectives to the number of their group, "" for the whole world or an unknown group; returns
    the numbers.

    Collectives of groups with one member, or with a missing member, get no name. `pg_recorded` keeps the recorded name.
    Without `numbers` the graph's own groups are numbered. Raises DataError for a group that `numbers` lacks.
    """
    collective, messages = (
        graph.type == NodeType.COMM_COLL,
        np.isin(graph.type, (NodeType.COMM_SEND, NodeType.COMM_RECV)),
    )
    used = [groups.lists[number] for number in np.unique(groups.of_node[collective]).tolist() if number >= 0]
    named = dict.fromkeys(ranks for ranks in used if ranks != world and ranks in number_groups([ranks]))
    numbers = number_groups(named) if numbers is None else numbers
    if lacking := [ranks for ranks in named if ranks not in numbers]:
        raise DataError(f"the communicator groups given lack the ranks {list(lacking[0])}; add that group to the file")
    if "pg_recorded" not in graph.attributes:
        graph.attributes["pg_recorded"] = graph.texts("pg_name")
    names = [*(str(numbers[ranks]) if ranks in named else ALL_RANKS for ranks in groups.lists), ALL_RANKS]
    has_number = np.array([*(ranks in named or ranks == world for ranks in groups.lists), True])[groups.of_node]
    which = np.where(collective, groups.of_node, -1)
    graph.attributes["pg_name"] = _names_of_nodes(names, which, (collective & has_number) | messages)
    return {ranks: numbers[ranks] for ranks in named}


def _names_of_nodes(
    names: list[str], which: Int64, present: "np.ndarray[tuple[int], np.dtype[np.bool_]]"
) -> Categorical:
    group_names = Categorical.of(names)
    codes: Int32 = np.where(present, group_names.codes[which], -1).astype(np.int32)
    return Categorical(codes, group_names.table)
