"""The latency and time of a byte that collectives show, from the most specific ones that tell both."""

import pytest
from execgraph.converter.ranks import Transfer
from execgraph.converter.scaling.lengths import SOURCES, Fits, GroupTransfer, Line, cost_of
from execgraph.schema.graph import CollectiveType

ALL_REDUCE, ALL_GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
STEP, BYTE = 1_000, 2
"""ns of a step, and of a byte."""
STEPS_OF = {ALL_REDUCE: 2, ALL_GATHER: 1}
"""Of two members."""


def measured(size: int, group: int = 0, kind: CollectiveType = ALL_REDUCE, off: int = 0) -> GroupTransfer:
    """A collective of two, `off` ns longer than steps and bytes take."""
    return GroupTransfer(Transfer(kind, 2, size, STEPS_OF[kind] * STEP + size * BYTE + off), group)


def test_two_sizes_tell_both() -> None:
    fit = Fits([measured(1_000), measured(50_000)]).of(ALL_REDUCE, 0)
    assert fit is not None
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct, fit.identifiable) == (SOURCES[0], 2, 0.0, True)


@pytest.mark.parametrize(
    ("other", "source", "transfers"),
    [
        (measured(50_000, 1), SOURCES[1], 2),
        (measured(50_000, 0, ALL_GATHER), SOURCES[2], 2),
        (measured(50_000, 1, ALL_GATHER), SOURCES[3], 2),
    ],
    ids=["of the type", "of the group", "of the job"],
)
def test_what_collectives_of_a_type_and_group_do_not_tell_others_do(
    other: GroupTransfer, source: str, transfers: int
) -> None:
    fit = Fits([measured(1_000), other]).of(ALL_REDUCE, 0)
    assert fit is not None
    assert (fit.source, fit.transfers) == (source, transfers)
    assert fit.line == pytest.approx((STEP, BYTE))


def test_a_type_that_was_not_measured_in_a_group_has_the_line_of_others() -> None:
    fit = Fits([measured(1_000), measured(50_000)]).of(ALL_GATHER, 7)
    assert fit is not None
    assert fit.source == SOURCES[3]


def test_what_nothing_tells_has_no_line_unless_both_factors_are_given() -> None:
    assert Fits([]).of(ALL_REDUCE, 0) is None
    assert Fits([], STEP).of(ALL_REDUCE, 0) is Fits([], None, BYTE).of(ALL_REDUCE, 0) is None
    given = Fits([], STEP, BYTE).of(ALL_REDUCE, 0)
    assert given is not None
    assert (given.line, given.source, given.transfers, given.fit_error_pct) == (Line(STEP, BYTE), "given", 0, 0.0)
    assert given.identifiable


@pytest.mark.parametrize(
    "transfer",
    [
        Transfer(ALL_REDUCE, 2, 1_000, 0),
        Transfer(ALL_REDUCE, 1, 1_000, 5),
        Transfer(CollectiveType.ALL_TO_ALL, 2, 1_000, 5),
    ],
    ids=["no time", "one member", "not by ring"],
)
def test_what_takes_no_time_alone_or_not_by_ring_tells_nothing(transfer: Transfer) -> None:
    assert Fits([GroupTransfer(transfer, 0)]).of(transfer.kind, 0) is None


@pytest.mark.parametrize(("step_ns", "byte_ns"), [(STEP, None), (None, BYTE), (STEP, BYTE)])
def test_a_given_factor_leaves_the_other_one_to_be_fitted(step_ns: float | None, byte_ns: float | None) -> None:
    fits = Fits([measured(1_000)], step_ns, byte_ns)
    fit = fits.of(ALL_REDUCE, 0)
    assert fit is not None
    assert fits.is_given and not Fits([]).is_given
    assert fit.line == pytest.approx((STEP, BYTE))
    assert (fit.source, fit.transfers, fit.fit_error_pct) == (f"as given; {SOURCES[0]}", 1, 0.0)


def test_a_fitted_factor_is_never_below_zero() -> None:
    for given, line in (((10 * STEP, None), (10 * STEP, 0)), ((None, 10 * BYTE), (0, 10 * BYTE))):
        fit = Fits([measured(1_000)], *given).of(ALL_REDUCE, 0)
        assert fit is not None
        assert fit.line == line


def test_of_one_size_the_line_has_the_least_latency_and_others_would_do() -> None:
    fit = Fits([measured(1_000), measured(1_000)]).of(ALL_REDUCE, 0)
    assert fit is not None
    assert (fit.identifiable, fit.source, fit.transfers) == (False, SOURCES[0], 2)
    assert fit.line.ns(cost_of(measured(1_000).transfer)) == pytest.approx(2 * STEP + 1_000 * BYTE)


def test_a_latency_within_the_scatter_of_the_times_is_not_known() -> None:
    """It is measured with 1,000 ns, but so are the differences between alike collectives."""
    scattered = [measured(size, off=off) for size in (20_000, 40_000) for off in (-900, 900)]
    fit = Fits(scattered).of(ALL_REDUCE, 0)
    assert fit is not None
    assert not fit.identifiable
    steady = [measured(size, off=off) for size in (20_000, 40_000) for off in (-9, 9)]
    known = Fits(steady).of(ALL_REDUCE, 0)
    assert known is not None
    assert known.identifiable


def test_the_error_is_that_of_the_median() -> None:
    fit = Fits([measured(1_000), measured(1_000), measured(1_000, off=3_000)], STEP, BYTE).of(ALL_REDUCE, 0)
    assert fit is not None
    assert fit.fit_error_pct == 0.0
