"""Objects found in a piece of JSON: the outermost that are complete, in linear time."""

import json
import re
from collections.abc import Iterator

import pytest
from execgraph.tools import recognise as json_parts
from execgraph.tools.recognise import objects_after, objects_in
from hypothesis import given, strategies as st

ROWS = st.lists(
    st.recursive(
        st.dictionaries(st.sampled_from("abc"), st.integers() | st.text('{}[]"\\a'), max_size=3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.lists(inner, max_size=2), max_size=3),
    ),
    max_size=4,
)


@given(ROWS, st.data())
def test_whole_rows_of_a_text_that_was_cut_off_are_found_and_of_the_last_one_what_is_complete(
    rows: list[dict[str, object]], data: st.DataObject
) -> None:
    text = json.dumps(rows)
    cut = data.draw(st.integers(0, len(text)))
    found = [*objects_in(text[:cut])]
    whole, decoder, at = [], json.JSONDecoder(), 1
    for row in rows:
        at = text.index("{", at)
        at = decoder.raw_decode(text, at)[1]
        whole += [row] * (at <= cut)
    assert found[: len(whole)] == whole
    assert all(json.dumps(inner) in text for inner in found[len(whole) :])


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 20_000,
        '{"a":[' * 20_000,
        json.dumps({"a": '{"a":' * 20_000})[:-1],
        '{"a":{"b":{}},' * 20_000,
        ('{"a":' * 300 + "x") * 70,
        '{"a":[1,' + "1," * 20_000,
        '{"a":"' + '\\"{' * 20_000,
        "{" * 20_000,
    ],
)
def test_no_part_of_a_text_is_decoded_more_than_a_few_times(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    decoded = []

    def format_counts(_: str, at: int) -> tuple[object, int]:
        try:
            found, end = json.JSONDecoder(strict=False).raw_decode(text, at)
        except json.JSONDecodeError as error:
            decoded.append(error.pos - at)
            raise
        except RecursionError:
            decoded.append(5000)
            raise
        decoded.append(end - at)
        return found, end

    monkeypatch.setattr(json_parts.DECODER, "raw_decode", format_counts)
    found: Iterator[object] = objects_in(text)
    assert all(isinstance(one, dict) for one in found)
    assert sum(decoded) < 8 * len(text)


def test_only_an_object_right_after_its_key_is_the_keys() -> None:
    key = re.compile('"k":(?={)')
    assert [*objects_after(key, '"k":{"a": 1}, "k":{"k":{"a": 2}}, "k":{"a": {"b": 3}')] == [{"a": 1}, {"k": {"a": 2}}]
