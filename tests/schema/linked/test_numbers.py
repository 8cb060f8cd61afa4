"""Numbers and arguments as traces write them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from execgraph.linker.link import link, read_linked
from execgraph.linker.readers import read_device_trace, read_host_trace
from execgraph.schema import linked
from execgraph.schema.columns import ABSENT, BytesColumn, OpRows
from execgraph.schema.linked import Arguments, exact_microseconds, exact_times, integer_list, literal, nanoseconds
from execgraph.schema.linked.numbers import EXACT_MICROSECONDS
from execgraph.schema.linked.writer import microsecond_numbers, write_linked
from execgraph.schema.reasons import Counts, Reason
from execgraph.tools.commands import trace_build, trace_convert, trace_diagnose, trace_link, trace_merge, trace_report
from hypothesis import given, strategies as st
from support.builder.timeline import TraceBuilder
from support.folders import DATA, ROOT

DEPTH = 5000
HOSTILE = (
    "[" * DEPTH, "[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH, "(" * DEPTH, "-" * DEPTH, "{[]}", "[{[]:1}]", "[{}, 1, null]",
    "9" * 400, f"[{'9' * DEPTH}]", "[1e999]", "[NaN]", "-Infinity", '{"a":{"b":[{"c":{}}]}}', '[{"ranks":{"a":{}},"pg_name":[{}]}]',
    '[{"ranks":[[0],{},null],"group_size":{}}]', "['\\ud800']", "[\udc00]", "[0]*10**9", "[0, x]", "'\\d'", "\0", " ",
)  # fmt: skip
HOST_FIELDS = "values", "in_split_size", "out_split_size", "pg_desc", "pg_name"
DEVICE_FIELDS = (
    "Concrete Inputs", "Input Dims", "Input type", "Process Group Ranks", "Process Group Name", "Process Group Description",
    "In split size", "Out split size", "pg_config",
)  # fmt: skip
NOT_UTF8 = b'"[\xff]"'


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_can_be_read(text: str) -> None:
    literal(text)
    integer_list(text)
    integer_list([text, literal(text)])


def test_what_is_read_is_what_json_and_python_mean() -> None:
    assert literal('[1, {"a": null}]') == [1, {"a": None}]
    assert literal("[1, {'a': None}, (True,)]") == [1, {"a": None}, (True,)]
    assert [*map(literal, ("", "x", "[1", "print(1)", "[" * DEPTH, "{[]}", "[{[]: 1}]"))] == [None] * 7


def test_a_list_of_numbers_is_a_list_of_numbers_alone() -> None:
    assert integer_list("[0, -1, 2]") == integer_list([0, -1, 2.0]) == [0, -1, 2]
    assert integer_list("") == integer_list(None) == integer_list("[0, 1, ..., 7]") == []
    assert [*map(integer_list, ("[1, x]", "[1.5, '2']", "7 8", 7, [[1]], "{[]}"))] == [None] * 6


def test_no_other_module_reads_such_texts() -> None:
    modules = (
        path for package in ("schema", "linker", "converter", "tools") for path in (ROOT / package).rglob("*.py")
    )
    assert [path.name for path in modules if "literal_eval" in path.read_text()] == ["numbers.py"]


def a_run() -> TraceBuilder:
    t = TraceBuilder("2.13", rank=0, world_size=2)
    group, tensor = t.group([0, 1], name="0"), t.tensor((4, 8))
    with t.op("aten::mm", inputs=[tensor, tensor], outputs=[tensor]):
        t.launch("sgemm", 7, 20)
    for _ in HOSTILE:
        t.collective("alltoall_base", group=group, tensors=[tensor], in_split=[1, 3], out_split=[2, 2])
    return t


def objects(value: Any) -> Iterator[dict[str, Any]]:
    for inside in value.values() if isinstance(value, dict) else value:
        if isinstance(inside, dict | list):
            yield from objects(inside)
    if isinstance(value, dict):
        yield value


def changed(document: dict[str, Any], field: str) -> dict[str, Any]:
    """With another hostile text in each place of that name, and in the arguments of all rows, as it is or in lists."""
    texts = cycle(way for text in HOSTILE for way in (text, [text], [[text]]))
    for row in document.get("traceEvents", ()):
        row.setdefault("args", {}).setdefault(field, None)
    for one in objects(document):
        if field in one:
            one[field] = next(texts)
        if one.get("name") == field and "value" in one:
            one["value"] = next(texts)
    return document


@pytest.mark.parametrize("field", [*HOST_FIELDS, *DEVICE_FIELDS])
def test_no_command_stumbles_over_a_text_in_a_text(tmp_path, capsys, field):
    def command(entry: Any, *arguments: object) -> None:
        with pytest.raises(SystemExit) as ended:
            entry.main([*map(str, arguments)])
        said = capsys.readouterr().err
        assert ended.value.code in (0, 1) and "internal error" not in said, said
        assert ended.value.code == 0 or "error: " in said

    (tmp_path / "traces").mkdir()
    host, device = a_run().write(tmp_path / "traces")
    path = host if field in HOST_FIELDS else device
    text = json.dumps(changed(json.loads(path.read_bytes()), field)).encode()
    path.write_bytes(text.replace(b'" "', NOT_UTF8))
    if path is device:
        command(trace_link, device, "-o", tmp_path / "device.json")
        command(trace_merge, device, "-o", tmp_path / "merged.json")
        command(trace_report, host, device, "--json", "--only", "collectives_over_ranks", "memory_timeline")
    else:
        command(trace_build, tmp_path / "traces", "-o", tmp_path / "graphs", "--jobs", 1)
    if (tmp_path / "device.json").exists():
        command(trace_convert, tmp_path / "device.json", "-o", tmp_path / "graph.et")
    command(trace_diagnose, tmp_path / "traces")


def noted(tmp_path: Path, file: int, field: str, text: str) -> dict[str, int]:
    paths = a_run().write(tmp_path)
    document = json.loads(paths[file].read_bytes())
    for one in objects(document):
        if field in one:
            one[field] = [text] if field == "values" and "process_group:init" in str(one) else text
        if one.get("name") == field:
            one["value"] = text
    paths[file].write_text(json.dumps(document))
    return link(read_host_trace(str(paths[0])), read_device_trace(str(paths[1]))).report.oddities


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    assert noted(tmp_path, 1, "Process Group Ranks", "[{[]:1}]")[Reason.UNREADABLE_LISTS] >= len(HOSTILE)
    assert noted(tmp_path, 0, "in_split_size", "{[]}")[Reason.UNREADABLE_LISTS] == len(HOSTILE)
    assert Reason.UNREADABLE_LISTS not in noted(tmp_path, 0, "in_split_size", "[1, 3]")


@pytest.mark.parametrize(("text", "count"), [("{[]}", 1), ("[" * DEPTH, 1), ('[{"pg_name": "0"}, 7]', 1), ("[]", 0)])
def test_a_description_of_groups_that_cannot_be_read_is_counted(tmp_path: Path, text: str, count: int) -> None:
    host, device = a_run().write(tmp_path)
    document = json.loads(host.read_bytes())
    [init] = [node for node in document["nodes"] if "process_group:init" in node["name"]]
    init["inputs"]["values"] = [text]
    host.write_text(json.dumps(document))
    linked = link(read_host_trace(str(host)), read_device_trace(str(device)))
    for number in range(3):
        assert linked.report.oddities.get(Reason.UNREADABLE_GROUPS, 0) == count
        # as in a file whose communications are found again
        linked.communications.clear()
        for table in (linked.ops, linked.activities):
            table.communication_row[:] = -1
        write_linked(linked, str(tmp_path / f"{number}.json"))
        linked = read_linked(str(tmp_path / f"{number}.json"))


EPOCH_US = 1_694_128_201_427_784
TIMES = st.integers(-(1 << 60), 1 << 60)


@given(TIMES)
def test_a_time_survives_being_written_and_read(time: int) -> None:
    assert nanoseconds([Decimal(exact_microseconds(time))]).tolist() == [time]
    assert nanoseconds([exact_microseconds(time)]).tolist() == [time]


@given(st.integers(0, int(EXACT_MICROSECONDS) - 1), st.integers(0, 999))
def test_doubles_below_2_to_the_43_are_exact(whole: int, fraction: int) -> None:
    assert nanoseconds([whole + fraction / 1000, 0.5]).tolist() == [whole * 1000 + fraction, 500]


@pytest.mark.parametrize("beside", [[], [1], [1.5], [None]])
@pytest.mark.parametrize("fraction", [0.25, 0.0])
def test_a_double_that_may_have_lost_nanoseconds_is_refused(beside: list[float | None], fraction: float) -> None:
    with pytest.raises(linked.InexactTime):
        nanoseconds([EPOCH_US + fraction, *beside])


@pytest.mark.parametrize(
    ("stamps", "times"),
    [
        ([], []), ([EPOCH_US, EPOCH_US + 1], [EPOCH_US * 1000, EPOCH_US * 1000 + 1000]),
        ([Decimal(f"{EPOCH_US}.789")], [EPOCH_US * 1000 + 789]), ([2.0004, 2.0006], [2000, 2001]),
        ([Decimal("2.0004"), Decimal("2.0006")], [2000, 2001]),
        (["1.5", None, "soon", 2], [1500, ABSENT, ABSENT, 2000]),
    ],
    ids=["none", "whole", "decimal", "rounded", "rounded decimals", "texts and nothing"],
)  # fmt: skip
def test_stamps_of_any_type_are_nanoseconds(stamps: list[Any], times: list[int]) -> None:
    assert nanoseconds(stamps).tolist() == times


@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), 1e300, 1 << 80, "1e400", "1e999999999"])
def test_what_is_no_time_is_absent(stamp: float | str) -> None:
    assert nanoseconds([stamp, 1]).tolist() == [ABSENT, 1000]


@pytest.mark.parametrize(
    ("time", "text"), [(0, "0"), (1, "0.001"), (-1, "-0.001"), (1500, "1.5"), (EPOCH_US * 1000, str(EPOCH_US))]
)
def test_microseconds_are_written_without_needless_zeros(time: int, text: str) -> None:
    assert exact_microseconds(time) == text


def test_exact_times_know_how_many_digits_they_had() -> None:
    times = exact_times([b"12.5", b'"-3.045"', b"7", b"1e3", b"null", b"soon"])
    assert times.ns.tolist() == [12_500, -3045, 7000, 1_000_000, ABSENT, ABSENT]
    assert times.digits.tolist() == [1, 3, 0, -1, -1, -1]


@pytest.mark.parametrize(
    ("texts", "lacks"),
    [
        ([b"10.7", b"11.120"], True),
        ([b"10.7", b"11.012"], False),  # a padded fraction
        ([b"10.5", b"11.25", b"12.75", b"13.2", b"14.8"], False),  # what a double holds near a time since 1970
        ([b"10.120", b"11.386"], False),
        ([b"10", b"11"], False),
    ],
)
def test_a_lack_of_padding_is_told_by_the_digits(texts: list[bytes], lacks: bool) -> None:
    assert linked.lacks_padding([exact_times(texts)]) is lacks


def test_padding_is_added_to_fractions() -> None:
    found = linked.with_padding(exact_times([b"10.7", b"11.12", b"12.345", b"13"])).tolist()
    assert found == [10_007, 11_012, 12_345, 13_000]


def test_texts_of_times_beyond_any_clock_are_absent() -> None:
    times = exact_times([b"4611686018427387.903", b"4611686018427387.904", b"-9000000000000000"])
    assert times.ns.tolist() == [(1 << 62) - 1, ABSENT, ABSENT]


@given(st.lists(st.integers(-(1 << 60), 1 << 60) | st.integers(-(10**15), 10**15), min_size=1))
def test_times_are_written_as_exact_microseconds_without_needless_zeros(times: list[int]) -> None:
    written = msgspec.json.encode(microsecond_numbers(np.array(times, np.int64)))
    stamps = json.loads(written, parse_float=Decimal)
    assert nanoseconds([Decimal(stamp) for stamp in stamps]).tolist() == times
    assert all(not str(stamp).endswith("0") for stamp in stamps if "." in str(stamp))


TEXTS = (
    b'{"values": [[3,4,0,6,4,"cuda:0"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"], "strides": [[3,1],[]]}',
    b'{"values": [[31,42,100,6,4,"cuda:11"],5], "shapes": [[2,3],[]], "types": ["Tensor(float)","Int"], "strides": [[50,1],[]]}',
    b'{"values": [], "shapes": [], "types": []}', b'{"values":[],"shapes":[],"types":[]}',
    b'{"values": [1,[[7,8,0,1,8,"cpu"],[9,10,2,3,8,"meta"]]], "shapes": [[],[[],[3]]], "types": ["Int","List"]}',
    b'{"values": [[1,1000000000000000000,0,1,4,"cuda:0"]], "shapes": [[1]], "types": ["Tensor(float)"]}',
    b'{"shapes": [[1]], "values": [[1,2,0,1,4,"cuda"]], "types": ["a:1"]}',
    b'{"values": ["{\\"ranks\\": [0, 1]}"], "shapes": [[]], "types": ["String"]}',
    b'{"values": [{"a": [5,6,7,8,2,"cpu:0"]}], "shapes": [[]], "types": ["Dict"]}',
)  # fmt: skip


def arguments(inputs: Sequence[bytes], outputs: Sequence[bytes] = ()) -> Arguments:
    return Arguments(BytesColumn.of(inputs), BytesColumn.of(outputs))


@cache
def recorded(name: str) -> list[bytes]:
    trace = read_host_trace(str(DATA / name / "host_rank0.json.gz"))
    return [*trace.inputs, *trace.outputs]


@pytest.mark.parametrize("name", ["", "ddp", "attention"])
def test_the_same_tensors_are_found_as_in_each_text(name: str) -> None:
    texts = recorded(name) if name else [*TEXTS]
    found = arguments(texts).tensors
    columns = (found.tensor, found.storage, found.offset, found.elements, found.size, found.argument)
    rows: dict[int, list[tuple[int, ...]]] = {}
    for row, *numbers in zip(found.row.tolist(), *(column.tolist() for column in columns), strict=True):
        rows.setdefault(row, []).append(tuple(numbers))
    for row, read in enumerate(map(linked.RecordedArguments.of, texts)):
        assert rows.get(row, []) == [(*tensor[:5], tensor.argument) for tensor in read.tensors]


def test_of_a_tensor_the_argument_device_and_what_it_spans_are_known() -> None:
    tensors = arguments(TEXTS).tensors
    assert tensors.argument.tolist() == [0, 0, 1, 1, 0, 0]
    assert tensors.device.tolist() == [0, 11, linked.HOST, -2, 0, linked.HOST]
    assert tensors.spanned.tolist() == [6, 53, 0, 0, 0, 0]


def test_tensors_are_by_op_its_arguments_before_its_results() -> None:
    found = arguments(TEXTS[:2], TEXTS[:5:4]).tensors
    assert [*zip(found.row.tolist(), found.is_output.tolist(), found.storage.tolist(), strict=True)] == [
        (0, False, 4), (0, True, 4), (1, False, 42), (1, True, 8), (1, True, 10),
    ]  # fmt: skip
    assert (found.low.tolist(), found.high.tolist()) == ([0, 0, 400, 0, 16], [24, 24, 424, 8, 40])
    chosen = found.of(OpRows(np.array([1, 0])))
    assert (chosen.row.tolist(), chosen.storage.tolist()) == ([0, 0, 0, 1, 1], [42, 8, 10, 4, 4])


@pytest.mark.parametrize(
    "text",
    [
        b'{"values": [[1,2,0,1,4,"cuda:0"]], "shapes": [[1,2,3,4,5,"x"]], "types": []}',
        b'{"values": [[1,2,0,1,4,"cuda:0"]], "values": [7]}',
        b'{"values": {"a": 1}, "shapes": [[1,2,3,4,5,"x"]]}',
    ],
)
def test_what_only_looks_like_a_tensor_is_none_and_other_texts_keep_theirs(text: bytes) -> None:
    found = arguments([TEXTS[0], text, TEXTS[1]]).tensors
    assert (found.row.tolist(), found.storage.tolist()) == ([0, 2], [4, 42])


def test_line_ends_in_texts_are_blanks() -> None:
    texts = [text.replace(b" ", b"\n") for text in TEXTS]
    assert arguments(texts).tensors.storage.tolist() == arguments(TEXTS).tensors.storage.tolist()


@pytest.mark.parametrize("name", ["", "ddp"])
def test_members_are_those_of_each_text(name: str) -> None:
    texts = recorded(name) if name else [*TEXTS]
    skipped, skipped_one_by_one = Counter[str](), Counter[str]()
    members = arguments(texts, [linked.NO_TENSORS] * len(texts)).member_texts(OpRows(np.arange(len(texts))), skipped)
    usable = linked.usable_arguments(texts, skipped_one_by_one)
    for column, name in zip(members[:3], ("values", "shapes", "types"), strict=True):
        listed = [msgspec.json.decode(b'{"%b":%b}' % (name.encode(), text)) for text in column]
        assert listed == [{name: msgspec.json.decode(text).get(name, [])} for text in usable]
    assert skipped == skipped_one_by_one


def test_arguments_that_are_no_lists_and_tensors_too_large_are_counted_in_the_order_of_members():
    skipped = Counts()
    text = b'{"types":5,"values":[[%b,2,0,1,4,"cuda"]],"shapes":5}' % (20 * b"9")
    assert linked.usable_arguments([text], skipped) == [b'{"types":[],"values":[[]],"shapes":[]}']
    assert list(skipped.items()) == [(Reason.TENSORS_TOO_LARGE, 1), (Reason.ARGUMENTS_NO_LISTS, 2)]


ADD = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
OUT = "aten::max.dim_max(Tensor self, int dim, *, Tensor(a!) max, Tensor(b!) max_values) -> (Tensor(a!), Tensor(b!))"
LIST = "aten::f(Tensor(a -> *) self, int[2] stride=[1, 1], Tensor(b!) last) -> Tensor"


@pytest.mark.parametrize(
    ("schema", "names", "written", "only_written"),
    [
        (ADD, "self other alpha", (0,), ()), (OUT, "self dim max max_values", (2, 3), (2, 3)),
        (LIST, "self stride last", (2,), ()), ("aten::f() -> ()", "", (), ()), ("", "", (), ()),
    ],
)  # fmt: skip
def test_written_arguments_are_marked_and_those_by_name_alone_are_not_read(schema, names, written, only_written):
    assert linked.declared_arguments(schema) == (tuple(names.split()), written, only_written)
