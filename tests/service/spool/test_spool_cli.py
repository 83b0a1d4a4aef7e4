"""`pilotfish spool`: what people see of a spool, and how dead letters are put back."""

from __future__ import annotations

import json
import os
from random import Random
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from client_core import ProducerRecord, TopicAuthorizationError
from client_core.testing.free_ports import free_ports
from service.__main__ import main
from service.spool.dead_letters import dead_letters_in
from service.spool.entry import frame_of, payload_of
from service.spool.writer import SpoolFault
from tests.support.spooling import SpoolRig, failure, record, records, salt_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.fake_producer import Outcome

FORBIDDEN = failure(TopicAuthorizationError("not allowed"))


def spool(*words: str) -> Result:
    return CliRunner().invoke(main, ["spool", *words])


@pytest.fixture
def rig(tmp_path: Path) -> SpoolRig:
    """Two records are to be delivered. Of another topic one was delivered, and two are dead letters."""
    rig = SpoolRig(tmp_path / "spool", spool_topic_wait_ms=1_000)

    def report(index: int, one: ProducerRecord) -> Outcome:
        return FORBIDDEN if one.value != b"payments-1" else rig.producer.receipt(index, one)

    rig.producer.outcome_of = report
    rig.spool_in(records(3, "payments"))
    rig.wait_out()
    rig.settle()
    rig.spool_in(records(2))
    return rig


def test_records_to_be_delivered_and_dead_letters_are_listed(rig: SpoolRig) -> None:
    ended = spool("show", "--folder", str(rig.folder))
    assert ended.exit_code == 0, ended.output
    lines = ended.output.splitlines()
    assert lines[0] == f"2 records to deliver, {rig.spool.bytes} bytes"
    assert lines[2:4] == [
        "topic   records  oldest accepted",
        "orders        2  2023-11-14T22:13:22Z",
    ]
    assert lines[5] == "2 dead letters: 2 forbidden"
    row = "1 payments forbidden 2023-11-14T22:13:21Z TopicAuthorizationError: not allowed"
    assert " ".join(lines[8].split()) == row
    cut = spool("show", "--folder", str(rig.folder), "--limit", "1")
    assert cut.output.endswith("and 1 more: --limit lists them\n")
    reported = json.loads(spool("show", "--folder", str(rig.folder), "--json").output)
    assert (reported["records"], [topic["topic"] for topic in reported["topics"]]) == (2, ["orders"])
    dead_letters = [(one["sequence"], one["reason"]) for one in reported["set_aside"]]
    assert (dead_letters, reported["damaged_files"]) == ([(1, "forbidden"), (3, "forbidden")], [])
    (rig.folder / "aside" / "x.segment.damaged").write_bytes(b"12345")
    ended = spool("show", "--folder", str(rig.folder))
    assert ended.output.endswith("damaged file       bytes\nx.segment.damaged      5\n")


def test_dead_letters_are_put_back_and_delivered(rig: SpoolRig) -> None:
    rig.let_go()
    ended = spool("requeue", "--folder", str(rig.folder))
    assert ended.exit_code == 0, ended.output
    assert ended.output.startswith("2 records will be delivered when a sidecar starts")
    accepted_ms = rig.clock.wall_ms() - 2_000
    rig = rig.again()
    rig.settle()
    assert sorted(rig.sent) == ["orders-0", "orders-1", "payments-0", "payments-2"]
    sent = [one for chunk in rig.producer.submitted for one in chunk if one.topic == "payments"]
    assert {one.timestamp_ms for one in sent} == {accepted_ms}
    assert rig.spool.dead_letters.records == 0
    assert rig.spool.entries == 0


def test_it_can_be_chosen_what_is_put_back(rig: SpoolRig) -> None:
    rig.let_go()
    folder = str(rig.folder)
    assert "nothing to requeue" in spool("requeue", "--folder", folder, "--topic", "orders").output
    assert "nothing to requeue" in spool("requeue", "--folder", folder, "--reason", "too_large").output
    ended = spool("requeue", "--folder", folder, "--topic", "payments", "--reason", "forbidden")
    assert ended.exit_code == 0, ended.output
    again = spool("requeue", "--folder", folder)
    said = "Error: nothing to requeue: there is no such dead letter\n"
    assert (again.exit_code, again.output) == (1, said)


