"""Names of lanes as people know them, `main thread`, `device 0 stream 7`, and of kernels without return type,
namespaces and parameters.
"""

import re
from collections.abc import Mapping

import numpy as np

from ...schema.columns import Bool, Categorical, Int64
from ...schema.graph import ExecutionGraph
from ..replay import NodeClass, Workload

UNRECORDED = (NodeClass.UNRECORDED, NodeClass.METADATA, NodeClass.DELAY)
MAIN_OPS = re.compile(r"ProfilerStep#|Optimizer\.step#|DistributedDataParallel\.forward")
ROLES = {
    "autograd": re.compile("autograd::engine::evaluate_function"),
    "gloo": re.compile("gloo:"),
    "DataLoader": re.compile(r"enumerate\(DataLoader\)|aten::_?pin_memory$|(?i:load(ing)?[ _](the )?batch)"),
}
"""What a thread other than the main one is for, by how the name of any of its nodes begins."""
WATCHDOG = re.compile("(cuda|hip)EventQuery$|host idle$")
"""What the thread that watches over collectives does, and nothing else."""
RETURN_TYPE = re.compile(r"^(?:static |inline )*(?:void|int|bool|auto) ")
NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::")
ONE_WORD = re.compile(r"\(\w+\)")


def lane_names(work: Workload) -> list[str]:
    """Returns the lanes' labels: `main thread`, `autograd thread`, `thread 4711` for other threads, `unrecorded host`
    where no node of the thread was recorded, `device 0 stream 7`, `delays`.

    The main thread is the one with the number of its process, else the only one that marks steps or steps an optimizer.
    Several threads of a rank that are for the same keep their numbers: `gloo thread 4711`. Negative numbers, which are
    none of the system's, are counted instead: `thread A`.
    """
    recorded = np.zeros(len(work.lanes), bool)
    recorded[work.lane[~np.isin(work.node_class, UNRECORDED)]] = True
    names = [lane.label for lane in work.lanes]
    for rank, graph in enumerate(work.graphs):
        lane = work.lane[work.first_row[rank] :][: len(graph)]
        is_thread = {
            number: work.lanes[number].number
            for number in np.unique(lane).tolist()
            if names[number].startswith("thread ")
        }
        unrecorded = {number for number in is_thread if not recorded[number]}
        threads = is_thread.keys() - unrecorded
        roles = {"unrecorded host": unrecorded} | _roles(graph, lane, {number: is_thread[number] for number in threads})
        for role, alike in roles.items():
            for number, name in _names_of_role(role, {number: is_thread[number] for number in alike}).items():
                names[number] = name
    return names


def _roles(graph: ExecutionGraph, lane: Int64, thread_numbers: Mapping[int, int]) -> dict[str, set[int]]:
    """Returns the lanes of the threads by what these are; `thread_numbers` are by lane."""
    threads = {*thread_numbers}
    main = _main_thread(graph, lane, thread_numbers)
    roles = {"main thread": threads & {main}}
    threads -= {main}
    for role, pattern in ROLES.items():
        roles[f"{role} thread"] = threads & _lanes_with(graph.name, lane, pattern)
        threads -= roles[f"{role} thread"]
    roles["watchdog thread"] = threads - _lanes_with(graph.name, lane, WATCHDOG, matches=False)
    return roles | {"thread": threads - roles["watchdog thread"]}


def _names_of_role(role: str, thread_numbers: Mapping[int, int]) -> dict[int, str]:
    """Returns the names of the lanes with the same role: with their threads' numbers if there are several."""
    if len(thread_numbers) == 1 and role != "thread":
        return dict.fromkeys(thread_numbers, role)
    unrecorded = [lane for lane, number in thread_numbers.items() if number < 0]
    names = {lane: f"{role} {number}" for lane, number in thread_numbers.items()}
    return names | {lane: f"{role} {_letters(position)}" for position, lane in enumerate(sorted(unrecorded))}


def _letters(position: int) -> str:
    """Returns A for 0, B for 1, then AA after Z."""
    return (_letters(position // 26 - 1) if position >= 26 else "") + chr(ord("A") + position % 26)


def _main_thread(graph: ExecutionGraph, lane: Int64, thread_numbers: Mapping[int, int]) -> int | None:
    """Returns the lane of the process's first thread, None where that is not known."""
    pid = graph.number("pid", -1)
    by_number = [number for number, thread in thread_numbers.items() if thread == pid]
    candidates = by_number or sorted(_lanes_with(graph.name, lane, MAIN_OPS) & {*thread_numbers})
    return candidates[0] if len(candidates) == 1 else None


def _lanes_with(name: Categorical, lane: Int64, pattern: re.Pattern[str], *, matches: bool = True) -> set[int]:
    """Returns the lanes with a node whose name begins so, or with one whose name does not."""
    is_match: Bool = np.array([bool(pattern.match(text)) == matches for text in [*name.table, ""]], bool)
    return {*np.unique(lane[is_match[name.codes]]).tolist()}


def short_name(name: str) -> str:
    """Returns a C++ function's name without return type, namespaces and parameters; other names stay as they are.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)")
    'vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>'
    >>> short_name("Memcpy HtoD (Pinned -> Device)"), short_name("aten::mm")
    ('Memcpy HtoD (Pinned -> Device)', 'aten::mm')
    """
    is_template = bool(RETURN_TYPE.match(name)) or "<" in name
    if not is_template and ("(" not in name or " (" in name):
        return name
    return NAMESPACE.sub("", _without_parameters(RETURN_TYPE.sub("", name))) or name


def _without_parameters(name: str) -> str:
    """Cuts the outermost brackets at the end, unless they hold a single word."""
    depth = 0
    for position in range(len(name) - 1, 0, -1):
        depth += (name[position] == ")") - (name[position] == "(")
        if depth == 0:
            return name if name[position] != "(" or ONE_WORD.fullmatch(name, position) else name[:position]
    return name
