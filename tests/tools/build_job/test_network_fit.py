"""What a build says of the fitted network: its figures, how well they describe the job, and what to do if badly."""

import pytest
from execgraph.converter.network import Network
from execgraph.tools.build_job import BuildOptions, BuildReport, Simulation, network_text, poor_fit

GOOD = Network(50.0, 10.0, transfers=30, sizes=12, fit_error_pct=3.1, repeat_error_pct=1.0)
POOR = Network(50.0, 10.0, transfers=8, sizes=7, fit_error_pct=59.3, repeat_error_pct=20.5)


def report_with(network: Network | None) -> BuildReport:
    return BuildReport("execgraph", BuildOptions(), network=network)


@pytest.mark.parametrize(
    ("fitted", "simulation", "text"),
    [
        (GOOD, Simulation(), "50 GB/s, 10 ns a link, fitted to 30 collectives and messages, median fit error 3.1 %"),
        (Network(transfers=6, sizes=1), Simulation(), "too few sizes to judge the fit"),
        (GOOD, Simulation(400.0), "400 GB/s, 10 ns a link; the bandwidth as given, the other one fitted"),
        (GOOD, Simulation(400.0, 700.0), "400 GB/s, 700 ns a link, as given"),
        (None, Simulation(), "100 GB/s, 500 ns a link; no collective or message was measured"),
    ],
)
def test_the_line_says_what_the_file_has_and_where_it_is_from(
    fitted: Network | None, simulation: Simulation, text: str
) -> None:
    assert text in network_text(fitted, simulation)


def test_a_poor_fit_is_said_with_reasons_and_what_to_do() -> None:
    said = poor_fit(report_with(POOR), Simulation())
    assert said is not None
    assert "median fit error 59.3 % (only 7 sizes; transfers of one size differ by 20.5 %" in said
    assert "--replay or --target goal --measured-communication" in said


@pytest.mark.parametrize(
    ("network", "simulation"),
    [
        (GOOD, Simulation()),
        (None, Simulation()),
        (Network(transfers=6, sizes=1), Simulation()),
        (POOR, Simulation(replay=True)),
        (POOR, Simulation(400.0, 700.0)),
    ],
)
def test_a_fit_that_is_good_unknown_or_not_used_gets_no_warning(
    network: Network | None, simulation: Simulation
) -> None:
    assert poor_fit(report_with(network), simulation) is None