def test_where_the_sidecar_of_the_folder_does_not_answer_nothing_is_put_back(rig: SpoolRig) -> None:
    (port,) = free_ports(1)
    ended = spool("requeue", "--folder", str(rig.folder), "--api-port", str(port))
    assert ended.exit_code == 1
    assert f"{rig.folder} is in use, so its sidecar was asked: no Pilotfish answers at" in ended.output
    assert f"127.0.0.1:{port}" in ended.output
    assert rig.spool.dead_letters.records == 2


def test_a_file_of_a_later_version_stays_where_it_is(rig: SpoolRig) -> None:
    path, last = rig.segments[-1], payload_of(record("last"), 0)
    frames = frame_of(salt_of(path), 6, b"of the future", version=9) + frame_of(salt_of(path), 7, last)
    path.write_bytes(path.read_bytes() + frames)
    assert spool("show", "--folder", str(rig.folder)).output.startswith("3 records to deliver")
    rig = rig.again()
    rig.settle()
    rig.let_go()
    assert spool("requeue", "--folder", str(rig.folder), "--reason", "forbidden").exit_code == 0
    assert "nothing to requeue" in spool("requeue", "--folder", str(rig.folder)).output
    assert "- " in spool("show", "--folder", str(rig.folder)).output.splitlines()[-1]


def test_records_that_were_refused_and_left_in_their_file_are_not_listed(tmp_path: Path) -> None:
    """Their fsync failed, and they could not be cut off: their numbers were used again in the next file."""
    rig = SpoolRig(tmp_path / "spool")
    rig.spool_in(records(1))
    rig.disk.fails.update(fsync=1, truncate=1)
    assert isinstance(rig.spool_in(records(5)), SpoolFault)
    rig.spool_in(records(1))
    rig.disk.fails.update(fsync=1, truncate=1)
    assert isinstance(rig.spool_in(records(5)), SpoolFault)
    rig.spool_in(records(1))
    assert len(rig.segments) == 3
    assert spool("show", "--folder", str(rig.folder)).output.startswith("3 records to deliver, ")


def test_to_look_changes_nothing(rig: SpoolRig) -> None:
    rig.let_go()
    (rig.folder / "aside" / ".x.draft").write_bytes(b"of a process that was killed")
    path = rig.segments[-1]
    path.write_bytes(path.read_bytes() + b"torn")
    before = {path: path.read_bytes() for path in rig.folder.rglob("*") if path.is_file()}
    assert spool("show", "--folder", str(rig.folder)).exit_code == 0
    assert {path: path.read_bytes() for path in rig.folder.rglob("*") if path.is_file()} == before


def test_dead_letters_that_a_sidecar_requeues_meanwhile_are_passed_over(rig: SpoolRig) -> None:
    rig = rig.again()
    rig.producer.outcome_of = lambda *_: FORBIDDEN
    rig.wait_out()
    reading = dead_letters_in(rig.folder)
    assert len(next(reading).records) == 2
    first, second = sorted((rig.folder / "aside").iterdir())
    second.unlink()
    assert list(reading) == []
    # A name without a file is what a listing finds if the file goes before its size is asked for.
    second.symlink_to(rig.folder / "nothing")
    ended = spool("show", "--folder", str(rig.folder))
    assert ended.exit_code == 0, ended.output
    assert "2 dead letters: 2 forbidden" in ended.output
    assert first.exists()


