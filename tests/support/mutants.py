"""Mutation testing of linker/ and converter/: how many small changes of the code do the tests that concern it find?

PYTHONPATH=tests python -m support.mutants --sample 200 --seed 1
PYTHONPATH=tests python -m support.mutants --modules linker/matching/ops.py converter/targets --sample 50

No file is changed: a mutant is compiled in the memory of the process that runs its tests. Processes that tests start
for commands run the original. Tools that mutate files (mutmut, cosmic-ray) do not see that the folders here are
installed as one namespace.
"""

import argparse
import ast
import importlib.abc
import importlib.util
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from multiprocessing.connection import wait
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple

import networkx  # noqa: F401  imported once, for the processes that run tests
import numpy  # noqa: F401
import pytest
from hypothesis import Phase, settings

from support.tested_by import tests_of

ROOT = Path(__file__).parents[2]
TARGET = 85
"""Percent of the mutants that the tests should find."""
MEMORY = 8 << 30
PATIENCE = 4, 10
"""A mutant may compute this many times as long as its tests took, and so many seconds more."""
WAITING = 5
"""How many times as long as it may compute a mutant may take, as other processes use the machine too."""


# What is changed

OTHER_OPERATORS: dict[type[ast.AST], tuple[Any, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
}
PAIRED = (("min", "max"), ("minimum", "maximum"), ("any", "all"), ("argmin", "argmax"))
OTHER_NAMES = {one: other for pair in PAIRED for one, other in (pair, pair[::-1])}
LEFT_ALONE = ("annotation", "returns", "decorator_list")
INVARIANTS = ("strict",)
"""Keywords that only check what always holds."""
SMALLEST_SIZE = 16
FURTHER = {ast.Lt: -1, ast.LtE: 1, ast.Gt: 1, ast.GtE: -1}
"""How a whole number changes with which something is compared: the other way, `a > 1` would be `a >= 2` again."""


class Mutant(NamedTuple):
    """A module with one node replaced: the line, what the node was and is now."""

    module: str
    line: int
    change: str
    source: str
    code: CodeType


def mutants(module: str, text: str) -> Iterator[Callable[[], Mutant]]:
    """Every mutant of a module, not made yet."""
    tree = ast.parse(text)
    for place, key, node in _nodes(tree):
        for new in _others(node):
            yield partial(_made, module, text.splitlines(), tree, place, key, node, new)


def _made(module: str, lines: list[str], tree: ast.Module, place: Any, key: Any, node: Any, new: Any) -> Mutant:
    line = node.target.lineno if isinstance(node, ast.comprehension) else node.lineno
    place[key] = ast.fix_missing_locations(ast.copy_location(new, node))
    code = compile(tree, str(ROOT / module), "exec")
    place[key] = node
    before, after = (ast.unparse(one).strip().splitlines()[0] for one in (node, new))
    return Mutant(module, line, f"{before} -> {after}", lines[line - 1].strip(), code)


def _nodes(parent: ast.AST) -> Iterator[tuple[Any, Any, Any]]:
    """Every statement and expression below a node but for skipped ones, with the list or dict and key that hold it."""
    for name, value in ast.iter_fields(parent):
        if name in LEFT_ALONE or (isinstance(parent, ast.keyword) and parent.arg in INVARIANTS):
            continue
        if name == "comparators" and isinstance(parent, ast.Compare) and _is_with_number(parent):
            continue
        places = enumerate(value) if isinstance(value, list) else [(name, value)]
        for key, node in places:
            if isinstance(node, ast.AST) and not (isinstance(parent, ast.Module) and _is_size(node)):
                yield value if isinstance(value, list) else vars(parent), key, node
                # -1 stands for none: of its mutants 1 is the one that means something
                if not (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant)):
                    yield from _nodes(node)


def _is_with_number(comparison: ast.Compare) -> bool:
    """Whether it is one comparison of sizes with a whole number."""
    match comparison.ops, comparison.comparators:
        case [operator], [ast.Constant(int())]:
            return type(operator) in FURTHER
    return False


def _is_size(statement: ast.AST) -> bool:
    """Whether it names a power of two: a size that somebody chose, as of a piece, where one more is as good."""
    match statement:
        case ast.Assign([ast.Name()], ast.Constant(int(size))):
            return size >= SMALLEST_SIZE and not size & (size - 1)
        case ast.Assign([ast.Name()], ast.BinOp(ast.Constant(1), ast.LShift(), ast.Constant())):
            return True
    return False


