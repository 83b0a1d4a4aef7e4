"""A producer with SASL and TLS against the fake cluster: which waits are no failures, and its errors."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from client_core import KafkaProducer, MetadataResult, ProducerConfig
from client_core.error_codes import Errors
from client_core.events import NodeDisconnected, SecretReloaded
from client_core.protocol.api_keys import ApiKey
from client_core.testing import Disconnect, FakeCluster, SaslDemand
from tests.network.sasl.jwts import jwt_of
from tests.support.certificates import Authority, write_pem
from tests.support.live_producer import PATIENCE_MS, Outcome, live_producer, look_up, producing, submit
from tests.support.record_flow import RecordFlow, keep_sending
from tests.support.recorded_events import RecordedEvents
from tests.support.tcp_peers import PATIENCE_S, ScriptedPeer
from tests.support.tls_peers import server_context, show
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

HOUR_MS: Final = 3_600_000
DEMAND: Final = SaslDemand(("PLAIN",), passwords={"alice": "secret of hers"})
ALICE: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "secret of hers",
}


class SlowEndpoint(ScriptedPeer):
    """A token endpoint that answers when the test lets it."""

    def __init__(self) -> None:
        self.token = jwt_of("alice", expires_ms=int(time.time() * 1000) + HOUR_MS)
        self.was_asked = threading.Event()
        self.may_answer = threading.Event()
        super().__init__(self._answer)

    def _answer(self, connection: socket.socket) -> None:
        connection.recv(65536)
        self.was_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        body = f'{{"access_token": "{self.token}"}}'
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())

    def settings(self) -> Mapping[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{self.address[1]}/token",
            "sasl.oauthbearer.client.credentials.client.id": "pilot",
            "sasl.oauthbearer.client.credentials.client.secret": "fish",
        }


def test_a_start_that_waits_for_its_first_token_is_no_failure_of_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    events = RecordedEvents()
    with SlowEndpoint() as endpoint, FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.demand_sasl(SaslDemand(("OAUTHBEARER",), tokens={endpoint.token: "alice"}))
        with live_producer(cluster.bootstrap_servers, endpoint.settings(), events=events) as producer:
            caplog.clear()  # it rightly warned that the connection is not encrypted
            reported = look_up(producer, "orders")
            assert endpoint.was_asked.wait(PATIENCE_S)
            turns = producer.status().loop_turns
            while producer.status().loop_turns < turns + 3:  # the I/O thread does not wait for the token
                producer.wakeup()
            assert not reported.is_reported
            endpoint.may_answer.set()
            assert not reported.result(MetadataResult).topic_errors
            of_start = [(record.levelname, record.message) for record in caplog.records]
            assert [text for level, text in of_start if level != "INFO"] == []
            assert sum("token" in text for _, text in of_start) == 1
            assert events.of(NodeDisconnected) == []


def test_a_connection_that_got_no_token_in_time_does_not_blame_the_broker() -> None:
    events = RecordedEvents()
    with SlowEndpoint() as endpoint, FakeCluster(brokers=1) as cluster:
        cluster.demand_sasl(SaslDemand(("OAUTHBEARER",)))
        settings = {**endpoint.settings(), "socket.connection.setup.timeout.ms": 100}
        with live_producer(cluster.bootstrap_servers, settings, events=events) as producer:
            look_up(producer, "orders")
            (first, *_) = wait_until(lambda: events.of(NodeDisconnected), what="the end of a connection")
            endpoint.may_answer.set()
    assert first.reason == "setup_timeout"
    assert first.detail.endswith(" ms: it waits for an OAUTHBEARER token, not for the broker")


def test_a_producer_that_was_never_started_asks_for_no_token() -> None:
    with SlowEndpoint() as endpoint:
        before = set(threading.enumerate())
        settings = {"bootstrap.servers": "127.0.0.1:9", **endpoint.settings()}
        producer = KafkaProducer(ProducerConfig.from_mapping(settings))
        assert set(threading.enumerate()) <= before
        producer.close()
        assert set(threading.enumerate()) <= before
        assert not endpoint.was_asked.is_set()


def test_a_listener_that_ends_connections_behind_api_versions_may_want_sasl(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = RecordedEvents()
    with FakeCluster() as cluster:
        cluster.create_topic("orders")
        cluster.demand_sasl(SaslDemand(("PLAIN",)))
        with live_producer(cluster.bootstrap_servers, events=events) as producer:
            assert look_up(producer, "orders", deadline_in_ms=300).result(MetadataResult).error is not None
            ended = wait_until(lambda: events.of(NodeDisconnected), what="a connection that ended")
            for end in ended:
                assert end.reason == "closed"
                assert "may want SASL; set security.protocol to SASL_PLAINTEXT or SASL_SSL" in end.detail
            wait_until(
                lambda: "the listener may want SASL" in (producer.status().nodes[0].last_error or ""),
                what="the reason in the status",
            )
            wait_until(
                lambda: any(
                    record.levelname == "WARNING" and "may want SASL" in record.getMessage()
                    for record in caplog.records
                ),
                what="a warning",
            )


def test_a_broker_that_has_answered_and_goes_away_is_not_suspected_to_want_sasl() -> None:
    events = RecordedEvents()
    with producing(events=events) as (cluster, producer):
        assert submit(producer, "orders", [b"x"]).offsets() == [0]
        cluster.drop_connections(cluster.broker_ids[0])
        now_ms = producer.clock.now_ms()
        reported = Outcome()
        producer.request_update(deadline_ms=now_ms + PATIENCE_MS, done=reported)
        assert reported.result(MetadataResult).error is None
    ended = events.of(NodeDisconnected)
    assert ended
    assert not [end for end in ended if "SASL" in end.detail]


def test_a_client_with_sasl_is_not_advised_to_use_it() -> None:
    events = RecordedEvents()
    with FakeCluster(brokers=1) as cluster:
        cluster.demand_sasl(DEMAND)
        cluster.react_next(ApiKey.METADATA, Disconnect())
        with live_producer(cluster.bootstrap_servers, ALICE, events=events) as producer:
            look_up(producer, "orders").result(MetadataResult)
    ended = events.of(NodeDisconnected)
    assert ended
    assert not [end for end in ended if "may want SASL" in end.detail]


@pytest.mark.behaviour("SASL-03")
def test_a_broker_that_fails_while_it_authenticates_is_tried_again_and_the_reason_says_so() -> None:
    events = RecordedEvents()
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.demand_sasl(DEMAND)
        code, text = Errors.UNKNOWN_SERVER_ERROR.code, "no answer from the store"
        cluster.change_next(
            ApiKey.SASL_AUTHENTICATE, lambda r: r._replace(error_code=code, error_message=text), times=2
        )
        with live_producer(cluster.bootstrap_servers, ALICE, events=events) as producer:
            assert submit(producer, "orders", [b"x"]).offsets() == [0]
    said = "the broker answered SaslAuthenticate with UNKNOWN_SERVER_ERROR: no answer from the store"
    assert [said in end.detail for end in events.of(NodeDisconnected)[:2]] == [True, True]


def test_a_new_password_that_the_broker_does_not_know_yet_costs_no_record_though_sessions_end(
    tmp_path: Path,
) -> None:
    password, events = tmp_path / "password", RecordedEvents()
    password.write_text("secret of hers")
    settings = {**ALICE, "sasl.password.file": str(password)}
    del settings["sasl.password"]
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("orders")
        cluster.demand_sasl(replace(DEMAND, session_lifetime_ms=1_500))
        with live_producer(cluster.bootstrap_servers, settings, events=events) as producer:
            flow = RecordFlow(producer, "orders")
            keep_sending(flow, until=flow.one_more(), what="the first record")
            password.write_text("her next secret")
            keep_sending(
                flow,
                until=lambda: any(reported.failure for reported in events.of(SecretReloaded)),
                what="the broker's refusal",
            )
            trials = len(cluster.requests(ApiKey.SASL_HANDSHAKE))
            keep_sending(
                flow,
                until=lambda: len(cluster.requests(ApiKey.SASL_HANDSHAKE)) > trials + 1,
                what="renewals of the session",
            )
            flow.all_acknowledged()


def test_records_go_on_over_tls_while_both_sides_change_their_certificates(tmp_path: Path) -> None:
    brokers, clients = Authority(), Authority()
    trust = brokers.write_trust(tmp_path / "trust.pem")
    keystore = clients.issue("client.example").write(tmp_path / "keystore.pem")
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trust),
        "ssl.keystore.location": str(keystore),
    }
    tls = server_context(brokers.issue("127.0.0.1"), client_auth="required", trusts=clients.certificate)
    with FakeCluster(tls=tls) as cluster:
        cluster.create_topic("orders")
        with live_producer(cluster.bootstrap_servers, settings) as producer:
            assert submit(producer, "orders", [b"a"]).offsets() == [0]
            newer = Authority()
            write_pem(trust, brokers.certificate + newer.certificate)
            clients.issue("client.example").write(keystore)
            cluster.change_tls(partial(show, identity=newer.issue("127.0.0.1")))
            for broker_id in cluster.broker_ids:
                cluster.drop_connections(broker_id)
            assert submit(producer, "orders", [b"b"]).offsets() == [1]
            newer.write_trust(trust)
            for broker_id in cluster.broker_ids:
                cluster.revive(broker_id, new_port=broker_id != 1)
            assert submit(producer, "orders", [b"c"]).offsets() == [2]
        assert [record.value for record in cluster.records("orders")] == [b"a", b"b", b"c"]


def test_a_client_without_tls_is_answered_nothing_by_a_cluster_that_requires_it() -> None:
    with FakeCluster(brokers=1, tls=server_context(Authority().issue("127.0.0.1"))) as cluster:
        with live_producer(cluster.bootstrap_servers) as producer:
            assert look_up(producer, "orders", deadline_in_ms=300).result(MetadataResult).error is not None
        assert cluster.requests() == []