def test_a_folder_that_was_only_begun_is_empty(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"")
    ended = spool("show", "--folder", str(tmp_path))
    assert (ended.exit_code, ended.output) == (0, "0 records to deliver, 0 bytes\n")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_folder_full_of_noise_is_no_bug(rig: SpoolRig) -> None:
    rig.let_go()
    random = Random(11)
    (rig.folder / f"{7:020d}-{1:010d}-{'a' * 16}.segment").mkdir()
    (rig.folder / "aside" / f"{'9' * 20}-{'b' * 16}.records").write_bytes(random.randbytes(5_000))
    (rig.folder / "aside" / "\x1b[2J").write_bytes(b"")
    for path in [*rig.segments, *(rig.folder / "aside").glob("*.records"), rig.folder / "mark.json"]:
        if path.is_file():
            path.write_bytes(random.randbytes(path.stat().st_size))
    for words, code in ((["show"], 0), (["requeue"], 1), (["discard", "--all"], 1)):
        ended = spool(*words, "--folder", str(rig.folder))
        assert isinstance(ended.exception, SystemExit | None), words
        assert ended.exit_code == code, words
        assert ended.output.splitlines()[-1].startswith(("0 records to deliver", "Error: nothing to"))


def test_dead_letters_can_be_deleted_but_only_with_an_explicit_flag(
    rig: SpoolRig,
) -> None:
    folder = str(rig.folder)
    ended = spool("discard", "--folder", folder, "--all")
    assert (ended.exit_code, "another process uses" in ended.output) == (1, True)
    assert rig.spool.dead_letters.records == 2
    rig.let_go()
    for words in ([], ["--all", "--topic", "orders"], ["--all", "--reason", "forbidden"]):
        ended = spool("discard", "--folder", folder, *words)
        assert ended.exit_code == 2, words
        assert "--topic, --reason or both, or else --all" in ended.output
    assert "nothing to discard" in spool("discard", "--folder", folder, "--topic", "orders").output
    rig = rig.again()
    assert rig.spool.dead_letters.records == 2
    rig.let_go()
    ended = spool("discard", "--folder", folder, "--topic", "payments", "--reason", "forbidden")
    assert (ended.exit_code, ended.output) == (0, f"2 dead letters are deleted from {folder}\n")
    rig = rig.again()
    rig.settle()
    assert sorted(rig.sent) == ["orders-0", "orders-1"]
    assert rig.spool.dead_letters.records == 0


def test_a_brokers_words_do_nothing_to_the_terminal_or_the_log(
    rig: SpoolRig, caplog: pytest.LogCaptureFixture
) -> None:
    error = TopicAuthorizationError("no\x1b[2J\nERROR all is lost")
    rig.producer.outcome_of = lambda *_: failure(error)
    rig.wait_out()
    output = spool("show", "--folder", str(rig.folder)).output
    assert "no [2J ERROR all is lost" in output
    assert "\x1b" not in output + caplog.text
    assert "\nERROR all" not in output + caplog.text


def test_a_folder_that_is_no_spools_is_named_and_left_alone(tmp_path: Path) -> None:
    for words in (["show"], ["requeue"], ["discard", "--all"]):
        ended = spool(*words, "--folder", str(tmp_path))
        assert ended.exit_code == 1
        assert f"{tmp_path} is not the folder of a spool" in ended.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_root_changes_nothing_in_the_folder_of_a_sidecar_of_another_user(rig: SpoolRig) -> None:
    """The sidecar could not read the files that root makes, and would not start."""
    os.chown(rig.folder / "lock", 10001, 10001)
    rig.let_go()
    files = sorted(rig.folder.rglob("*"))
    for words in (["requeue"], ["discard", "--all"]):
        ended = spool(*words, "--folder", str(rig.folder))
        assert (ended.exit_code, "`sudo -u '#10001'`" in ended.output) == (1, True), ended.output
    assert sorted(rig.folder.rglob("*")) == files


def test_the_folder_may_come_from_the_sidecars_own_environment_and_without_one_it_is_a_wrong_call(
    rig: SpoolRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTFISH_SPOOL_FOLDER", str(rig.folder))
    rig.spool_in([record("third")])
    assert spool("show").output.startswith("3 records to deliver")
    monkeypatch.delenv("PILOTFISH_SPOOL_FOLDER")
    assert spool("show").exit_code == 2
