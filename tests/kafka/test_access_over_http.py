"""Callers with tokens of their own, a real sidecar, real brokers: what each gets, and a reload meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

#: Reads everything: for the test itself, and for the probe of tests/support/sidecar.py.
OPERATOR = {"read": ["*"], "produce": ["*"]}


@pytest.fixture
def topics(new_topic: NewTopic) -> tuple[str, str]:
    """The topic of the shop, and one that is not its business."""
    return new_topic(partitions=2), new_topic(partitions=2)


@pytest.fixture
def tokens(tmp_path: Path, topics: tuple[str, str]) -> TokensFile:
    shop = {"read": [topics[0]], "produce": [topics[0]]}
    return TokensFile(tmp_path, shop=shop, audit={"read": ["*"]}, operator=OPERATOR)


@pytest.fixture
def sidecar(kafka: KraftCluster, tokens: TokensFile, tmp_path: Path) -> Iterator[Sidecar]:
    sidecar = Sidecar(
        tmp_path,
        bootstrap_servers=kafka.bootstrap_servers,
        flags=("--tokens-file", tokens.setting),
        limits={"watch_heartbeat_ms": 200},
        environment={"PILOTFISH_TOKEN": "a caller's, and nothing to a sidecar"},
    )
    sidecar.api.headers.update(tokens.of("operator"))
    with sidecar:
        yield sidecar


def produce(sidecar: Sidecar, topic: str, headers: dict[str, str]) -> httpx.Response:
    records = {"records": [{"value": "x"}], "value_format": "text"}
    return sidecar.api.post(f"/v1/topics/{topic}/records", json=records, headers=headers)


def test_each_caller_gets_what_its_token_allows(
    kafka: KraftCluster,
    tokens: TokensFile,
    topics: tuple[str, str],
    sidecar: Sidecar,
    topic_name: Callable[[], str],
) -> None:
    own, other = topics
    shop, audit = tokens.of("shop"), tokens.of("audit")
    assert produce(sidecar, own, shop).status_code == 200
    for headers, topic in [(shop, other), (audit, own), (shop, topic_name())]:
        refused = produce(sidecar, topic, headers)
        assert (refused.status_code, refused.json()["code"]) == (403, 29)
    assert [record.value for record in kafka.read_back(own)] == [b"x"]
    assert kafka.read_back(other) == []
    looked_up = [sidecar.api.get(f"/v1/topics/{topic}", headers=shop).status_code for topic in topics]
    assert looked_up == [200, 403]
    listed = {
        name: {t["name"] for t in sidecar.api.get("/v1/topics", headers=headers).json()["topics"]}
        for name, headers in (("shop", shop), ("audit", audit))
    }
    assert listed["shop"] == {own}
    assert listed["audit"] >= {own, other}
    lookups = [{"topic": topic, "partition": 0} for topic in (own, other)]
    mine, not_mine = sidecar.api.post("/v1/leaders", json={"lookups": lookups}, headers=shop).json()[
        "results"
    ]
    assert mine["leader"]["id"] in kafka.broker_ids
    assert not_mine["error"]["kafka_error"] == "TOPIC_AUTHORIZATION_FAILED"


def test_a_token_that_is_taken_out_of_the_file_stops_working_while_the_sidecar_runs(
    tokens: TokensFile, topics: tuple[str, str], sidecar: Sidecar
) -> None:
    own, other = topics

    def status(name: str, topic: str = own) -> int:
        return sidecar.api.get(f"/v1/topics/{topic}", headers=tokens.of(name)).status_code

    assert (status("shop"), status("audit"), status("newcomer")) == (200, 200, 401)
    watch = {**tokens.of("shop"), "accept": "text/event-stream"}
    with sidecar.api.stream("GET", "/v1/watch", headers=watch, timeout=20) as watching:
        assert watching.status_code == 200
        tokens.write(audit={"read": [other]}, newcomer={"read": ["*"]}, operator=OPERATOR)
        wait_until(lambda: status("newcomer") == 200, what="a token that was added")
        with pytest.raises(httpx.RemoteProtocolError):  # cut off, not ended
            watching.read()
    assert (status("shop"), status("audit"), status("audit", other)) == (401, 403, 200)

    tokens.path.write_text("[[token]]\nname = 'half an ent")
    wait_until(
        lambda: sidecar.metric("pilotfish_credential_reloads_total", outcome="failure") == 1,
        what="a reload that failed",
    )
    assert (status("newcomer"), status("shop")) == (200, 401)
    assert sidecar.metric("pilotfish_credential_reloads_total", outcome="success") == 1
    log = sidecar.log()
    assert log.count("the earlier value stays in use") == 1
    assert not [name for name in ("shop", "audit", "newcomer", "operator") if tokens.token(name) in log]
