"""Secrets that may live in files that change: what is in force when, who is told, and that nothing shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from client_core.errors import ConfigError
from client_core.events import SecretReloaded
from client_core.network.secret import Secret, SecretSource
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


def in_file(path: Path, events: RecordedEvents) -> Secret:
    return Secret(SecretSource("sasl.password", path=str(path)), events)


def test_a_given_text_is_the_secret() -> None:
    assert Secret(SecretSource("sasl.password", "s3cret")).read() == "s3cret"


def test_a_file_holds_the_secret_without_the_line_end_that_editors_leave(
    tmp_path: Path, events: RecordedEvents
) -> None:
    (tmp_path / "password").write_text(" s3cret \r\n")
    assert in_file(tmp_path / "password", events).read() == " s3cret "
    assert not events.events


def test_a_changed_file_is_read_again_and_told_once(tmp_path: Path, events: RecordedEvents) -> None:
    path = tmp_path / "password"
    path.write_text("old")
    secret = in_file(path, events)
    path.write_text("newer")
    assert secret.read() == "newer"
    assert secret.read() == "newer"
    assert events.events == [SecretReloaded("sasl.password", None)]


def test_a_file_written_again_with_the_same_text_is_no_news(tmp_path: Path, events: RecordedEvents) -> None:
    path = tmp_path / "password"
    path.write_text("same")
    secret = in_file(path, events)
    other = tmp_path / "other"
    other.write_text("same")
    os.replace(other, path)
    assert secret.read() == "same"
    assert not events.events


def test_a_secret_that_a_kubelet_renews_is_seen(tmp_path: Path, events: RecordedEvents) -> None:
    for version, text in (("..1", "old"), ("..2", "new")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "password").write_text(text)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "password").symlink_to("..data/password")
    secret = in_file(tmp_path / "password", events)
    (tmp_path / "..data_tmp").symlink_to("..2")
    os.replace(tmp_path / "..data_tmp", tmp_path / "..data")
    assert secret.read() == "new"


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file"), (b"\n", "is empty"), (b"\xff\xfe", "not UTF-8")]
)
def test_a_file_that_can_not_be_read_any_more_leaves_the_last_text_in_force_and_is_complained_of_once(
    content: bytes | None,
    reason: str,
    tmp_path: Path,
    events: RecordedEvents,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "password"
    path.write_text("old")
    secret = in_file(path, events)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert secret.read() == "old"
    assert secret.read() == "old"
    (event,) = events.of(SecretReloaded)
    assert event.name == "sasl.password"
    assert event.failure is not None
    assert reason in event.failure
    (record,) = caplog.records
    assert record.levelname == "WARNING"

    path.write_text("new")
    assert secret.read() == "new"
    assert [event.failure is None for event in events.of(SecretReloaded)] == [False, True]


def test_a_fault_that_comes_back_after_a_good_read_is_told_again(
    tmp_path: Path, events: RecordedEvents
) -> None:
    path = tmp_path / "password"
    path.write_text("one")
    secret = in_file(path, events)
    for text in ("two", "three"):
        path.unlink()
        secret.read()
        path.write_text(text)
        assert secret.read() == text
    assert [event.failure is None for event in events.of(SecretReloaded)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "no such file"), (b"", "is empty"), (b"\xff", "not UTF-8")]
)
def test_what_can_not_be_read_at_first_is_a_config_error_that_names_the_setting(
    content: bytes | None, reason: str, tmp_path: Path, events: RecordedEvents
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^sasl.password: .*{reason}") as caught:
        in_file(path, events)
    assert not isinstance(caught.value.__cause__, ValueError)  # a UnicodeDecodeError holds the file's bytes


def test_an_empty_text_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.password is empty$"):
        Secret(SecretSource("sasl.password", ""))


def test_neither_source_nor_secret_shows_the_text(tmp_path: Path, events: RecordedEvents) -> None:
    (tmp_path / "password").write_text("s3cret")
    given = SecretSource("sasl.password", "s3cret")
    shown = f"{given!r} {given} {Secret(given)!r} {in_file(tmp_path / 'password', events)!r}"
    assert "s3cret" not in shown
    assert str(tmp_path / "password") in shown
