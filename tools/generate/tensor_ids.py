"""The numbers that PyTorch's observer gives tensors and storages: one for each address that it meets.

An op that has a tensor among its results but not among its inputs has made it, at an address of its own. After its last
use another tensor takes the address, and with it the number. Tensors that no op makes keep theirs, as parameters do.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

from .instructions import Tensor, Value
from .record import NONE, RankRun

MemoryObject: TypeAlias = tuple[bool, int]
"""A tensor or (True) a storage, by its number in the job."""
FREE_BEFORE_REUSE = 256
"""How many addresses of a kind an allocator holds before it gives the first one out again."""


class _Lives(NamedTuple):
    """From which op's beginning to which op's beginning each memory object is in use; `of_mention` is in the order of
    ops.
    """

    of_mention: "array[int]"
    is_storage: bytearray
    first: "array[int]"
    last: "array[int]"


def tensors_in(values: Iterable[Value]) -> Iterator[Tensor]:
    """Yields the tensors in the order in which the observer lists them."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from tensors_in(value)


class TensorIds:
    """The ids of a run's ops, and of the tensors in the arguments of each, all from one counter."""

    def __init__(self, run: RankRun, last_id: int) -> None:
        self._mentioned = [_memory_objects(chain(op.inputs, op.outputs)) for op in run.op_table]
        lives = _lives(run, self._mentioned)
        self._of_mention, self._of_life = lives.of_mention, array("q", bytes(8 * len(lives.first)))
        self.op, self._first_mention = array("q"), array("q")
        ending: dict[int, list[int]] = {}
        free: tuple[deque[int], deque[int]] = (deque(), deque())
        life = mention = 0
        for row, code in enumerate(run.ops.op):
            last_id += 1
            self.op.append(last_id)
            self._first_mention.append(mention)
            mention += len(self._mentioned[code])
            while life < len(lives.first) and lives.first[life] == row:
                addresses = free[lives.is_storage[life]]
                if len(addresses) > FREE_BEFORE_REUSE:
                    self._of_life[life] = addresses.popleft()
                else:
                    last_id += 1
                    self._of_life[life] = last_id
                ending.setdefault(lives.last[life], []).append(life)
                life += 1
            for ended in ending.pop(row, ()):
                free[lives.is_storage[ended]].append(self._of_life[ended])

    def of(self, row: int, code: int) -> tuple[int, ...]:
        """Returns the numbers of the tensors of an op, inputs first, each with that of its storage behind it."""
        first = self._first_mention[row]
        return tuple(self._of_life[life] for life in self._of_mention[first : first + len(self._mentioned[code])])


def _memory_objects(values: Iterable[Value]) -> list[MemoryObject]:
    return [
        memory_object for tensor in tensors_in(values) for memory_object in ((False, tensor.id), (True, tensor.storage))
    ]


def _lives(run: RankRun, mentioned: list[list[MemoryObject]]) -> _Lives:
    """Returns the lives in the order in which they begin."""
    lives = _Lives(array("q"), bytearray(), array("q"), array("q"))
    made = [{*_memory_objects(op.outputs)} - {*_memory_objects(op.inputs)} for op in run.op_table]
    life_of: dict[MemoryObject, int] = {}
    maker_of: dict[MemoryObject, int] = {}
    last_called = _last_called(run)
    for row, code in enumerate(run.ops.op):
        for memory_object in mentioned[code]:
            # a caller lists what the ops that it calls make
            is_made = memory_object in made[code] and not _encloses(run, maker_of.get(memory_object, NONE), row)
            if is_made or memory_object not in life_of:
                life_of[memory_object] = len(lives.first)
                maker_of[memory_object] = row if is_made else NONE
                lives.is_storage.append(memory_object[0])
                lives.first.append(row)
                lives.last.append(row)
            life = life_of[memory_object]
            lives.last[life] = max(lives.last[life], last_called[row])
            lives.of_mention.append(life)
    # what no op made was there before, and stays
    for life in (life_of[memory_object] for memory_object, maker in maker_of.items() if maker == NONE):
        lives.last[life] = len(run.ops)
    return lives


def _last_called(run: RankRun) -> list[int]:
    """Returns the last op that began within each op."""
    last = [*range(len(run.ops))]
    for row in reversed(last.copy()):
        parent = run.ops.parent[row]
        if parent != NONE:
            last[parent] = max(last[parent], last[row])
    return last


def _encloses(run: RankRun, caller: int, row: int) -> bool:
    """Returns whether an op is this one, or called by it, directly or not."""
    while row > caller:
        row = run.ops.parent[row]
    return row == caller != NONE
