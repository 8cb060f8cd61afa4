"""Who waits for whom: from synchronisation records where there are any, else from the order of the calls."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from execgraph.linker.link import link
from execgraph.linker.readers import read_device_trace
from execgraph.schema.graph import DependencyKind
from execgraph.schema.reasons import Reason
from support import runs
from support.builder.records import LAYOUTS
from support.builder.timeline import TraceBuilder
from support.runs import RECORDED, UNRECORDED, WITHOUT_EVENT, convert_run, device_waits, host_waits, link_run, scripted

EVENT_WAIT, HOST_SYNC, CALL_ORDER = DependencyKind.EVENT_WAIT, DependencyKind.HOST_SYNC, DependencyKind.CALL_ORDER
KNOWLEDGE = pytest.mark.parametrize("known", [RECORDED, WITHOUT_EVENT, UNRECORDED], ids=["record", "-1", "calls"])


# A stream waits for an event


@KNOWLEDGE
@pytest.mark.parametrize("torch", LAYOUTS)
def test_the_next_activity_of_a_waiting_stream_follows_what_the_event_marked(torch: str, known: dict[str, Any]) -> None:
    t = TraceBuilder(torch=torch, **known)
    t.launch("marked", 7, 50)
    event = t.record_event(stream=7)
    t.wait_event(event, stream=20)
    t.launch("waits", 20, 5)
    t.launch("after", 20, 5)
    t.leaf("aten::add", 5)
    assert device_waits(link_run(t)) == {("marked", "waits")}
    nodes = convert_run(t)
    assert nodes.follows("waits")["marked"] == (EVENT_WAIT if known is RECORDED else EVENT_WAIT | CALL_ORDER)
    assert "marked" not in nodes.follows("after")
    assert nodes.replay_error() == 0


@pytest.mark.parametrize(("begins_early_us", "is_possible"), [(0.002, True), (0.003, False)])
def test_what_waits_begins_when_the_awaited_work_has_ended_but_for_rounding(begins_early_us, is_possible):
    t = TraceBuilder()
    t.leaf("aten::add", 5)
    t.launch("marked", 7, 50)
    t.wait_event(t.record_event(stream=7), stream=20)
    t.launch("waits", 20, 5, start=t.ready[7] / 1000 - begins_early_us)
    assert device_waits(link_run(t)) == ({("marked", "waits")} if is_possible else set())


@pytest.mark.parametrize(
    ("script", "waits"),
    [
        # an event marks what was submitted before it
        ("before@7:50; record e 7; after@7:50; wait e 20; waits@20", {("before", "waits")}),
        pytest.param(
            "first@7:50; record e 7; wait e 20; second@7:50; record e 7; wait e 24; one@20; two@24",
            {("first", "one"), ("second", "two")},
            id="an event recorded again marks the later work from then on",
        ),
        # waits are passed on by a stream that never has work
        ("first@7:50; 7>24; 24>20; last@20", {("first", "last")}),
        # an activity waits for all that its stream was told to
        ("a@7:50; b@24:40; 7>20; 24>20; waits@20", {("a", "waits"), ("b", "waits")}),
        # a pending wait is a source beside the stream's own work
        ("own@24; awaited@7:50; 7>24; 24>20; last@20", {("own", "last"), ("awaited", "last")}),
        # a consumed wait is no source any more
        ("awaited@7:50; 7>24; consumer@24; 24>20; last@20", {("awaited", "consumer"), ("consumer", "last")}),
    ],
)
def test_recorded_events_are_awaited(script: str, waits: set[tuple[str, str]]) -> None:
    t = scripted(script)
    assert device_waits(link_run(t)) == waits
    assert convert_run(t).edges(EVENT_WAIT) == waits


def test_a_guessed_event_is_counted_and_marked() -> None:
    report = link_run(scripted("k@7:50; 7>20; waits@20", **WITHOUT_EVENT)).report
    assert sum(report.guessed.values()) == 1
    assert report.waits == {Reason.STREAM_WAITS.of("call order"): 1}


# The host waits


@KNOWLEDGE
@pytest.mark.parametrize("wait", ["stream_synchronize", "device_synchronize", "event_synchronize"])
def test_a_host_wait_follows_the_last_activity_submitted(wait: str, known: dict[str, Any]) -> None:
    t = TraceBuilder(**known)
    t.launch("first", 7, 50)
    t.launch("last", 7, 50)
    argument = [t.record_event(stream=7)] if wait == "event_synchronize" else []
    getattr(t, wait)(*argument)
    t.launch("later", 7, 50)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert {source for source, _ in host_waits(linked)} == {"last"}
    nodes = convert_run(t)
    call = {"stream": "cudaStreamSynchronize", "device": "cudaDeviceSynchronize", "event": "cudaEventSynchronize"}
    unnamed = {"event_synchronize": (WITHOUT_EVENT, UNRECORDED), "stream_synchronize": (UNRECORDED,)}.get(wait, ())
    kind = HOST_SYNC | CALL_ORDER if known in unnamed else HOST_SYNC
    assert nodes.follows(call[wait.partition("_")[0]])["last"] == kind
    assert nodes.replay_error() == 0


STREAM, DEVICE, QUERY = "cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventQuery"
COPY = "Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync"
RECORD, TIMING = Reason.HOST_WAITS.of("record"), Reason.HOST_WAITS.of("timing")


@pytest.mark.parametrize(
    ("script", "known", "waits", "counted"),
    [
        # a stream synchronisation waits for its stream only
        ("short@7:20; long@20:200; sync 7", RECORDED, {("short", STREAM)}, {RECORD: 1}),
        # without records the stream is the one whose end explains the call's length
        ("short@7:20; long@20:200; sync 7", UNRECORDED, {("short", STREAM)}, {TIMING: 1}),
        # a device synchronisation waits for every stream
        ("a@7:50; b@20:50; c@24:50; sync", RECORDED, {("a", DEVICE), ("b", DEVICE), ("c", DEVICE)}, {RECORD: 1}),
        # a host wait covers what its stream waits for
        ("own@20:1; awaited@7:50; 7>20; sync 20", RECORDED, {("own", STREAM), ("awaited", STREAM)}, {RECORD: 1}),
        # a synchronisation with nothing pending is kept as a wait
        ("sync 7", RECORDED, {("", STREAM)}, {}),
        # a download to pageable memory
        ("k@7:50; copy DtoH", RECORDED, {COPY}, {Reason.BLOCKING_COPIES: 1}),
        pytest.param("k@7:50; copy HtoD", RECORDED, set(), {}, id="an upload does not block"),
        pytest.param("k@7:50; copy DtoD", RECORDED, set(), {}, id="a copy on the device does not block"),
        # a query before the event is no wait
        ("k@7:50; record e 7; query e", RECORDED, set(), {Reason.PENDING_QUERIES: 1}),
        # a query after the event is a wait
        ("k@7:50; record e 7; idle 100; query e", RECORDED, {("k", QUERY)}, {RECORD: 1}),
        # a query without a record asks about what was recorded
        ("k@7; record e 7; idle 100; query e", UNRECORDED, {("k", QUERY)}, {Reason.HOST_WAITS.of("call order"): 1}),
    ],
)
def test_the_host_waits(script, known, waits, counted):
    t = scripted(script, **known)
    linked = link_run(t)
    assert (host_waits(linked), {reason: linked.report.waits[reason] for reason in counted}) == (waits, counted)
    assert convert_run(t).replay_error() == 0


# Queries


@pytest.mark.parametrize(("late_ns", "waits"), [(0, {("k", "cudaEventQuery")}), (1, set())])
def test_a_single_query_found_pending_what_ended_after_it(t, late_ns, waits):
    t.launch("k", 7, 50)
    event = t.record_event(stream=7)
    t.idle(100)
    assert t.event_query(event)
    t.activities[-1] = replace(t.activities[-1], end=t.calls[-1].end + late_ns)
    t.leaf("aten::add", 5)
    assert host_waits(link_run(t)) == waits


def test_a_polling_loop_is_one_wait(t: TraceBuilder) -> None:
    t.launch("k", 7, 50)
    event = t.record_event(stream=7)
    while not t.event_query(event):
        t.work(5)
    t.leaf("aten::add", 5)
    nodes = convert_run(t)
    assert nodes.edges(HOST_SYNC) == {("k", "cudaEventQuery")}
    assert nodes.replay_error() == 0
    assert nodes.time("cudaEventQuery")[0] == nodes.time("k")[1]


def test_a_host_that_really_waited_did_so_for_what_ended_then() -> None:
    """Not for the oldest event that nobody waited for, of which a memory allocator leaves many."""
    t = TraceBuilder(**UNRECORDED)
    for name in ("old", "older"):
        t.launch(name, 7, 10)
        t.record_event(stream=7)
    t.launch("awaited", 7, 300)
    event = t.record_event(stream=7)
    t.launch("later", 7, 300)
    t.record_event(stream=7)
    t.event_synchronize(event)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert host_waits(linked) == {("awaited", "cudaEventSynchronize")}
    assert sum(linked.report.guessed.values()) == 1


def test_a_host_cannot_have_waited_for_what_followed_later_work(t: TraceBuilder) -> None:
    """Either the stream is no queue or the clocks are wrong; without the wait the trace still converts."""
    t.memcpy("DtoH", 7, 20, start=100)
    t.launch("later", 7, 20, start=50)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    assert host_waits(linked) == set()
    assert linked.report.dropped == {Reason.HOST_WAIT_AGAINST_LAUNCHES: 1}
    assert runs.broken_rules(convert_run(t)) == []


@pytest.mark.parametrize("number", [5, 6])
def test_a_queue_that_waits_for_a_numbered_event_record_of_another_one(number: int) -> None:
    """As MTIA's device queues record it; an event record that is not there leaves the wait open, which is counted."""
    t = TraceBuilder(**UNRECORDED)
    t.launch("awaited", 7, 50)
    end = t.activities[-1].end / 1000
    t.launch("goes on", 20, 10, start=end + 2)
    t.leaf("aten::add", 5)
    zero = t.origin_ns / 1000
    for name, args, start, duration in (
        ("event_record", {"stream": 7, "seq_num": 5}, end + 0.5, 1),
        ("event_wait", {"stream": 20, "wait_on_stream": 7, "seq_num": number}, 8, end - 7.4),
    ):
        row = {"ph": "X", "cat": "mtia_ccp_events", "name": name, "pid": 0, "tid": args["stream"]}
        t.add_device_event({**row, "ts": zero + start, "dur": duration, "args": {"device": 0, **args}})
    linked = link_run(t)
    assert device_waits(linked) == ({("awaited", "goes on")} if number == 5 else set())
    assert linked.report.dropped == ({} if number == 5 else {Reason.QUEUE_WAIT_WITHOUT_RECORD: 1})


