"""A token in a file that somebody keeps fresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.errors import ConfigError, SaslAuthenticationError
from client_core.events import SecretReloaded
from client_core.network.sasl.client_jwt_validator import ClientJwtValidator
from client_core.network.sasl.file_login import FileLogin
from tests.network.sasl.jwts import jwt_of
from tests.support.mock_clock import MockClock
from tests.support.recorded_events import RecordedEvents

if TYPE_CHECKING:
    from pathlib import Path

URL_SETTING = "sasl.oauthbearer.token.endpoint.url"


def token(clock: MockClock, subject: str, lives_ms: int = 600_000) -> str:
    return jwt_of(subject, expires_ms=clock.wall_ms() + lives_ms)


def login(file: Path, clock: MockClock, events: RecordedEvents | None = None) -> FileLogin:
    return FileLogin(file.as_uri(), ClientJwtValidator(), clock, events or RecordedEvents())


def test_the_file_is_read_again_once_it_has_changed(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "a token"
    file.write_text(token(clock, "first") + "\n")
    source = login(file, clock)
    assert source.token() is source.token()
    assert source.token().principal_name == "first"
    file.write_text(token(clock, "the second"))
    assert source.token().principal_name == "the second"
    source.close()


def test_what_is_no_token_leaves_the_last_one_in_force_and_is_told_once(tmp_path: Path) -> None:
    clock, file, events = MockClock(), tmp_path / "token", RecordedEvents()
    file.write_text(token(clock, "alice"))
    source = login(file, clock, events)
    file.write_text("hunter2")
    for _ in range(2):
        assert source.token().principal_name == "alice"
    file.unlink()
    assert source.token().principal_name == "alice"
    failures = [event.failure for event in events.of(SecretReloaded)]
    assert failures[0] is None  # the file was read
    assert failures[1] == (
        f"{URL_SETTING}: {file} holds no token that a broker could accept: Malformed JWT provided; expected"
        " three sections (header, payload, and signature)"
    )
    assert "hunter2" not in str(failures)
    assert len(failures) == 3
    clock.advance(600_000)
    with pytest.raises(SaslAuthenticationError):
        source.token()


def test_an_expired_token_is_a_refusal_that_says_who_must_act(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "token"
    file.write_text(token(clock, "alice"))
    source = login(file, clock)
    clock.advance(607_000)
    with pytest.raises(SaslAuthenticationError) as caught:
        source.token()
    assert str(caught.value) == (
        f"the token in {file} expired 7 s ago; renew the file, and check that the clocks agree"
    )
    file.write_text(token(clock, "alice again"))
    assert source.token().principal_name == "alice again"


def test_a_file_without_a_token_is_a_config_error(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="can't read"):
        login(file, MockClock())
    file.write_text("hunter2")
    with pytest.raises(ConfigError, match="holds no token that a broker could accept") as caught:
        login(file, MockClock())
    assert caught.value.name == URL_SETTING
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("url", ["file://host/token", "file:token", "file://"])
def test_an_address_without_an_absolute_path_is_a_config_error(url: str) -> None:
    with pytest.raises(ConfigError, match="must be file:// and an absolute path"):
        FileLogin(url, ClientJwtValidator(), MockClock(), RecordedEvents())


def test_repr_shows_the_path(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "token"
    file.write_text(token(clock, "alice"))
    assert repr(login(file, clock)) == f"<FileLogin {file}>"
