"""Options say what can be done, at once, and convert does what they say."""

from typing import Any

import pytest
from execgraph.converter.convert import build_generic_graph, convert
from execgraph.converter.options import Options
from execgraph.converter.targets import lower_for_target
from execgraph.schema.arguments import Target
from execgraph.schema.linked import LinkedTrace
from support.builder.timeline import TraceBuilder
from support.runs import link_run


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"target": "nonsense"}, "target is 'nonsense', not one of 'generic', 'astra-sim'"),
        ({"promote": "some"}, "promote is 'some', not one of 'sync', 'all'"),
        ({"io": "half"}, "io is 'half', not one of 'full', 'none'"),
        ({"host": "no"}, "host is 'no', not one of True, False"),
        ({"shortest_slice": -1}, "shortest_slice is -1, not a whole number of ns, 0 or more"),
        ({"shortest_slice": 0.5}, "shortest_slice is 0.5, not a whole number of ns, 0 or more"),
        ({"left_out": ("lunch",)}, "a rule in left_out is 'lunch', not one of 'program_order', 'launch'"),
    ],
)
def test_what_there_is_not_is_refused_by_name(option: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as refused:
        Options(**option)
    assert str(refused.value).startswith(f"Options: {text}")


def test_options_stay_as_they_were_checked() -> None:
    with pytest.raises(AttributeError):
        Options().target = "nonsense"  # type: ignore[misc]


@pytest.fixture(scope="module")
def linked() -> LinkedTrace:
    t = TraceBuilder(rank=0, world_size=4)
    with t.op("aten::mm"):
        t.launch("gemm", duration=20)
    t.collective(group=t.group([0, 1], name="5"))
    return link_run(t)


@pytest.mark.parametrize("target", ["generic", "astra-sim"])
def test_a_graph_is_what_it_says_it_is_for(linked: LinkedTrace, target: Target) -> None:
    graph = convert(linked, Options(target=target))
    assert graph.metadata["target"] == target
    assert graph.changes is not None
    assert (graph.changes.notes != []) == (target == "astra-sim")
    assert (graph.texts("pg_name").table == ["5"]) == (target == "generic")


def test_before_the_target_a_graph_does_not_say_it_is_for_one(linked: LinkedTrace) -> None:
    options = Options(target="astra-sim")
    graph = build_generic_graph(linked, options)
    assert (graph.metadata["target"], graph.changes) == ("generic", None)
    assert lower_for_target(graph, options.target, {(0, 1): 7}).metadata["target"] == "astra-sim"
    assert (graph.metadata["target"], graph.texts("pg_name").table) == ("generic", ["5"])


@pytest.mark.parametrize("target", ["generic", "astra-sim"])
def test_groups_have_the_numbers_that_are_given(linked: LinkedTrace, target: Target) -> None:
    names = convert(linked, Options(target=target), {(0, 1): 7}).texts("pg_name")
    assert {names[row] for row in range(len(names))} == {"", "7"}
