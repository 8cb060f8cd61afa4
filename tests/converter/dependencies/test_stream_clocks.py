"""Which dependencies between streams say something new, against a reference that walks every path."""

import numpy as np
from execgraph.converter.context import ConversionContext
from execgraph.converter.dependencies.stream_clocks import StreamClocks
from execgraph.converter.timeline import slice_host
from execgraph.schema.linked import LinkedTrace
from hypothesis import given, strategies as st
from support.references import Act, linked_of

Pairs = list[tuple[int, int]]


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Act], Pairs, Pairs]:
    """Activities of no length on three streams, one each ns, and pairs of them of which the first started earlier."""
    count = draw(st.integers(2, 8))
    streams = draw(st.lists(st.integers(7, 9), min_size=count, max_size=count))
    pairs = st.lists(st.sampled_from([(first, later) for later in range(count) for first in range(later)]))
    acts = [Act(start, start, stream=stream) for start, stream in enumerate(streams)]
    return acts, draw(pairs), draw(pairs)


def run_of(linked: LinkedTrace) -> ConversionContext:
    return ConversionContext(linked, slice_host(linked, 0), np.zeros(len(linked.activities), np.int64))


def before(row: int, pairs: Pairs) -> set[int]:
    return {row}.union(*(before(source, pairs) for source, target in pairs if target == row))


@given(runs())
def test_what_is_kept_and_what_was_known_imply_all_and_nothing_twice(run: tuple[list[Act], Pairs, Pairs]) -> None:
    acts, candidates, known = run
    chains = [(a, b) for b in range(len(acts)) for a in range(b) if acts[a].stream == acts[b].stream]
    linked = linked_of(acts)
    source, target = StreamClocks(run_of(linked)).not_implied(candidates, known)
    kept = list(zip(source.tolist(), target.tolist(), strict=True))
    assert set(kept) <= set(candidates)
    everything, less = [*chains, *known, *candidates], [*chains, *known, *kept]
    assert all(before(row, everything) == before(row, less) for row in range(len(acts)))
    for pair in kept:
        others = [*chains, *known, *(other for other in kept if other != pair and other[1] <= pair[1])]
        latest = [other for other in others if other[1] < pair[1] or other[0] > pair[0] or other in [*chains, *known]]
        assert pair[0] not in before(pair[1], latest)
    assert len(set(kept)) == len(kept)


@given(runs())
def test_activities_may_be_listed_in_any_order(run: tuple[list[Act], Pairs, Pairs]) -> None:
    acts, candidates, known = run
    order = np.arange(len(acts))[::-1].tolist()
    linked = linked_of([acts[row] for row in order])
    turned = [[(order[a], order[b]) for a, b in pairs] for pairs in (candidates, known)]
    source, target = StreamClocks(run_of(linked)).not_implied(*turned)
    straight = linked_of(acts)
    wanted = StreamClocks(run_of(straight)).not_implied(candidates, known)
    kept = {(order[a], order[b]) for a, b in zip(source.tolist(), target.tolist(), strict=True)}
    assert kept == set(zip(*(column.tolist() for column in wanted), strict=True))
