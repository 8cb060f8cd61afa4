"""A job is built from the traces of all its ranks, for a simulator by what that is to do.

Options of simulators are checked when they are made.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
from execgraph import AstraSimOptions, DataError, GoalOptions, Options, build

TRAINING = Path("tests/data/training")


def test_a_rank_that_cannot_be_built_is_a_warning_beside_others_and_an_error_alone(tmp_path: Path) -> None:
    (tmp_path / "device_rank1.json").write_text(
        '{"schemaVersion": 1, "distributedInfo": {"rank": 1}, "traceEvents": []}'
    )
    with pytest.raises(DataError, match="device_rank1"):
        build(tmp_path)
    for name in ("host_rank0.json.gz", "device_rank0.json.gz"):
        (tmp_path / name).write_bytes((TRAINING / name).read_bytes())
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        built = build(tmp_path)
    assert built.ranks == [0] and [str(one.message) for one in given] == built.failures


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match=r"build\(traces\) takes a path, or a list of paths, not int"):
        build(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"takes Options, such as"):
        build(TRAINING, None, "goal")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"build\(traces, output\) takes a folder as output, not Options"):
        build(TRAINING, Options())  # type: ignore[arg-type]
    for name in ("start_offsets", "excess_time"):
        with pytest.raises(ValueError, match=rf"build\({name}=False\) is for astra-sim and goal"):
            build(TRAINING, **{name: False})  # type: ignore[arg-type]


def test_the_configuration_of_astra_sim_has_what_was_given() -> None:
    given = build(TRAINING, target=AstraSimOptions(bandwidth_gib_s=50, latency_ns=700))
    [link] = given.simulate().network
    assert (link.bandwidth_gib_s, link.latency_ns) == (50, 700)
    replayed = build(TRAINING, target=AstraSimOptions(replay=True))
    assert replayed.simulate().mode == "replay" and abs(replayed.simulate().worst_error_pct) < 0.1


def test_peaks_need_graphs_of_devices_alone() -> None:
    peaks = AstraSimOptions(roofline="V100:fp32")
    assert build(TRAINING, options=Options(host=False), target=peaks).simulate().mode == "roofline"
    with pytest.raises(ValueError, match=r"roofline needs Options\(host=False\)"):
        build(TRAINING, target=peaks)


def test_ranks_begin_at_once_if_start_offsets_are_left_out(data: Path) -> None:
    offsets = [
        [rank.start_offset_us for rank in build(data / "gloo_slow", target=options, **chosen).simulate().ranks.values()]
        for options, chosen in (
            (AstraSimOptions(replay=True), {}),
            (AstraSimOptions(replay=True), {"start_offsets": False}),
        )
    ]
    assert max(offsets[0]) > 0 and offsets[1] == [0, 0]


def test_a_file_of_goal_is_written_as_its_options_say(tmp_path: Path) -> None:
    measured = build(TRAINING, tmp_path / "measured", target=GoalOptions(measured_communication=True))
    assert measured.build_report is not None and measured.build_report.goal is not None
    build(TRAINING, tmp_path / "messages", target=GoalOptions(chunk_bytes=4096))
    written = [(tmp_path / folder / "job.goal").read_text() for folder in ("measured", "messages")]
    assert "send 4096b" in written[1] and "send 4096b" not in written[0]


@pytest.mark.filterwarnings("ignore:.*fit error")
def test_time_beyond_the_fitted_network_is_left_out_for_either_simulator(data: Path) -> None:
    jobs = [build(data / "gloo_slow", target="goal", excess_time=excess_time) for excess_time in (True, False)]
    reports = [job.build_report for job in jobs]
    excess = [report.goal.ranks[0].excess_ns for report in reports if report and report.goal]
    assert excess[0] > 0 == excess[1]
    ends = [
        build(data / "gloo_slow", target="astra-sim", excess_time=excess_time).simulate().ranks["0"].finish_us
        for excess_time in (True, False)
    ]
    assert ends[0] > ends[1]


def test_a_network_that_does_not_describe_the_job_is_a_warning(data: Path) -> None:
    with pytest.warns(UserWarning, match=r"may not describe this job: .*; AstraSimOptions\(replay=True\) keeps"):
        build(data / "gloo_slow", target="astra-sim")


def test_ranks_that_are_up_to_date_are_built_again_if_forced(tmp_path: Path) -> None:
    graph = tmp_path / "graphs" / "graph.0.et"
    written = []
    for forced in (False, False, True):
        build(TRAINING, tmp_path / "graphs", force=forced)
        written.append(graph.stat().st_mtime_ns)
    assert written[0] == written[1] < written[2]


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"bandwidth_gib_s": 0}, r"bandwidth_gib_s=0\): give a number above 0"),
        ({"latency_ns": -1.0}, r"latency_ns=-1\.0\): give a number above 0"),
        ({"incomplete_groups": "drop"}, 'is "restrict" or "keep", not \'drop\''),
        ({"roofline": "V100:fp32", "replay": True}, "replay has no use for roofline"),
        ({"roofline": "nonsense"}, "'nonsense' is not DEVICE:FORMAT"),
    ],
)
def test_what_makes_no_sense_to_astra_sim_is_refused(wrong: dict[str, Any], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        AstraSimOptions(**wrong)


@pytest.mark.parametrize(
    ("wrong", "answer"),
    [
        ({"chunk_bytes": 0}, "numbers from 1 on"),
        ({"algorithm": "tree"}, "algorithm is 'tree', not one of"),
        ({"simulator": "ns-3"}, "simulator is 'ns-3', not one of"),
    ],
)
def test_what_makes_no_sense_in_goal_is_refused(wrong: dict[str, Any], answer: str) -> None:
    with pytest.raises(ValueError, match=answer):
        GoalOptions(**wrong)
