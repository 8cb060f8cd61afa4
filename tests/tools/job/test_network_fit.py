"""What is said of the network in the simulator's configuration: its figures, and how well they describe the job."""

import pytest
from execgraph.converter.ranks import Link, Network, TwoDimensions
from execgraph.tools.job import Simulation, network_text, poor_fit

GOOD = Network(50.0, 10.0, transfers=30, sizes=12, fit_error_pct=3.1, repeat_error_pct=1.0)
TWO = TwoDimensions(Link(4, 300.0, 1_000.0), Link(2, 20.0, 6_000.0), sizes=12, fit_error_pct=2.5, direct=True)
NODES = Network(150.0, 1_200.0, transfers=48, sizes=12, fit_error_pct=88.0, two_dimensions=TWO)
POOR = Network(50.0, 10.0, transfers=8, sizes=7, fit_error_pct=59.3, repeat_error_pct=20.5)


@pytest.mark.parametrize(
    ("fitted", "simulation", "text"),
    [
        (GOOD, Simulation(), "50 GiB/s, 10 ns a link, fitted to 30 collectives and messages, median fit error 3.1 %"),
        (Network(transfers=6, sizes=1), Simulation(), "too few sizes to judge the fit"),
        (GOOD, Simulation(400.0), "400 GiB/s, 10 ns a link; the bandwidth as given, the latency fitted to 30"),
        (GOOD, Simulation(None, 7.0), "50 GiB/s, 7 ns a link; the latency as given, the bandwidth fitted to 30"),
        (Network(transfers=6, sizes=1), Simulation(400.0), "the latency fitted to 6 collectives and messages, too few"),
        (GOOD, Simulation(replay=True), "not used, as every node takes its recorded time"),
        (GOOD, Simulation(400.0, 700.0), "400 GiB/s, 700 ns a link, as given"),
        (
            NODES,
            Simulation(),
            "300 GiB/s, 1000 ns a link within nodes of 4 ranks, 20 GiB/s, 6000 ns a link across 2 nodes, fitted to 48 "
            "collectives and messages, median fit error 2.5 %",
        ),
        (NODES, Simulation(30.0), "30 GiB/s, 1200 ns a link; the bandwidth as given, the latency fitted to 48"),
        (
            Network(transfers=6, sizes=2, one_because="nodes are unknown"),
            Simulation(),
            "too few sizes to judge the fit; one network for all groups, as nodes are unknown",
        ),
        (None, Simulation(), "100 GiB/s, 500 ns a link; no collective or message was measured"),
    ],
)
def test_the_line_says_what_the_file_has_and_where_it_is_from(
    fitted: Network | None, simulation: Simulation, text: str
) -> None:
    assert text in network_text(fitted, simulation, 2)


def test_a_rank_alone_has_a_network_that_it_does_not_use() -> None:
    assert network_text(None, Simulation(), 1) == "100 GiB/s, 500 ns a link, not used, as a rank alone sends nothing"


def test_a_poor_fit_is_said_with_reasons() -> None:
    said = poor_fit(POOR, Simulation(), lacks_members=True)
    assert said is not None
    assert "59.3 % (members of groups are absent; only 7 sizes; transfers of one size differ by 20.5 %" in said


def test_a_given_bandwidth_leaves_one_network_where_two_fit_and_the_warning_says_so() -> None:
    said = poor_fit(NODES, Simulation(30.0), lacks_members=False)
    assert said is not None
    assert "88 % (one network for all groups, as a given bandwidth or latency describes one)" in said


@pytest.mark.parametrize(
    ("network", "simulation"),
    [
        (GOOD, Simulation()),
        (NODES, Simulation()),
        (None, Simulation()),
        (Network(transfers=6, sizes=1), Simulation()),
        (POOR, Simulation(replay=True)),
        (POOR, Simulation(400.0, 700.0)),
    ],
)
def test_a_fit_that_is_good_unknown_or_not_used_gets_no_warning(
    network: Network | None, simulation: Simulation
) -> None:
    assert poor_fit(network, simulation, lacks_members=False) is None
