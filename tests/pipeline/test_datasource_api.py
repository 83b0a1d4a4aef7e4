"""The data source's calls to a real sidecar, without Spark; the fake sidecar answers them alike."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from client_core.testing.free_ports import free_ports
from pipeline.datasource.options import Access, read_options
from pipeline.datasource.sidecar_http import SidecarConnection, SidecarRefusedError, SidecarUnreachableError
from pipeline.datasource.tables import Sidecar as Tables
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.fake_sidecar_api import FakeSidecarApi
from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "pf_a-token-of-a-test"


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=(DEMO_TOPIC, "other")) as running:
        yield running


@pytest.fixture
def guarded(cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[Sidecar]:
    """A sidecar that wants a token, which may read and write the demo topic alone; with a socket too."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens = tmp_path / "tokens.toml"
    allowed = f'read = ["{DEMO_TOPIC}"]\nproduce = ["{DEMO_TOPIC}"]'
    tokens.write_text(f'[[token]]\nname = "spark"\nsha256 = "{digest}"\n{allowed}\n')
    tokens.chmod(0o600)
    with GuardedSidecar(
        tmp_path,
        bootstrap_servers=cluster.bootstrap_servers,
        flags=("--tokens-file", str(tokens)),
        socket_path=tmp_path / "api.sock",
    ) as running:
        yield running


class GuardedSidecar(Sidecar):
    """Sends its token already with the check whether the sidecar is up."""

    def start(self) -> None:
        self.api.headers["Authorization"] = f"Bearer {TOKEN}"
        super().start()


def access_to(url: str, **options: str) -> Access:
    return read_options({"url": url, "table": "topics", "timeout_ms": "5000", **options}).access


def tables(connection: SidecarConnection) -> Tables:
    return Tables(str(connection.address), lambda method, path, body: connection.ask(method, path, body))


def test_a_token_may_read_what_it_was_given_and_a_missing_one_is_reported_with_a_remedy(
    guarded: Sidecar, tmp_path: Path
) -> None:
    with (
        SidecarConnection(access_to(guarded.api_url)) as nobody,
        pytest.raises(SidecarRefusedError, match=r"401: .*; give a token .* option token_file"),
    ):
        list(tables(nobody).brokers())
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    socket_url = f"unix:{tmp_path / 'api.sock'}"
    with SidecarConnection(access_to(socket_url, token_file=str(tmp_path / "token"))) as caller:
        found = tables(caller)
        assert [row[0] for row in found.topics((), internal=False)] == [DEMO_TOPIC]
        with pytest.raises(SidecarRefusedError, match=r"lists no topic other; create it, or let the token"):
            list(found.topics(["other"], internal=False))
        with pytest.raises(SidecarRefusedError, match="403"):
            list(found.partitions(["other"]))
        assert [row[2] for row in found.partitions([DEMO_TOPIC])] == [0, 1, 2, 3]


def test_an_absent_sidecar_is_reported_with_a_remedy() -> None:
    (port,) = free_ports(1)
    with (
        SidecarConnection(access_to(f"http://127.0.0.1:{port}")) as connection,
        pytest.raises(
            SidecarUnreachableError, match=r"no sidecar answers at http://127.0.0.1:\d+ .*option url"
        ),
    ):
        connection.ask("GET", "/v1/topics")


def test_the_fake_sidecar_answers_keys_as_the_real_one_does(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    def reported(url: str) -> list[tuple[Any, ...]]:
        answers = []
        with SidecarConnection(access_to(url)) as connection:
            for key, value in (("k", "a"), ("k", "a"), ("k", "b"), ("l", "b")):
                body = json.dumps({"value_format": "text", "records": [{"value": value}]}).encode()
                path = f"/v1/topics/{DEMO_TOPIC}/records?timeout_ms=5000"
                answer = connection.ask("POST", path, body, {"Idempotency-Key": f'"{key}"'})
                read = json.loads(answer.body)
                answers.append(
                    (answer.status, answer.headers.get("pilotfish-replayed"), len(read.get("results", ())))
                )
        return answers

    with (
        FakeSidecarApi() as fake,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers) as real,
    ):
        assert (
            reported(fake.url)
            == reported(real.api_url)
            == [(200, None, 1), (200, "true", 1), (422, None, 0), (200, None, 1)]
        )
        assert fake.values() == [b"a", b"b"]
