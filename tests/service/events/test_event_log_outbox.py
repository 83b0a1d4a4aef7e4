"""Lines that wait for a sink: never more than their bound; what is given up is the oldest, and counted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from service.events.outbox import MOST_UNREPORTED, Line, Outbox, all_unreported


def line(text: str, topic: str | None = None) -> Line:
    return Line(text.encode(), topic)


def put(outbox: Outbox, *texts: str) -> None:
    for text in texts:
        outbox.put(line(text))


def test_lines_come_out_in_their_order_up_to_so_many_bytes() -> None:
    outbox = Outbox(100)
    put(outbox, "aa", "bb", "cc")
    assert outbox.take(5) == [line("aa"), line("bb")]
    assert outbox.take(5) == [line("cc")]
    assert outbox.take(5) == []


def test_a_line_larger_than_what_is_asked_for_comes_alone() -> None:
    outbox = Outbox(100)
    put(outbox, "a" * 50, "b")
    assert outbox.take(5) == [line("a" * 50)]
    assert outbox.take(5) == [line("b")]


def test_the_oldest_make_room() -> None:
    outbox = Outbox(6)
    put(outbox, "aa", "bb", "cc", "dd")
    assert outbox.dropped == 1
    assert outbox.take(100) == [line("bb"), line("cc"), line("dd")]


def test_what_is_put_back_is_the_oldest_again() -> None:
    outbox = Outbox(6)
    put(outbox, "aa", "bb", "cc")
    taken = outbox.take(4)
    put(outbox, "dd")
    outbox.put_back(taken)
    assert outbox.dropped == 1
    assert outbox.take(100) == [line("bb"), line("cc"), line("dd")]


def test_a_line_that_no_outbox_holds_is_given_up_itself() -> None:
    outbox = Outbox(4)
    put(outbox, "aa", "b" * 5)
    assert len(outbox) == 0
    assert (outbox.dropped, outbox.waiting_bytes) == (2, 0)


def test_half_of_it_is_kept_for_what_can_not_wait() -> None:
    outbox = Outbox(10)
    put(outbox, "aaaa")
    assert outbox.has_room
    put(outbox, "a")
    assert not outbox.has_room


def test_the_topic_of_a_lost_line_is_told_once_there_is_room() -> None:
    outbox = Outbox(6)
    for text, topic in (("aa", "orders"), ("bb", None), ("cc", "refunds"), ("dd", "orders")):
        outbox.put(line(text, topic))
    assert outbox.take_unreported() == set()  # there is no room yet
    outbox.lose(outbox.take(100)[1:2])
    assert outbox.take_unreported() == {"orders", "refunds"}
    assert outbox.take_unreported() == set()
    assert outbox.dropped == 2


def test_where_lines_of_too_many_topics_were_lost_all_topics_are_told_anew() -> None:
    outbox = Outbox(6)
    outbox.lose(line("a", f"topic-{number}") for number in range(MOST_UNREPORTED + 1))
    assert not outbox._unreported
    unreported = all_unreported([outbox.take_unreported(), {"orders"}])
    assert "topic-0" in unreported
    assert "never-heard-of" in unreported
    assert outbox.take_unreported() == set()


def test_what_no_sink_was_told_is_told_together() -> None:
    assert all_unreported([{"orders"}, set(), {"refunds"}]) == {"orders", "refunds"}


class AnyOutbox(RuleBasedStateMachine):
    """Whatever is put in, taken and put back: the bound holds, and no line is lost without being counted."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(40)
        self.count = 0
        self.taken: list[Line] = []
        self.gone = 0

    @rule(length=st.integers(0, 60))
    def put(self, length: int) -> None:
        self.count += 1
        self.outbox.put(line(f"{self.count:03d}{'.' * length}"))

    @rule(most=st.integers(0, 80))
    def take(self, most: int) -> None:
        self.taken += self.outbox.take(most)

    @rule()
    def give_back(self) -> None:
        self.outbox.put_back(self.taken)
        self.taken = []

    @rule()
    def hand_on(self) -> None:
        self.gone += len(self.taken)
        self.taken = []

    @invariant()
    def it_is_bounded_and_counts(self) -> None:
        assert 0 <= self.outbox.waiting_bytes <= 40
        assert self.count == len(self.outbox) + len(self.taken) + self.gone + self.outbox.dropped


TestAnyOutbox = AnyOutbox.TestCase


@given(st.lists(st.integers(1, 30), max_size=30))
def test_what_is_left_are_the_youngest_that_fit(lengths: list[int]) -> None:
    outbox = Outbox(60)
    lines = [line(f"{n:02d}".ljust(length, ".")) for n, length in enumerate(lengths)]
    for one in lines:
        outbox.put(one)
    left = outbox.take(1_000)
    assert left == lines[len(lines) - len(left) :]
    weights = [len(one.data) for one in lines]
    assert len(left) == len(lines) or sum(weights[len(lines) - len(left) - 1 :]) > 60
