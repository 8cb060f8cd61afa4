"""Which collectives may wait for longer ones beside which they ran."""

from execgraph.converter.ranks import CommunicationEntry, with_deferred_ends
from execgraph.schema.graph import CollectiveType, NodeType

LONG, SHORT = 0, 1


def _entry(matched: int, start_ns: int, end_ns: int, slack_ns: int = 0, on_host: bool = False) -> CommunicationEntry:
    length = end_ns - start_ns
    return CommunicationEntry(
        node=matched, type=NodeType.COMM_COLL, collective=CollectiveType.ALL_REDUCE, matched=matched, members=2, size=8,
        end_ns=end_ns, length_ns=length, transfer_ns=length, kernel=-1, on_host=on_host, follows=(), slack_ns=slack_ns,
    )  # fmt: skip


def _ends(*issued: list[CommunicationEntry]) -> list[dict[int, int]]:
    return [{entry.matched: entry.end_ns for entry in entries} for entries in with_deferred_ends(issued)]


def test_one_that_nobody_needs_before_the_longer_one_ends_waits_for_it() -> None:
    rank = [_entry(LONG, 0, 100), _entry(SHORT, 20, 40, slack_ns=70)]
    assert _ends(rank, rank) == [{LONG: 100, SHORT: 101}] * 2


def test_one_that_a_rank_needs_sooner_does_not_wait() -> None:
    patient, hasty = ([_entry(LONG, 0, 100), _entry(SHORT, 20, 40, slack_ns=slack)] for slack in (70, 50))
    assert _ends(patient, hasty) == [{LONG: 100, SHORT: 40}] * 2


def test_one_that_another_member_ran_by_itself_does_not_wait() -> None:
    beside, alone = [_entry(LONG, 0, 100), _entry(SHORT, 20, 40, slack_ns=70)], [_entry(SHORT, 20, 40, slack_ns=70)]
    assert _ends(beside, alone) == [{LONG: 100, SHORT: 40}, {SHORT: 40}]


def test_it_began_when_its_last_member_came() -> None:
    early, late = ([_entry(SHORT, start, 40, slack_ns=70), _entry(LONG, 10, 100)] for start in (0, 20))
    assert _ends(early, late) == [{SHORT: 101, LONG: 100}] * 2
    assert _ends(early, early) == [{SHORT: 40, LONG: 100}] * 2


def test_host_threads_do_not_wait() -> None:
    rank = [_entry(LONG, 0, 100, on_host=True), _entry(SHORT, 20, 40, slack_ns=70, on_host=True)]
    assert _ends(rank, rank) == [{LONG: 100, SHORT: 40}] * 2


def test_of_several_longer_ones_it_waits_for_the_last_that_is_early_enough() -> None:
    rank = [_entry(0, 0, 100), _entry(1, 5, 150), _entry(2, 10, 200), _entry(3, 20, 40, slack_ns=150)]
    assert _ends(rank, rank)[0] == {0: 100, 1: 150, 2: 200, 3: 151}


def test_one_that_may_end_no_later_than_the_longer_one_does_not_wait() -> None:
    for slack_ns, end_ns in ((61, 101), (60, 40)):
        rank = [_entry(LONG, 0, 100), _entry(SHORT, 20, 40, slack_ns=slack_ns)]
        assert _ends(rank, rank)[0] == {LONG: 100, SHORT: end_ns}


def test_collectives_that_follow_each_other_or_end_at_once_do_not_wait() -> None:
    rank = [_entry(0, 0, 20), _entry(1, 20, 40, slack_ns=70), _entry(2, 40, 60, slack_ns=70), _entry(3, 45, 60)]
    assert _ends(rank, rank)[0] == {0: 20, 1: 40, 2: 60, 3: 60}


def test_messages_are_neither_deferred_nor_awaited() -> None:
    sent = {"type": NodeType.COMM_SEND, "collective": -1}
    rank = [_entry(LONG, 0, 100)._replace(**sent), _entry(SHORT, 20, 40, slack_ns=70)]
    assert _ends(rank, rank)[0] == {LONG: 100, SHORT: 40}
    rank = [_entry(LONG, 0, 100), _entry(SHORT, 20, 40, slack_ns=70)._replace(**sent)]
    assert _ends(rank, rank)[0] == {LONG: 100, SHORT: 40}


def test_the_longer_one_ends_with_its_last_member() -> None:
    ranks = ([_entry(LONG, 0, end), _entry(SHORT, 20, 40, slack_ns=90)] for end in (100, 104))
    assert _ends(*ranks) == [{LONG: 100, SHORT: 105}, {LONG: 104, SHORT: 105}]