# Two real programs, rebuilt


EVENT_SYNCHRONISATION = {
    ("Memcpy DtoH (Device -> Pageable)", "cudaMemcpyAsync"),
    ("Memcpy DtoH (Device -> Pageable)", "cudaStreamSynchronize"), ("spin", "cudaEventSynchronize"),
    ("spin", "cudaEventQuery"), ("spin", "cudaDeviceSynchronize"),
}  # fmt: skip


def test_the_real_programs_have_the_same_waits(real_traces: Path) -> None:
    path = real_traces / "critical_path" / "event_sync.json.gz"
    linked = link(None, read_device_trace(str(path)))
    spin = next(name for name in linked.activities.name.table if "spin_kernel" in name)
    assert host_waits(linked) == {(source.replace("spin", spin), call) for source, call in EVENT_SYNCHRONISATION}
    path = real_traces / "critical_path" / "event_sync_multi_stream.json.gz"
    linked = link(None, read_device_trace(str(path)))
    activities, device, host = linked.activities, linked.device_waits, linked.host_waits
    rows = zip(host.source_row.tolist(), host.call_row.tolist(), strict=True)
    waits = {(int(activities.stream[source]), linked.calls.name[call]) for source, call in rows if source >= 0}
    assert waits == {(20, QUERY), (28, QUERY), *((stream, DEVICE) for stream in (20, 24, 28))}
    assert activities.stream[device.source_row].tolist() == [20]
    assert activities.name[int(device.target_row[0])] == "Memset (Device)"


