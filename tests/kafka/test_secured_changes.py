"""Changes while a producer works on a real broker: sessions, tokens, passwords, certificates and rights.

Files change as a kubelet changes them. No acknowledged record is lost. If a change is made in the right
order, no record fails. No secret is in any line that was logged meanwhile.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from client_core import (
    NodeDisconnected,
    RecordFailure,
    RecordMetadata,
    SaslAuthenticationError,
    SecretReloaded,
    TopicAuthorizationError,
)
from tests.support.certificates import Authority
from tests.support.live_producer import live_producer, submit
from tests.support.oauth_endpoint import OAuthEndpoint, signed_token
from tests.support.record_flow import RecordFlow, keep_sending
from tests.support.recorded_events import RecordedEvents
from tests.support.secured_kraft import ALICE, BOB, MECHANISMS, PASSWORDS, REAUTH_MS
from tests.support.secured_settings import (
    MountedSecret,
    as_user,
    logged,
    nothing_logged_of,
    on,
    with_token_endpoint,
    with_token_file,
    with_token_provider,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from client_core import KafkaError, KafkaProducer
    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft
    from tests.support.secured_settings import Settings

_SCRAM: Final = "SCRAM-SHA-512"
_CLIENT: Final = "pilotfish"
_CLIENT_SECRET: Final = "snark-hunt-6Pw"
_FIRST: Final = "caterpillar-3Hn"
_SECOND: Final = "butterfly-8Lc"
_SECRETS: Final = (*PASSWORDS.values(), _CLIENT_SECRET, _FIRST, _SECOND, "PRIVATE KEY", "eyJ")
_TOKEN_LIFETIME_S: Final = 8
_RENEWED: Final = "Finished re-authentication"


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with nothing_logged_of(_SECRETS, caplog):
        yield


@pytest.fixture
def topic(secured_kafka: SecuredKraft, new_topic: NewTopic) -> str:
    return new_topic(partitions=1, on=secured_kafka.cluster)


def _passed(seconds: float) -> Callable[[], bool]:
    end_s = time.monotonic() + seconds
    return lambda: time.monotonic() >= end_s


def _values(secured: SecuredKraft, topic: str) -> list[bytes | None]:
    return [record.value for record in secured.cluster.read_back(topic)]


# -- sessions ----------------------------------------------------------------------------------------------


@pytest.mark.behaviour("SASL-06")
def test_sessions_are_renewed_while_records_flow_and_none_fails(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After REAUTH_MS the broker ends every session that was not renewed, and its connection."""
    events = {mechanism: RecordedEvents() for mechanism in MECHANISMS}
    topics = {mechanism: new_topic(partitions=1, on=secured_kafka.cluster) for mechanism in MECHANISMS}
    with ExitStack() as closing:
        streams: dict[str, RecordFlow] = {}
        for mechanism in MECHANISMS:
            oauth = mechanism == "OAUTHBEARER"
            who = with_token_file(tmp_path / "token", ALICE) if oauth else as_user(mechanism, ALICE)
            settings = on(secured_kafka, "SASL_REAUTH") | who | {"client.id": f"renews-{mechanism}"}
            producer = closing.enter_context(
                live_producer(str(settings["bootstrap.servers"]), settings, events=events[mechanism])
            )
            streams[mechanism] = RecordFlow(producer, topics[mechanism])
        keep_sending(*streams.values(), until=_passed(2.3 * REAUTH_MS / 1_000), what="two sessions' lives")
        for mechanism, stream in streams.items():
            sent = stream.all_acknowledged()
            assert _values(secured_kafka, topics[mechanism]) == [str(n).encode() for n in range(sent)]
            assert events[mechanism].of(NodeDisconnected) == []
    # Two per producer at least: one connection each, and more where the bootstrap connection was used again.
    assert logged(caplog).count(_RENEWED) >= 2 * len(MECHANISMS)


def test_a_session_that_was_idle_beyond_its_end_costs_no_record(
    secured_kafka: SecuredKraft, topic: str
) -> None:
    settings = on(secured_kafka, "SASL_REAUTH") | as_user(_SCRAM, ALICE)
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
        assert submit(producer, topic, [b"before"], partition=0).offsets() == [0]
        idle_until = _passed(1.2 * REAUTH_MS / 1_000)
        wait_until(idle_until, what="the session's end")
        assert submit(producer, topic, [b"after"], partition=0).offsets() == [1]


# -- tokens ------------------------------------------------------------------------------------------------


