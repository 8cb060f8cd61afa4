"""Lists of ranks as text, from elsewhere too."""

import pytest
from execgraph.converter.ranks.groups import given_ranks, ranks_of, ranks_text


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("4", (4,)),
        ("0-3", (0, 1, 2, 3)),
        ("0-10:5,1", (0, 5, 10, 1)),
        ("9-4:-3", (9, 6)),
        ("0-7:5", (0, 5)),
        ("3-2", ()),
    ],
)
def test_a_given_list_has_no_more_ranks_than_the_limit(text: str, ranks: tuple[int, ...]) -> None:
    assert given_ranks(text, len(ranks)) == ranks_of(text) == ranks
    if ranks:
        assert given_ranks(text, len(ranks) - 1) is None


@pytest.mark.parametrize("text", ["", "all", "-1", "1,", "0-3:0", "0-3:", "0-1-2", "0-9999999999"])
def test_other_texts_are_no_list(text: str) -> None:
    assert given_ranks(text, 1_000) is None


@pytest.mark.parametrize("ranks", [(), (7,), (1, 2), (3, 2, 1), (0, 1, 3, 5, 7), (4, 4, 4), (9, 6, 3, 3)])
def test_the_text_of_a_list_gives_the_list_back(ranks: tuple[int, ...]) -> None:
    assert ranks_of(ranks_text(ranks)) == ranks