def test_a_loop_of_queries_goes_on_until_what_the_stream_itself_waited_for_is_over(t: TraceBuilder) -> None:
    """The stream has long been done when the event is recorded, but for what another one does."""
    t.launch("own", 7, 5)
    t.launch("other", 20, 400)
    t.wait_event(t.record_event(stream=20), stream=7)
    event = t.record_event(stream=7)
    first = t.now
    while t.now < 420:
        t.event_query(event)
    t.leaf("aten::add", 5)
    waits = link_run(t).host_waits
    assert waits.since.max() - t.origin_ns == pytest.approx(1000 * first, abs=2_000)


def test_a_collective_is_not_awaited_by_a_stream_that_went_on_before_it_had_ended() -> None:
    """The next launch of the thread is on another stream than the one that waits."""
    t = TraceBuilder(rank=0, world_size=2, **UNRECORDED)
    group = t.group([0, 1])
    buffer = t.tensor()
    t.launch("before", 7, 5)
    t.launch("elsewhere before", 24, 5)
    t.launch("before", 7, 5)
    reduced = t.collective("allreduce", group=group, tensors=[buffer], duration=500)
    t.wait_collective(reduced, stream=7)
    t.launch("elsewhere", 24, 5)
    t.launch("after", 7, 5)
    t.leaf("aten::add", 5)
    linked = link_run(t)
    (collective,) = {source for source, target in device_waits(linked) if target == "after"}
    assert collective.startswith("nccl")
    assert not {target for source, target in device_waits(linked) if source == collective} - {"after"}
    assert Reason.EVENT_WAIT_AGAINST_CLOCK not in linked.report.dropped