def test_tokens_are_fetched_anew_before_they_end_even_if_the_endpoint_fails_for_a_while(
    secured_kafka: SecuredKraft, topic: str
) -> None:
    """The session on this listener lives as long as the token, so that an old one would end it."""
    events = RecordedEvents()
    with OAuthEndpoint({_CLIENT: _CLIENT_SECRET}) as endpoint:
        endpoint.lifetime_s = _TOKEN_LIFETIME_S
        settings = on(secured_kafka, "SASL_PLAINTEXT") | with_token_endpoint(
            endpoint.url, _CLIENT, _CLIENT_SECRET
        )
        with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
            stream = RecordFlow(producer, topic)
            keep_sending(stream, until=stream.one_more(), what="the first records")
            before = len(events.of(NodeDisconnected))
            endpoint.refuse_with = 503
            asked = len(endpoint.requests)
            keep_sending(stream, until=lambda: len(endpoint.requests) > asked, what="a refused request")
            endpoint.refuse_with = None
            granted = endpoint.granted
            keep_sending(stream, until=lambda: endpoint.granted >= granted + 2, what="two more tokens")
            sent = stream.all_acknowledged()
        assert _values(secured_kafka, topic) == [str(n).encode() for n in range(sent)]
        assert len(events.of(NodeDisconnected)) == before


@pytest.mark.behaviour("CRED-01")
def test_a_hundred_tokens_of_a_callable_expire_and_no_record_fails(
    secured_kafka: SecuredKraft, topic: str
) -> None:
    """Each session lives as long as its token: three seconds, less what the claims' whole seconds cost."""
    expiries_s: list[float] = []

    def token() -> str:
        expiries_s.append(int(time.time()) + 3)
        return signed_token(ALICE, lifetime_s=3)

    events = RecordedEvents()
    settings = {
        **on(secured_kafka, "SASL_PLAINTEXT"),
        **with_token_provider(token),
        "sasl.login.refresh.window.factor": 0.5,
        "sasl.login.refresh.window.jitter": 0.0,
    }
    with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
        stream = RecordFlow(producer, topic)
        keep_sending(stream, until=stream.one_more(), what="the first records")
        before = len(events.of(NodeDisconnected))
        keep_sending(
            stream,
            until=lambda: sum(expiry_s < time.time() for expiry_s in tuple(expiries_s)) >= 100,
            what="a hundred expiries",
            at_most_s=600,
        )
        sent = stream.all_acknowledged()
    assert _values(secured_kafka, topic) == [str(n).encode() for n in range(sent)]
    assert len(events.of(NodeDisconnected)) == before


# -- passwords ---------------------------------------------------------------------------------------------


