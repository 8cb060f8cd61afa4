"""A file is not written under a name that ends like another kind of file."""

import pytest
from execgraph.schema.endings import check_ending, other_ending


@pytest.mark.parametrize("name", ["graph.0.et", "G.JSON.GZ", "graph", "rank.7", "-", "a.json/graph"])
def test_a_name_that_says_the_same_or_nothing_is_fine(name: str) -> None:
    assert other_ending(name, ".et", ".json") == ""


@pytest.mark.parametrize("name", ["a.txt", "a.TXT.gz", "a.svg", "a.csv"])
def test_a_name_that_says_another_thing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"name a file that ends in \.et or \.json"):
        check_ending(name, ".et", ".json")
