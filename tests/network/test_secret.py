"""Secrets in files that may change: which value is in force, how changes are reported, that none is shown."""

from __future__ import annotations

import os
import traceback
from typing import TYPE_CHECKING

import pytest

from client_core.errors import ConfigError
from client_core.events import SecretReloaded
from client_core.network.secret import InForce, Secret, SecretSource
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def events() -> RecordedEvents:
    return RecordedEvents()


def in_file(path: Path, events: RecordedEvents) -> Secret:
    return Secret(SecretSource("sasl.password", path=str(path)), events)


def test_a_file_holds_the_secret_without_the_line_end_that_editors_leave(
    tmp_path: Path, events: RecordedEvents
) -> None:
    assert Secret(SecretSource("sasl.password", "s3cret")).read() == "s3cret", "given as text"
    (tmp_path / "password").write_text(" s3cret \r\n")
    assert in_file(tmp_path / "password", events).read() == " s3cret "
    (tmp_path / "password").write_text("\ufeffs3cret\r\n")
    assert in_file(tmp_path / "password", events).read() == "s3cret", "without a byte order mark"
    (tmp_path / "password").write_text("\ufeff\n")
    with pytest.raises(ConfigError, match="is empty"):
        in_file(tmp_path / "password", events)
    assert not events.events


def test_a_changed_file_is_read_again_and_reported_once_unless_its_text_is_the_same(
    tmp_path: Path, events: RecordedEvents
) -> None:
    path, other = tmp_path / "password", tmp_path / "other"
    path.write_text("old")
    secret = in_file(path, events)
    other.write_text("old")
    os.replace(other, path)
    assert secret.read() == "old"
    assert not events.events
    path.write_text("newer")
    assert (secret.read(), secret.read()) == ("newer", "newer")
    assert events.events == [SecretReloaded("sasl.password", None)]


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


def test_a_file_that_can_not_be_read_any_more_leaves_the_last_text_in_force_and_is_complained_of_once(
    tmp_path: Path, events: RecordedEvents, caplog: pytest.LogCaptureFixture
) -> None:
    path, in_force = tmp_path / "password", "old"
    path.write_text(in_force)
    secret = in_file(path, events)
    faults = {"no such file": None, "is empty": b"\n", "not UTF-8": b"\xff\xfe"}
    for number, (reason, content) in enumerate(faults.items()):
        caplog.clear()
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert [secret.read(), secret.read()] == [in_force, in_force]
        event = events.of(SecretReloaded)[-1]
        assert event.name == "sasl.password"
        assert event.failure is not None
        assert reason in event.failure
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        in_force = f"new {number}"
        path.write_text(in_force)
        assert secret.read() == in_force
    for text in ("newest", "newest of all"):
        path.unlink()
        secret.read()
        path.write_text(text)
        secret.read()
    reported = [event.failure is None for event in events.of(SecretReloaded)]
    assert reported == [False, True] * 5, "a fault is reported again when it comes back"


def test_what_can_not_be_read_at_first_is_a_config_error_that_names_the_setting(
    tmp_path: Path, events: RecordedEvents
) -> None:
    path = tmp_path / "password"
    for content, reason in ((None, "no such file"), (b"", "is empty"), (b"\xff", "not UTF-8")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=f"^sasl.password: .*{reason}") as caught:
            in_file(path, events)
        assert not isinstance(caught.value.__cause__, ValueError)  # UnicodeDecodeErrors hold the file's bytes
    with pytest.raises(ConfigError, match=r"^sasl\.password is empty$"):
        Secret(SecretSource("sasl.password", ""))


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_file_is_reported_and_nothing_waits_for_it(
    tmp_path: Path, events: RecordedEvents, kind: str
) -> None:
    path = tmp_path / "password"
    path.write_text("old")
    secret = in_file(path, events)
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.symlink_to("/dev/zero")
    assert [secret.read(), secret.read()] == ["old", "old"]
    assert events.events == [SecretReloaded("sasl.password", f"{path} is not a file")]
    with pytest.raises(ConfigError, match=r"^sasl.password: .* is not a file$"):
        in_file(path, events)


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        '...PlainLoginModule required username="me" password="hunter2";',
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY----- hunter2" + 100 * "/hunter2" + " -----END PRIVATE KEY-----",
        "/hunter2\nhunter2",
        "hunter2\0",
    ],
)
def test_a_secret_in_the_place_of_its_path_is_not_shown(events: RecordedEvents, secret: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.password: ") as caught:
        Secret(SecretSource("sasl.password", path=secret), events)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_an_absolute_path_that_can_not_be_read_is_shown(tmp_path: Path, events: RecordedEvents) -> None:
    with pytest.raises(ConfigError, match=f"can't read {tmp_path}/password: no such file"):
        in_file(tmp_path / "password", events)


def test_a_relative_path_of_a_store_is_shown(events: RecordedEvents) -> None:
    for path, shown in (
        ("certs/ca.pem", "certs/ca.pem"),
        ("-----BEGIN hunter2", "a file whose name is hidden"),
    ):
        with pytest.raises(ConfigError, match=f"can't read {shown}.*: no such file"):
            Secret(SecretSource("ssl.truststore.location", path=path), events)


def test_neither_source_nor_secret_shows_the_text(tmp_path: Path, events: RecordedEvents) -> None:
    (tmp_path / "password").write_text("s3cret")
    given = SecretSource("sasl.password", "s3cret")
    shown = f"{given!r} {given} {Secret(given)!r} {in_file(tmp_path / 'password', events)!r}"
    assert "s3cret" not in shown
    assert str(tmp_path / "password") in shown


# -- values of texts that change -----------------------------------------------------------------------------


class Given:
    """A text that a test changes, and how often something was made of it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.made = 0

    def read(self) -> str:
        return self.text

    def make(self, text: str) -> int:
        self.made += 1
        if not text.isdigit():
            raise ConfigError(f"a.number: {text} is none", name="a.number")
        return int(text)


def test_it_is_made_anew_when_the_text_changed_and_only_then() -> None:
    given = Given("1")
    number = InForce(given.read, given.make, RecordedEvents())
    assert (number.now(), number.now(), given.made) == (1, 1, 1)
    given.text = "2"
    assert (number.now(), number.now(), given.made) == (2, 2, 2)


def test_an_unusable_secret_is_reported_once_and_the_last_good_one_stays() -> None:
    given, events = Given("1"), RecordedEvents()
    number = InForce(given.read, given.make, events)
    given.text = "one"
    assert (number.now(), number.now(), given.made) == (1, 1, 2)
    assert events.events == [SecretReloaded("a.number", "a.number: one is none")]
    given.text = "1"
    assert (number.now(), given.made) == (1, 2)
    for text in ("2", "one"):
        given.text = text
        number.now()
    assert number.now() == 2
    assert len(events.events) == 2, "after a good one it is reported again"


def test_without_a_first_one_there_is_none() -> None:
    given = Given("one")
    with pytest.raises(ConfigError, match=r"a\.number: one is none"):
        InForce(given.read, given.make, RecordedEvents())
