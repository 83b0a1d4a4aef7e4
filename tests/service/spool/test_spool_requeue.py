"""Dead letters go back into the spool of a running sidecar: in order, by choice, and none is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, get_args

import pytest

from client_core import InvalidRecordError, ProducerRecord, RecordTooLargeError, TopicAuthorizationError
from service.native.schemas import DeadLetterReason, RequeueAnswer
from service.spool import dead_letters as dead_letters_module
from service.spool.dead_letters import REASONS, DeadLetter, dead_letters_in
from service.spool.delivery import MOST_REQUEUES
from service.spool.entry import frame_of
from service.spool.requeue import Requeued
from tests.support.coroutine_tests import run, timed
from tests.support.http_app import NativeApp
from tests.support.spooling import SpoolRig, dead_letters_of, fail_values, failure, record, records, salt_of
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from service.spool.spool import Spool
    from tests.support.fake_producer import Outcome

PATH = "/v1/spool/requeue"


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    return SpoolRig(tmp_path / "spool")


def make_dead_letters(rig: SpoolRig, *given: ProducerRecord) -> None:
    """These lie aside, and are allowed from now on."""
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    rig.spool_in(given)
    rig.wait_out()
    rig.deliver_after(1_000)  # and the mark is written
    rig.producer.outcome_of = None
    rig.producer.submitted.clear()


def everything(_: DeadLetter) -> bool:
    return True


def asked(rig: SpoolRig, chosen: Callable[[DeadLetter], bool] = everything) -> list[Requeued]:
    """Asks for a requeue; how it ends comes into the list."""
    ends: list[Requeued] = []
    assert rig.spool.requeue(chosen, ends.append)
    return ends


def requeued(rig: SpoolRig, chosen: Callable[[DeadLetter], bool] = everything) -> Requeued:
    """Asks, and turns the writer and the delivery until it has ended."""
    ends = asked(rig, chosen)
    for _ in range(100):
        rig.deliver()
        rig.spool.writer.turn()
    (end,) = ends
    return end


# -- over the delivery's thread ------------------------------------------------------------------------------


def test_records_go_back_in_order_behind_what_waits_and_are_delivered_without_a_restart(
    rig: SpoolRig,
) -> None:
    make_dead_letters(rig, *records(20))
    assert (rig.spool.dead_letters.records, rig.spool.dead_letters.total_bytes > 0) == (20, True)
    rig.spool_in([record("waits")])
    assert requeued(rig) == Requeued(20)
    assert rig.sent == ["waits", *(f"orders-{n}" for n in range(20))]
    assert (rig.spool.dead_letters.records, rig.spool.dead_letters.total_bytes, rig.spool.entries) == (
        0,
        0,
        0,
    )
    assert list((rig.folder / "aside").iterdir()) == []


def test_they_keep_the_time_at_which_they_were_accepted_or_their_own(rig: SpoolRig) -> None:
    accepted_ms = rig.clock.wall_ms()
    make_dead_letters(rig, record("plain"), record("timed")._replace(timestamp_ms=17))
    assert rig.clock.wall_ms() > accepted_ms
    assert requeued(rig) == Requeued(2)
    assert [one.timestamp_ms for chunk in rig.producer.submitted for one in chunk] == [accepted_ms, 17]


def test_they_keep_their_order_whatever_the_reason_of_the_dead_letter(rig: SpoolRig) -> None:
    """Of one key, refused for two reasons in turn."""

    def report(index: int, one: ProducerRecord) -> Outcome:
        return failure(RecordTooLargeError() if (one.value or b"")[-1:] in b"0369" else InvalidRecordError())

    rig.producer.outcome_of = report
    rig.spool_in(records(10))
    rig.wait_out()
    rig.wait_out()
    assert {reason for _, reason in dead_letters_of(rig)} == {"too_large", "invalid"}
    assert [value for value, _ in dead_letters_of(rig)] == [f"orders-{n}" for n in range(10)]
    rig.producer.outcome_of = None
    rig.producer.submitted.clear()
    assert requeued(rig) == Requeued(10)
    assert rig.sent == [f"orders-{n}" for n in range(10)]


def test_a_file_whose_records_lie_in_another_order_gives_them_in_theirs(rig: SpoolRig) -> None:
    """As an earlier version wrote it: by reasons."""
    make_dead_letters(rig, *records(4))
    rig.spool.dead_letters.close()
    (file,) = dead_letters_in(rig.folder)
    mixed = [file.records[n] for n in (0, 2, 1, 3)]
    rig.spool.dead_letters.keep_only(file, mixed)
    assert requeued(rig) == Requeued(4)
    assert rig.sent == [f"orders-{n}" for n in range(4)]


def test_only_what_is_chosen_goes_back_and_the_rest_is_counted_as_it_is(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(3), *records(2, "payments"))
    assert requeued(rig, lambda one: one.topic == "payments") == Requeued(2)
    assert sorted(rig.sent) == ["payments-0", "payments-1"]
    assert [value for value, _ in dead_letters_of(rig)] == ["orders-0", "orders-1", "orders-2"]
    assert rig.spool.dead_letters.records == 3
    (file,) = (rig.folder / "aside").iterdir()
    assert rig.spool.dead_letters.total_bytes == file.stat().st_size
    assert requeued(rig, lambda _: False) == Requeued(0)
    assert rig.spool.dead_letters.records == 3


def test_dead_letters_of_a_later_version_stay(rig: SpoolRig) -> None:
    rig.spool_in(records(1))
    path = rig.segments[0]
    path.write_bytes(path.read_bytes() + frame_of(salt_of(path), 2, b"of the future", version=9))
    rig = rig.again()
    rig.deliver()
    assert requeued(rig) == Requeued(0)
    assert rig.spool.dead_letters.records == 1
    assert [one.reason for file in dead_letters_in(rig.folder) for one in file.records] == ["unreadable"]


def test_many_files_go_back_one_after_the_other(rig: SpoolRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters_module, "FILE_BYTES", 200)
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    for n in range(5):
        rig.spool_in([record(f"{n}" + "x" * 200)])
        rig.wait_out()
    assert len(list((rig.folder / "aside").iterdir())) == 5
    rig.producer.outcome_of = None
    rig.producer.submitted.clear()
    assert requeued(rig) == Requeued(5)
    assert [value[0] for value in rig.sent] == ["0", "1", "2", "3", "4"]


def test_dead_letters_written_meanwhile_are_not_lost(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(2))
    ends = asked(rig)
    rig.deliver()  # the file is read, and the disk has not answered
    assert ends == []
    fail_values(rig, failure(TopicAuthorizationError()), "late")
    rig.spool.writer.turn()
    rig.spool_in([record("late")])
    rig.wait_out()
    assert ends == [Requeued(2)]
    assert rig.sent[:2] == ["orders-0", "orders-1"]
    assert dead_letters_of(rig) == [("late", "forbidden")]
    assert rig.spool.dead_letters.records == 1


def test_refused_again_they_are_waited_for_again(rig: SpoolRig) -> None:
    """Even if records of the topic became dead letters a moment ago."""
    make_dead_letters(rig, *records(2))
    rig.spool_in([record("keeps the lane")])
    rig.producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    assert requeued(rig) == Requeued(2)
    for _ in range(59):
        rig.deliver_after(1_000)
    assert (dead_letters_of(rig), rig.spool.entries) == ([], 3)
    rig.producer.outcome_of = None
    rig.deliver_after(1_000)
    assert rig.spool.entries == 0


def test_a_topic_that_was_given_up_just_now_is_waited_for_again(rig: SpoolRig) -> None:
    """Its lane lives on, with a record that is on its way."""
    fail_values(rig, failure(RecordTooLargeError()), "large")
    rig.spool_in([record("large")])
    rig.deliver()
    rig.spool_in([record("on its way")])
    for _ in range(59):
        rig.deliver_after(1_000)
    rig.clock.advance(1_000)
    rig.producer.holds_records = True
    rig.deliver()
    (ticket,) = rig.producer.waiting
    rig.producer.acknowledge(ticket)  # refused for the last time
    rig.deliver()
    assert dead_letters_of(rig) == [("large", "too_large")]
    assert requeued(rig) == Requeued(1)
    rig.producer.holds_records = False
    (ticket,) = rig.producer.waiting
    rig.producer.acknowledge(ticket)
    rig.deliver()
    assert (dead_letters_of(rig), rig.spool.entries) == ([], 1)
    fail_values(rig, failure(RecordTooLargeError()))
    rig.deliver_after(1_000)
    assert rig.sent[-1] == "large"


def test_a_spool_that_is_full_of_dead_letters_takes_them_back(tmp_path: Path) -> None:
    """They are in the folder already."""
    rig = SpoolRig(tmp_path / "spool", spool_max_bytes=1_048_576)
    make_dead_letters(rig, *[record(f"{n:03d}" + "x" * 4_000) for n in range(200)])
    rig.clock.advance(1_000)
    rig.deliver()
    assert rig.spool.bytes > 0.7 * rig.spool.max_bytes
    assert requeued(rig) == Requeued(200)
    assert [value[:3] for value in rig.sent] == [f"{n:03d}" for n in range(200)]


# -- a disk that fails ---------------------------------------------------------------------------------------


def test_records_that_the_disk_does_not_take_back_stay_dead_letters(tmp_path: Path) -> None:
    for operation in ("write", "fsync"):
        rig = SpoolRig(tmp_path / operation)
        make_dead_letters(rig, *records(3))
        rig.disk.fails[operation] = 1
        end = requeued(rig)
        assert (end.records, f"no {operation} here" in (end.fault or "")) == (0, True)
        assert (rig.spool.dead_letters.records, rig.sent) == (3, [])
        assert requeued(rig) == Requeued(3)
        assert rig.sent == [f"orders-{n}" for n in range(3)]


def test_where_the_file_can_not_be_removed_its_records_are_delivered_and_stay_dead_letters(
    rig: SpoolRig,
) -> None:
    make_dead_letters(rig, *records(3))
    ends = asked(rig)
    rig.deliver()
    rig.spool.writer.turn()
    rig.disk.fails["sync_folder"] = 1
    rig.deliver()
    (end,) = ends
    assert (end.records, end.fault) == (0, "no sync_folder here")
    assert rig.sent == [f"orders-{n}" for n in range(3)]


def test_on_a_full_disk_nothing_is_requeued_and_stays_a_dead_letter(rig: SpoolRig) -> None:
    """However often it is asked for, and wherever the room ends."""
    make_dead_letters(rig, *records(3), *records(3, "payments"))
    held = rig.spool.dead_letters.total_bytes
    for room_bytes in range(0, 1_200, 100):
        rig.disk.room_bytes = room_bytes
        end = requeued(rig, lambda one: one.topic == "orders")
        rig.disk.room_bytes = None
        if end.fault is None:
            break
        assert end.records == 0
        assert (rig.sent, rig.spool.entries) == ([], 0)
        assert (rig.spool.dead_letters.records, rig.spool.dead_letters.total_bytes) == (6, held)
        assert len(list((rig.folder / "aside").iterdir())) == 1
    assert end == Requeued(3)
    assert rig.sent == [f"orders-{n}" for n in range(3)]
    assert rig.spool.dead_letters.records == 3


def test_a_folder_that_can_not_be_read_ends_it_and_nothing_else(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(1))
    (file,) = (rig.folder / "aside").iterdir()
    file.rename(rig.folder / "kept")
    file.mkdir()
    end = requeued(rig)
    assert end.records == 0
    assert end.fault == "Is a directory"
    rig.spool_in([record("later")])
    rig.deliver()
    assert rig.sent == ["later"]


def test_a_bug_ends_it_and_neither_the_delivery_nor_the_next_one(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(1))
    ends = asked(rig, lambda one: bool(1 // 0))
    with pytest.raises(ZeroDivisionError):
        rig.deliver()
    assert ends == [Requeued(0, "an unexpected exception; the log has the stack")]
    assert requeued(rig) == Requeued(1)


def test_killed_between_the_two_it_delivers_them_and_still_has_them_aside(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(2))
    asked(rig)
    rig.deliver()
    rig.spool.writer.turn()
    rig = rig.again()
    rig.settle()
    assert (rig.sent, rig.spool.dead_letters.records) == (["orders-0", "orders-1"], 2)


def test_so_many_may_wait_and_no_more(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(1))
    ends = [asked(rig) for _ in range(MOST_REQUEUES)]
    assert not rig.spool.requeue(everything, lambda _: None)
    for _ in range(10):
        rig.deliver()
        rig.spool.writer.turn()
    assert [end for (end,) in ends] == [Requeued(1), *[Requeued(0)] * (MOST_REQUEUES - 1)]
    assert rig.spool.requeue(everything, lambda _: None)


def test_records_that_were_written_as_the_sidecar_ended_are_no_dead_letters_any_more(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(2))
    ends = asked(rig)
    rig.deliver()
    rig.spool.writer.turn()
    rig.spool.close(10)
    assert (ends, dead_letters_of(rig)) == ([Requeued(2)], [])
    rig = rig.again()
    rig.deliver()
    assert rig.sent == ["orders-0", "orders-1"]


def test_calls_that_wait_at_the_end_get_the_shutdown_as_reason(rig: SpoolRig) -> None:
    make_dead_letters(rig, *records(1))
    ends = asked(rig)
    rig.spool.delivery.close(10)
    later = asked(rig)
    assert ends == later == [Requeued(0, "the sidecar is shutting down")]


# -- over HTTP -----------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(tmp_path: Path) -> TokensFile:
    all_topics = {"read": ["*"], "produce": ["*"]}
    return TokensFile(
        tmp_path, all=all_topics, shop={"read": ["*"], "produce": ["orders"]}, looker={"read": ["*"]}
    )


@pytest.fixture
def web(tmp_path: Path, tokens: TokensFile) -> Iterator[NativeApp]:
    """A sidecar whose threads do not run; a record of each of two topics is a dead letter."""
    app = NativeApp(
        spool_folder=str(tmp_path / "spool"), spool_topic_wait_ms=1_000, tokens_file=tokens.setting
    )
    app.spool_producer.set_topics({"orders": 3, "payments": 3})
    spool = spool_of(app)
    app.spool_producer.outcome_of = lambda *_: failure(TopicAuthorizationError())
    spool.submit([record("o"), record("p", "payments")], lambda _: None)
    spool.writer.turn()
    for _ in range(3):
        turn(app)
        app.producer.clock.advance(1_000)
    app.spool_producer.outcome_of = None
    assert spool.dead_letters.records == 2
    yield app
    spool.release()


def spool_of(web: NativeApp) -> Spool:
    assert web.app.spool is not None
    return web.app.spool


def turn(web: NativeApp) -> None:
    for _ in range(3):
        spool_of(web).delivery.turn(web.producer.clock.now_ms())


def posted(web: NativeApp, path: str, headers: dict[str, str], body: bytes = b"") -> httpx.Response:
    """Posts, and turns the threads by hand until it is answered."""

    async def scenario() -> httpx.Response:
        async with web.client() as client:
            task = asyncio.create_task(client.post(path, headers=headers, content=body))
            while not task.done():
                turn(web)
                spool_of(web).writer.turn()
                await asyncio.sleep(0)
            return task.result()

    return run(scenario())


def topics_of_dead_letters(web: NativeApp) -> list[str | None]:
    return [one.topic for file in dead_letters_in(spool_of(web).segments.folder) for one in file.records]


def test_a_caller_with_the_right_to_produce_to_all_puts_all_back(web: NativeApp, tokens: TokensFile) -> None:
    answer = posted(web, PATH, tokens.of("all"))
    assert (answer.status_code, answer.json()) == (200, {"requeued": 2})
    assert RequeueAnswer.model_validate(answer.json()).requeued == 2
    assert answer.headers["cache-control"] == "no-store"
    assert topics_of_dead_letters(web) == []


def test_others_put_back_only_what_they_may_produce(web: NativeApp, tokens: TokensFile) -> None:
    for topic in ("payments", "absent"):
        answer = posted(web, f"{PATH}?topic={topic}", tokens.of("shop"))
        assert (answer.status_code, answer.json()["kafka_error"]) == (403, "TOPIC_AUTHORIZATION_FAILED")
    assert posted(web, PATH, tokens.of("looker")).json() == {"requeued": 0}
    assert len(topics_of_dead_letters(web)) == 2
    assert posted(web, PATH, tokens.of("shop")).json() == {"requeued": 1}
    assert topics_of_dead_letters(web) == ["payments"]


def test_topic_and_reason_choose_and_a_query_that_says_nothing_is_refused(
    web: NativeApp, tokens: TokensFile
) -> None:
    caller = tokens.of("all")
    for query in ("reason=unreadable", "reason=x", "topics=orders", "max_block_ms=-1"):
        assert posted(web, f"{PATH}?{query}", caller).status_code == 422, query
    answer = posted(web, PATH, caller, b'{"topic":"payments"}')
    assert (answer.status_code, answer.json()["place"]) == (422, "body"), (
        "a choice in the body would not count"
    )
    from_a_page = {**caller, "origin": "https://evil.example"}
    assert posted(web, PATH, from_a_page).status_code == 403
    assert posted(web, f"{PATH}?reason=too_large", caller).json() == {"requeued": 0}
    assert len(topics_of_dead_letters(web)) == 2
    assert posted(web, f"{PATH}?topic=orders&reason=forbidden", caller).json() == {"requeued": 1}
    assert topics_of_dead_letters(web) == ["payments"]
    assert set(get_args(DeadLetterReason)) == {*REASONS} - {"unreadable"}, "which nobody can read"


def test_a_disk_that_takes_nothing_is_a_503_that_says_how_many_went_back(
    web: NativeApp, tokens: TokensFile
) -> None:
    disk = spool_of(web).segments.disk
    disk.fails["fsync"] = 1  # type: ignore[attr-defined]
    answer = posted(web, PATH, tokens.of("all"))
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith("0 records were requeued, the others failed: ")
    assert answer.json()["retriable"] is True


def test_a_disk_that_does_not_answer_in_time_is_a_504_and_the_requeue_goes_on(
    web: NativeApp, tokens: TokensFile
) -> None:
    async def asked_once() -> httpx.Response:
        async with web.client() as client:
            return await client.post(f"{PATH}?max_block_ms=70", headers=tokens.of("all"))

    answer, waited_ms = timed(asked_once())
    assert (answer.status_code, waited_ms) == (504, 70)
    assert "continues" in answer.json()["detail"]
    for _ in range(5):
        turn(web)
        spool_of(web).writer.turn()
    assert topics_of_dead_letters(web) == []


def test_a_call_while_the_sidecar_ends_is_a_503(web: NativeApp, tokens: TokensFile) -> None:
    spool_of(web).delivery.close(10)
    answer = posted(web, PATH, tokens.of("all"))
    assert answer.status_code == 503
    assert answer.json()["detail"].endswith("the sidecar is shutting down")


def test_too_many_at_once_are_asked_to_come_again(web: NativeApp, tokens: TokensFile) -> None:
    for _ in range(MOST_REQUEUES):
        assert spool_of(web).requeue(everything, lambda _: None)
    answer = posted(web, PATH, tokens.of("all"))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    without_a_spool = NativeApp().post(PATH)
    assert without_a_spool.status_code == 400
    assert "spool_folder" in without_a_spool.json()["detail"]
