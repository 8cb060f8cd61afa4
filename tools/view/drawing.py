"""What pictures are made of: names of lanes and kernels as people know them, and in SVG frames, texts and curves."""

import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from ...schema.columns import Int64
from ...schema.graph import ExecutionGraph
from ...schema.linked import AUTOGRAD
from ..replay import UNRECORDED, Workload

MAIN_OPS = re.compile(r"ProfilerStep#|Optimizer\.step#|DistributedDataParallel\.forward")
ROLES = {
    "autograd": re.compile(AUTOGRAD),
    "gloo": re.compile("gloo:"),
    "DataLoader": re.compile(r"enumerate\(DataLoader\)|aten::_?pin_memory$|(?i:load(ing)?[ _](the )?batch)"),
}
"""What a thread other than the main one is for, by how the name of any of its nodes begins."""
WATCHDOG = re.compile("(cuda|hip)EventQuery$|host idle$")
"""What the thread that watches over collectives does, and nothing else."""
RETURN_TYPE = re.compile(r"^(?:static |inline )*(?:void|int|bool|auto) ")
NAMESPACE = re.compile(r"(?:\(anonymous namespace\)|[A-Za-z_]\w*)::")
ONE_WORD = re.compile(r"\(\w+\)")
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
Point = tuple[float, float]


def lane_names(work: Workload) -> list[str]:
    """Returns the lanes' labels: `main thread`, `autograd thread`, `thread 4711`, `device 0 stream 7`, `delays`.

    The main thread is the one with the number of its process, else the only one that marks steps or steps an optimizer.
    Several threads for the same keep their numbers; negative numbers, not the system's, are counted: `thread A`.
    """
    recorded = {*np.unique(work.lane[~np.isin(work.node_class, UNRECORDED)]).tolist()}
    names = [lane.label for lane in work.lanes]
    for rank, graph in enumerate(work.graphs):
        lane = work.lane[work.first_row[rank] :][: len(graph)]
        threads = [thread for thread in np.unique(lane).tolist() if names[thread].startswith("thread ")]
        numbers = {thread: work.lanes[thread].number for thread in threads}
        roles = dict.fromkeys(threads, "unrecorded host")
        roles |= _roles(graph, lane, {thread: numbers[thread] for thread in threads if thread in recorded})
        alike, counted = Counter(roles.values()), Counter[str]()
        for thread, role in roles.items():
            number = str(numbers[thread])
            if numbers[thread] < 0:
                number, counted[role] = _letters(counted[role]), counted[role] + 1
            names[thread] = f"{role} {number}" if alike[role] > 1 or role == "thread" else role
    return names


def _roles(graph: ExecutionGraph, lane: Int64, numbers: Mapping[int, int]) -> dict[int, str]:
    """Returns what the threads are, by their lanes; `numbers` are the system's."""

    def lanes_with(pattern: re.Pattern[str], *, matches: bool = True) -> set[int]:
        is_match = graph.name.where(lambda name: bool(pattern.match(name)))
        return {*np.unique(lane[is_match == matches]).tolist()} & numbers.keys()

    roles = dict.fromkeys(numbers, "thread")
    roles |= dict.fromkeys(numbers.keys() - lanes_with(WATCHDOG, matches=False), "watchdog thread")
    for role, pattern in reversed(ROLES.items()):
        roles |= dict.fromkeys(lanes_with(pattern), f"{role} thread")
    pid = graph.number("pid", -1)
    main = [thread for thread, number in numbers.items() if number == pid] or [*lanes_with(MAIN_OPS)]
    return roles | (dict.fromkeys(main, "main thread") if len(main) == 1 else {})


def _letters(position: int) -> str:
    """Returns A for 0, B for 1, then AA after Z."""
    return (_letters(position // 26 - 1) if position >= 26 else "") + chr(ord("A") + position % 26)


def short_name(name: str) -> str:
    """Returns a C++ function's name without return type, namespaces and parameters; other names stay as they are.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)")
    'vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>'
    """
    is_template = bool(RETURN_TYPE.match(name)) or "<" in name
    if not is_template and ("(" not in name or " (" in name):
        return name
    plain, depth = RETURN_TYPE.sub("", name), 0
    # the outermost brackets at the end go, unless they hold a single word
    for position in range(len(plain) - 1, 0, -1):
        depth += (plain[position] == ")") - (plain[position] == "(")
        if depth == 0:
            if plain[position] == "(" and not ONE_WORD.fullmatch(plain, position):
                plain = plain[:position]
            break
    return NAMESPACE.sub("", plain) or name


def xml_text(text: str) -> str:
    """Returns a text as it stands between two tags of XML, with ? for characters that XML does not allow."""
    return html.escape(NOT_XML.sub("?", text), quote=False)


def svg(width: float, height: float, style: str, parts: Iterable[str]) -> str:
    """Returns a picture of a size in px on paper, whose parts are lines."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    paper = f'<style>{style}</style><rect class="paper" width="100%" height="100%"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', paper, *parts, "</svg>\n"])


def curve(start: Point, leaving: Point, end: Point, arriving: Point, head: str) -> str:
    """Returns the path of an arrow that leaves and arrives in these directions, with a head."""
    controls = (start[0] + leaving[0], start[1] + leaving[1]), (end[0] + arriving[0], end[1] + arriving[1])
    points = " ".join(f"{x:.1f} {y:.1f}" for x, y in (*controls, end))
    return f"M{start[0]:.1f} {start[1]:.1f}C{points}{head}"