def test_a_password_changed_while_producing_is_taken_from_its_file(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    """The broker knows one password at a time: for a moment records may fail, but none is lost."""
    security, events = secured_kafka.security, RecordedEvents()
    security.set_password("dave", _SCRAM, _FIRST)
    mounted = MountedSecret(tmp_path / "mounted", {"password": _FIRST})
    who: Settings = {
        "sasl.mechanism": _SCRAM,
        "sasl.username": "dave",
        "sasl.password.file": str(mounted.path("password")),
    }
    settings = on(secured_kafka, "SASL_REAUTH") | who
    with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
        stream = RecordFlow(producer, topic)
        keep_sending(stream, until=stream.one_more(), what="the first records")

        security.set_password("dave", _SCRAM, _SECOND)
        mounted.swap({"password": _SECOND})
        # Every session of before must have been renewed by then.
        keep_sending(stream, until=_passed(1.2 * REAUTH_MS / 1_000), what="a session's life")
        keep_sending(stream, until=stream.one_more(), what="records with the new one")

        assert [reloaded.failure for reloaded in events.of(SecretReloaded)] == [None]
        acknowledged = stream.acknowledged()  # first: what is acknowledged later may not be in what is read
        values = _values(secured_kafka, topic)
        assert acknowledged <= set(values)
        assert len(values) == len(set(values)), "a record was written twice"

    stale = on(secured_kafka, "SASL_PLAINTEXT") | as_user(_SCRAM, "dave", _FIRST)
    with live_producer(str(stale["bootstrap.servers"]), stale) as producer:
        error = submit(producer, topic, [b"x"], partition=0).error()
    assert isinstance(error, SaslAuthenticationError)


def test_a_wrong_password_that_is_put_right_needs_no_restart(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    mounted = MountedSecret(tmp_path / "mounted", {"password": _FIRST})
    who: Settings = {
        "sasl.mechanism": "PLAIN",
        "sasl.username": BOB,
        "sasl.password.file": str(mounted.path("password")),
    }
    settings = on(secured_kafka, "SASL_SSL") | who
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
        assert isinstance(submit(producer, topic, [b"x"], partition=0).error(), SaslAuthenticationError)

        mounted.swap({"password": PASSWORDS[BOB]})

        def produced() -> bool:
            (outcome,) = submit(producer, topic, [b"x"], partition=0).outcomes()
            if isinstance(outcome, RecordFailure):
                assert isinstance(outcome.error, SaslAuthenticationError)  # of an attempt from before
            return isinstance(outcome, RecordMetadata)

        wait_until(produced, what="a record with the right password", every_s=0.0)


# -- certificates ------------------------------------------------------------------------------------------


def test_certificates_of_both_sides_change_their_authority_while_producing_and_no_record_fails(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    """First the client trusts both and shows its new certificate, then the broker changes likewise.

    Existing connections are not checked again. So all are severed, and the next ones use the new one only.
    """
    old, new, events = secured_kafka.authority, Authority(), RecordedEvents()
    before, after = old.issue("client.test"), new.issue("client.test")
    mounted = MountedSecret(tmp_path / "tls", {"ca.crt": old.certificate, "tls.pem": before.keystore()})
    settings: Settings = on(secured_kafka, "SSL_PROXIED") | {
        "ssl.truststore.location": str(mounted.path("ca.crt")),
        "ssl.keystore.location": str(mounted.path("tls.pem")),
    }
    try:
        with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
            stream = RecordFlow(producer, topic)
            keep_sending(stream, until=stream.one_more(), what="the first records")

            both = old.certificate + new.certificate
            secured_kafka.replace_certificate(old, trust=both)
            mounted.swap({"ca.crt": both, "tls.pem": after.keystore()})
            secured_kafka.ssl_proxy.sever()
            keep_sending(stream, until=stream.one_more(), what="records of the new client")

            secured_kafka.replace_certificate(new, trust=new.certificate)
            accepted = secured_kafka.ssl_proxy.accepted
            secured_kafka.ssl_proxy.sever()
            keep_sending(stream, until=stream.one_more(), what="records to the new broker")
            assert secured_kafka.ssl_proxy.accepted > accepted
            sent = stream.all_acknowledged()
        assert _values(secured_kafka, topic) == [str(n).encode() for n in range(sent)]
        # "local": made anew with the new certificate by ourselves.
        expected = ("closed", "refused", "local")
        refused = [e.detail for e in events.of(NodeDisconnected) if e.reason not in expected]
        assert refused == []
        assert [reloaded.failure for reloaded in events.of(SecretReloaded)] == [None] * len(
            events.of(SecretReloaded)
        )
        assert events.of(SecretReloaded)
    finally:
        secured_kafka.replace_certificate(old, trust=old.certificate)


# -- rights ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["WRITE", "DESCRIBE"])
def test_a_right_that_is_taken_and_given_back_needs_no_restart(
    secured_kafka: SecuredKraft, topic: str, operation: str
) -> None:
    settings = on(secured_kafka, "SASL_SSL") | as_user(_SCRAM, BOB) | {"metadata.max.age.ms": 200}
    with live_producer(str(settings["bootstrap.servers"]), settings) as producer:

        def outcome() -> RecordMetadata | RecordFailure:
            return submit(producer, topic, [b"x"], partition=0).outcomes()[0]

        assert isinstance(outcome(), RecordMetadata)
        with secured_kafka.security.denied(BOB, operation, topic=topic):
            error = _refusal(producer, topic)
            assert isinstance(error, TopicAuthorizationError)
            assert topic in str(error)
        wait_until(
            lambda: isinstance(outcome(), RecordMetadata),
            what="a record that is taken again",
            every_s=0.0,
        )
    assert set(_values(secured_kafka, topic)) == {b"x"}


def _refusal(producer: KafkaProducer, topic: str) -> KafkaError:
    """The error of the first record that fails: the broker learns of a right in its own time."""

    def failed() -> list[RecordFailure]:
        outcomes = submit(producer, topic, [b"x"], partition=0).outcomes()
        return [outcome for outcome in outcomes if isinstance(outcome, RecordFailure)]

    (failure,) = wait_until(failed, what="a record that is refused", every_s=0.0)
    return failure.error


def test_a_right_of_another_user_is_no_right_of_ours(secured_kafka: SecuredKraft, topic: str) -> None:
    secured_kafka.security.allow(ALICE, "WRITE", topic=topic)
    for user, may in ((ALICE, True), (BOB, False)):
        settings = on(secured_kafka, "SASL_PLAINTEXT") | as_user("PLAIN", user)
        with live_producer(str(settings["bootstrap.servers"]), settings) as producer:
            if may:
                assert len(submit(producer, topic, [b"x"], partition=0).offsets()) == 1
            else:
                assert isinstance(_refusal(producer, topic), TopicAuthorizationError)
    secured_kafka.security.forget_acls(topic=topic)