def _has_opposite(test: ast.expr) -> bool:
    """Whether the opposite of a condition is among its own mutants."""
    match test:
        case ast.Compare(_, [_], _) | ast.UnaryOp(ast.Not()):
            return True
    return False


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of a node."""
    match node:
        case ast.Compare(left, operators, right):
            for at, operator in enumerate(operators):
                for other in OTHER_OPERATORS[type(operator)]:
                    yield ast.Compare(left, [*operators[:at], other(), *operators[at + 1 :]], right)
            if _is_with_number(node):
                number = ast.Constant(right[0].value + FURTHER[type(operators[0])])
                yield ast.Compare(left, operators, [number])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(OTHER_OPERATORS[type(operator)][0](), values)
        case ast.BinOp(left, operator, right) if type(operator) in OTHER_OPERATORS:
            yield ast.BinOp(left, OTHER_OPERATORS[type(operator)][0](), right)
        case ast.AugAssign(to, operator, value):
            yield ast.Pass()
            if type(operator) in OTHER_OPERATORS:
                yield ast.AugAssign(to, OTHER_OPERATORS[type(operator)][0](), value)
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Call(ast.Name(name), arguments, keywords) if name in OTHER_NAMES:
            yield ast.Call(ast.Name(OTHER_NAMES[name], ast.Load()), arguments, keywords)
        case ast.Attribute(value, name, context) if name in OTHER_NAMES:
            yield ast.Attribute(value, OTHER_NAMES[name], context)
        case ast.IfExp(test, body, otherwise) if not _has_opposite(test):
            yield ast.IfExp(test, otherwise, body)
        case ast.If(test, body, otherwise) if not _has_opposite(test):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)
        case ast.comprehension(to, over, [_, *_], is_async):
            yield ast.comprehension(to, over, [], is_async)
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()


# Whether tests find it


class InMemory(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from code instead of its file."""

    def __init__(self, module: str, code: CodeType) -> None:
        self._name = "execgraph." + module.removesuffix(".py").replace("/", ".")
        self._path, self._code = ROOT / module, code

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self._path, loader=self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


def run_tests(tests: Sequence[str], mutant: Mutant | None = None, limit: float = float("inf")) -> None:
    """Runs tests in this process, for so many seconds of computing, and ends it with pytest's exit status."""
    os.setsid()
    if limit < float("inf"):
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1,) * 2)
    # of what is written to: a browser's engine, which a test starts, reserves far more
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    if mutant:
        sys.meta_path.insert(0, InMemory(mutant.module, mutant.code))
    # a found mutant need not be the smallest example
    settings.register_profile(
        "mutants", deadline=None, database=None, derandomize=True, phases=(Phase.explicit, Phase.generate)
    )
    options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"]
    os._exit(pytest.main([*options, *(f"tests/{name}" for name in tests)]))


class Task(NamedTuple):
    tests: tuple[str, ...]
    mutant: Mutant | None = None
    limit: float = float("inf")


def in_processes(tasks: Iterable[Task], jobs: int) -> Iterator[tuple[Task, bool, float]]:
    """Runs tasks, several at once: whether the tests passed within the limit, and how long they took."""
    waiting, running = iter(tasks), dict[Any, tuple[Any, Task, float]]()
    context = multiprocessing.get_context("fork")
    try:
        while True:
            while len(running) < jobs and (task := next(waiting, None)):
                process = context.Process(target=run_tests, args=task)
                process.start()
                running[process.sentinel] = process, task, time.monotonic()
            if not running:
                return
            wait(list(running), timeout=1)
            for sentinel, (process, task, begun) in list(running.items()):
                took = time.monotonic() - begun
                if process.is_alive() and took < WAITING * task.limit:
                    continue
                del running[sentinel]
                _end(process)
                yield task, process.exitcode == 0, took
    finally:
        for process, _, _ in running.values():
            _end(process)


def _end(process: Any) -> None:
    """Ends a process and what it started."""
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
    process.join()


# What is said


def main() -> None:
    options = _options()
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("interrupted"))  # and ends the processes that run tests
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.gettempdir()
    chosen = _chosen(options.modules, options.sample, options.seed)
    needed = {(test,) for mutant in chosen for test in tests_of(mutant.module)}
    seconds: dict[str, float] = {}
    for task, passed, took in in_processes(map(Task, sorted(needed)), options.jobs):
        if not passed:
            sys.exit(f"tests/{task.tests[0]} fails without a mutant")
        seconds[task.tests[0]] = took

    def task_of(mutant: Mutant) -> Task:
        tests = tests_of(mutant.module)
        return Task(tests, mutant, PATIENCE[0] * sum(seconds[test] for test in tests) + PATIENCE[1])

    made = Counter(mutant.module for mutant in chosen)
    found = made.copy()
    for task, passed, _ in in_processes(map(task_of, chosen), options.jobs):
        if passed and (mutant := task.mutant):
            found[mutant.module] -= 1
            print(f"{mutant.module}:{mutant.line}  {mutant.change}\n    {mutant.source}", flush=True)
    for module, count in sorted(made.items()):
        print(f"{module:<48}{found[module]:>4} of {count:>4} found")
    share = 100 * found.total() / max(1, len(chosen))
    print(f"{share:.0f} % of {len(chosen)} mutants found; the target is {TARGET} %")
    sys.exit(share < TARGET)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How many mutants of linker/ and converter/ the tests find.")
    parser.add_argument(
        "--modules",
        nargs="+",
        default=["linker", "converter"],
        metavar="PLACE",
        help="as linker/matching/ops.py or converter",
    )
    parser.add_argument("--sample", type=int, default=200, metavar="N", help="mutants, of all modules together")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="mutants tested at once")
    return parser.parse_args()


def _chosen(places: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    found = (
        path for place in places for path in ([ROOT / place], (ROOT / place).rglob("*.py"))[(ROOT / place).is_dir()]
    )
    files = sorted({str(path.relative_to(ROOT)) for path in found})
    every = [make for module in files for make in mutants(module, (ROOT / module).read_text(encoding="utf-8"))]
    return [make() for make in random.Random(seed).sample(every, min(sample, len(every)))]


if __name__ == "__main__":
    main()
