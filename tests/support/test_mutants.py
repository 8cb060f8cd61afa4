"""The mutants that `make mutants` makes: what is changed in the code, and that a test in the process meets it."""

import importlib
import sys

import pytest

from support.mutants import InMemory, mutants


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("a > 1", ["a > 1 -> a >= 1", "a > 1 -> a <= 1", "a > 1 -> a > 2"]),
        ("a == b", ["a == b -> a != b"]),
        ("SIZE = 64", []),
        ("SIZE = 1 << 16", []),
        ("SIZE = 8", ["8 -> 9", "8 -> 7"]),
        ("a if b else c", ["a if b else c -> c if b else a"]),
        ("if not a: b = min(c)", ["not a -> a", "min(c) -> max(c)"]),
        ("if a or b: c", ["if a or b: -> if not (a or b):", "a or b -> a and b"]),
        ("a[1:]", ["1 -> 2", "1 -> 0"]),
        ("full(a, -1)", ["full(a, -1) -> pass", "-1 -> 1"]),
        ("a += b & c", ["a += b & c -> pass", "a += b & c -> a -= b & c", "b & c -> b | c"]),
        ("a = [b for b in c if b]", ["for b in c if b -> for b in c"]),
        ("def a(b: c | d = True) -> e | f: return b", ["True -> False"]),
        ("zip(a, strict=True)", ["zip(a, strict=True) -> pass"]),
        ("raise a", ["raise a -> pass"]),
    ],
)
def test_what_is_changed(code: str, changes: list[str]) -> None:
    found = [make() for make in mutants("linker/x.py", code)]
    assert [mutant.change for mutant in found] == changes
    assert {(mutant.line, mutant.source) for mutant in found} <= {(1, code)}


def test_a_mutant_is_imported_in_place_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = next(mutants("linker/mutated.py", "answer = not 42"))()
    monkeypatch.setattr("sys.meta_path", [InMemory("linker/mutated.py", changed.code), *sys.meta_path])
    assert importlib.import_module("execgraph.linker.mutated").answer == 42
