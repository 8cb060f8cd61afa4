"""Options of simulators are checked when they are made."""

from typing import Any

import pytest
from execgraph import AstraSimOptions, GoalOptions


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
