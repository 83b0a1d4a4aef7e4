"""The secured broker: each listener accepts the right clients and no others, checked with librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError, Producer

from tests.support.certificates import Authority, write_pem
from tests.support.oauth_endpoint import OAuthEndpoint, signed_token
from tests.support.secured_kraft import ALICE, BOB, MECHANISMS, PASSWORDS
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Message

    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft

_PATIENCE_S: Final = 60.0


class _Client:
    """librdkafka on one listener: the outcome of a produce, and its complaints until then."""

    def __init__(self, secured: SecuredKraft, listener: str, settings: Mapping[str, Any]) -> None:
        self.complaints: list[str] = []
        self.delivered: list[int] = []
        protocol = "SSL" if listener.startswith("SSL") else listener.replace("_REAUTH", "_PLAINTEXT")
        self._producer = Producer(
            {
                "bootstrap.servers": secured.bootstrap(listener),
                "security.protocol": protocol.replace("SASL_PLAIN_ONLY", "SASL_PLAINTEXT"),
                "ssl.ca.location": str(secured.trust_path),
                "error_cb": lambda error: self.complaints.append(error.str()),
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
                **settings,
            }
        )

    def produce(self, topic: str) -> None:
        self._producer.produce(topic, b"x", partition=0, on_delivery=self._reported)

    def offset(self, topic: str) -> int:
        """Produces one record, and returns its offset."""
        self.delivered.clear()
        self.produce(topic)
        wait_until(
            self._is_delivered,
            what="a delivery",
            timeout_s=_PATIENCE_S,
            last_seen=lambda: set(self.complaints[-5:]),
        )
        return self.delivered[0]

    def expect(self, wanted: str) -> None:
        """Waits for a complaint, serving its callbacks."""
        wait_until(
            lambda: self._turn() and any(wanted in said for said in self.complaints),
            what=f"a complaint with {wanted!r}",
            timeout_s=_PATIENCE_S,
            every_s=0.0,
            last_seen=lambda: set(self.complaints[-5:]),
        )

    def _turn(self) -> bool:
        self._producer.poll(0.1)
        return True

    def _is_delivered(self) -> bool:
        self._turn()
        return bool(self.delivered)

    def _reported(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.complaints.append(error.str())
            return
        offset = message.offset()
        assert offset is not None
        self.delivered.append(offset)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5)


def _sasl(mechanism: str, user: str = ALICE, password: str | None = None) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {
            "sasl.mechanism": mechanism,
            "oauth_cb": lambda _: (signed_token(user), 4_000_000_000.0),
        }
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user] if password is None else password,
    }


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL", "SASL_REAUTH"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_lets_a_user_in(
    secured_kafka: SecuredKraft, new_topic: NewTopic, listener: str, mechanism: str
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    client = _Client(secured_kafka, listener, _sasl(mechanism))
    assert client.offset(topic) == 0
    client.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_keeps_a_stranger_out(secured_kafka: SecuredKraft, mechanism: str) -> None:
    wrong = _sasl(mechanism, password="wrong")
    if mechanism == "OAUTHBEARER":
        wrong["oauth_cb"] = lambda _: (signed_token(ALICE, forged=True), 4_000_000_000.0)
    client = _Client(secured_kafka, "SASL_PLAINTEXT", wrong)
    client.expect("uthentication failed" if mechanism != "OAUTHBEARER" else "invalid_token")
    client.close()


def test_a_mechanism_that_a_listener_has_not_is_named_with_those_that_it_has(
    secured_kafka: SecuredKraft,
) -> None:
    client = _Client(secured_kafka, "SASL_PLAIN_ONLY", _sasl("SCRAM-SHA-256"))
    client.expect("broker's supported mechanisms: PLAIN")
    client.close()


@pytest.mark.parametrize("listener", ["SSL", "SSL_12", "SSL_13"])
def test_a_listener_with_tls_serves_everyone_who_trusts_it(
    secured_kafka: SecuredKraft, new_topic: NewTopic, listener: str
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    client = _Client(secured_kafka, listener, {})
    assert client.offset(topic) == 0
    client.close()


@pytest.mark.parametrize("listener", ["SSL_EXPIRED", "SSL_ELSEWHERE"])
def test_a_bad_certificate_of_the_broker_is_seen(secured_kafka: SecuredKraft, listener: str) -> None:
    client = _Client(secured_kafka, listener, {})
    client.expect("certificate verify failed")
    client.close()


@pytest.mark.parametrize("listener", ["SSL_REQUIRED", "SSL_PROXIED"])
def test_a_required_certificate_must_be_of_our_authority(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path, listener: str
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)

    def with_certificate_of(authority: Authority) -> _Client:
        issued = authority.issue("client.test")
        key = write_pem(tmp_path / "key.pem", issued.key_encrypted_with("key password"))
        chain = write_pem(tmp_path / "chain.pem", issued.chain)
        settings = {
            "ssl.key.location": str(key),
            "ssl.key.password": "key password",
            "ssl.certificate.location": str(chain),
        }
        return _Client(secured_kafka, listener, settings)

    ours = with_certificate_of(secured_kafka.authority)
    assert ours.offset(topic) == 0
    ours.close()

    theirs = with_certificate_of(Authority())
    theirs.expect("SSL")
    assert theirs.delivered == []
    theirs.close()

    none = _Client(secured_kafka, listener, {})
    none.expect("SSL")
    none.close()


def test_a_right_is_taken_and_given_back(secured_kafka: SecuredKraft, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    client = _Client(secured_kafka, "SASL_PLAINTEXT", _sasl("PLAIN", BOB))
    assert client.offset(topic) == 0
    with secured_kafka.security.denied(BOB, "WRITE", topic=topic):
        client.produce(topic)
        client.expect("Topic authorization failed")
    again = _Client(secured_kafka, "SASL_PLAINTEXT", _sasl("PLAIN", BOB))
    assert again.offset(topic) == 1
    client.close()
    again.close()


def test_a_user_without_a_right_that_another_has_is_denied(
    secured_kafka: SecuredKraft, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    secured_kafka.security.allow(ALICE, "WRITE", topic=topic)
    client = _Client(secured_kafka, "SASL_PLAINTEXT", _sasl("PLAIN", BOB))
    client.produce(topic)
    client.expect("Topic authorization failed")
    assert secured_kafka.security.forget_acls(topic=topic) == 1
    client.close()


def test_a_changed_password_is_the_only_one(secured_kafka: SecuredKraft, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    secured_kafka.security.set_password("carol", "SCRAM-SHA-512", "first")
    carol = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "carol"}
    first = _Client(secured_kafka, "SASL_PLAINTEXT", {**carol, "sasl.password": "first"})
    assert first.offset(topic) == 0

    secured_kafka.security.set_password("carol", "SCRAM-SHA-512", "second")
    stale = _Client(secured_kafka, "SASL_PLAINTEXT", {**carol, "sasl.password": "first"})
    stale.expect("uthentication failed")
    second = _Client(secured_kafka, "SASL_PLAINTEXT", {**carol, "sasl.password": "second"})
    assert second.offset(topic) == 1

    secured_kafka.security.remove_user("carol", "SCRAM-SHA-512")
    gone = _Client(secured_kafka, "SASL_PLAINTEXT", {**carol, "sasl.password": "second"})
    gone.expect("uthentication failed")
    for client in (first, stale, second, gone):
        client.close()


def test_the_token_endpoint_serves_librdkafka(secured_kafka: SecuredKraft, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    with OAuthEndpoint({"pilotfish": "its secret"}) as endpoint:
        oidc = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "pilotfish",
            "sasl.oauthbearer.client.secret": "its secret",
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        }
        client = _Client(secured_kafka, "SASL_PLAINTEXT", oidc)
        assert client.offset(topic) == 0
        assert endpoint.granted >= 1
        client.close()
        assert {request.client_id for request in endpoint.requests} == {"pilotfish"}


def test_a_replaced_certificate_is_shown_to_new_connections(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    store = secured_kafka.authority.issue("client.test")
    settings = {
        "ssl.key.pem": store.key,
        "ssl.certificate.pem": store.chain,
    }
    other = Authority()
    try:
        secured_kafka.replace_certificate(
            other, trust=secured_kafka.authority.certificate + other.certificate
        )
        trusting = write_pem(tmp_path / "other.pem", other.certificate)
        client = _Client(secured_kafka, "SSL_PROXIED", {**settings, "ssl.ca.location": str(trusting)})
        assert client.offset(topic) == 0
        client.close()
        stale = _Client(secured_kafka, "SSL_PROXIED", settings)
        stale.expect("verify failed")
        stale.close()
    finally:
        secured_kafka.replace_certificate(secured_kafka.authority, trust=secured_kafka.authority.certificate)
