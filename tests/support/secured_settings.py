"""Producer settings for the listeners of `secured_kraft.py`, and files that change as a kubelet changes them.

    settings = on(secured, "SASL_SSL") | as_user("SCRAM-SHA-512", ALICE)
    mounted = MountedSecret(folder, {"password": "old"})      # mounted.path("password"), mounted.swap({...})

Pure values but for MountedSecret, which writes files; any thread.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tests.support.certificates import write_pem
from tests.support.oauth_endpoint import signed_token
from tests.support.secured_kraft import PASSWORDS, protocol_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    import pytest

    from tests.support.certificates import Identity
    from tests.support.secured_kraft import SecuredKraft

Settings = dict[str, str | int | bool]

#: The link to the present version of a mounted secret, in Kubernetes.
_PRESENT: Final = "..data"


def on(secured: SecuredKraft, listener: str) -> Settings:
    """Where a listener is, and whom to trust there."""
    settings: Settings = {
        "bootstrap.servers": secured.bootstrap(listener),
        "security.protocol": protocol_of(listener),
    }
    if protocol_of(listener).endswith("SSL"):
        settings["ssl.truststore.location"] = str(secured.trust_path)
    return settings


def as_user(mechanism: str, user: str, password: str | None = None) -> Settings:
    """A user's credentials for PLAIN or SCRAM; the right ones if no password is given."""
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user] if password is None else password,
    }


def with_token_file(path: Path, subject: str, *, lifetime_s: int = 3_600, forged: bool = False) -> Settings:
    """A token from a file, which is written."""
    write_pem(path, signed_token(subject, lifetime_s=lifetime_s, forged=forged))
    return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": path.as_uri()}


def with_token_endpoint(url: str, client_id: str, secret: str) -> Settings:
    """A token from an endpoint, renewed as soon as Kafka's rules allow: tokens of tests live for seconds."""
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": client_id,
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.login.refresh.min.period.seconds": 0,
        "sasl.login.refresh.buffer.seconds": 0,
    }


def with_token_provider(provider: Callable[[], object] | str) -> Mapping[str, object]:
    """A token from a callable, or from that of a place; renewed as soon as Kafka's rules allow."""
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": provider,
        "sasl.login.refresh.min.period.seconds": 0,
        "sasl.login.refresh.buffer.seconds": 0,
    }


def with_certificate(identity: Identity, path: Path, *, key_password: str | None = None) -> Settings:
    """A client's certificate from a keystore file, which is written."""
    identity.write(path, password=key_password)
    settings: Settings = {"ssl.keystore.location": str(path)}
    if key_password is not None:
        settings["ssl.key.password"] = key_password
    return settings


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """All that the test itself has logged, stacks of exceptions too; for a fixture's end as well."""
    formatter = logging.Formatter()
    return "\n".join(formatter.format(record) for record in caplog.get_records("call"))


@contextmanager
def nothing_logged_of(
    secrets: Iterable[str], caplog: pytest.LogCaptureFixture, logger: str | None = "client_core"
) -> Iterator[None]:
    """For a fixture around a test: `logger` logs something, down to DEBUG, and none of these is in it."""
    caplog.set_level(logging.DEBUG, logger)
    yield
    lines = logged(caplog)
    assert lines, "nothing was logged at all"
    for secret in secrets:
        assert secret not in lines


class MountedSecret:
    """A folder of files that change all at once, as a kubelet mounts a Secret: by swapping one symbolic link.

    password -> ..data/password
    ..data -> ..2026_01_01_00_00_00.1             and after a swap -> ..2026_01_01_00_00_00.2
    ..2026_01_01_00_00_00.1/password
    """

    def __init__(self, folder: Path, texts: Mapping[str, str]) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)
        self._swap(texts)
        for name in texts:
            (folder / name).symlink_to(f"{_PRESENT}/{name}")

    def path(self, name: str) -> Path:
        return self._folder / name

    def swap(self, texts: Mapping[str, str]) -> None:
        """Puts other texts into all the files in one step."""
        before = os.readlink(self._folder / _PRESENT)
        self._swap(texts)
        shutil.rmtree(self._folder / before)

    def _swap(self, texts: Mapping[str, str]) -> None:
        version = f"..2026_01_01_00_00_00.{next(self._numbers)}"
        (self._folder / version).mkdir()
        for name, text in texts.items():
            (self._folder / version / name).write_text(text, encoding="utf-8")
        beside = self._folder / f"{_PRESENT}_tmp"
        beside.symlink_to(version)
        os.replace(beside, self._folder / _PRESENT)
