"""Connections to a real broker are renewed when a kubelet has swapped a secret, while records flow.

No session ends here by itself (that is test_secured_changes.py). So without a renewal the old password or
certificate would be used for as long as the process lives. No record fails, order is kept, and none is
written twice. Credentials that the broker refuses cost no working connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from client_core import NodeDisconnected, SecretReloaded
from tests.support.live_producer import live_producer
from tests.support.record_flow import RecordFlow, keep_sending
from tests.support.recorded_events import RecordedEvents
from tests.support.secured_settings import MountedSecret, Settings, nothing_logged_of, on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from client_core import KafkaProducer
    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft

_SCRAM: Final = "SCRAM-SHA-512"
_USER: Final = "frida"
_FIRST: Final = "caterpillar-3Hn"
_SECOND: Final = "butterfly-8Lc"
_WRONG: Final = "jabberwock-5Vd"
_SECRETS: Final = (_FIRST, _SECOND, _WRONG, "PRIVATE KEY")


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with nothing_logged_of(_SECRETS, caplog):
        yield


@pytest.fixture
def topic(secured_kafka: SecuredKraft, new_topic: NewTopic) -> str:
    return new_topic(partitions=1, on=secured_kafka.cluster)


def _made_anew(events: RecordedEvents) -> int:
    return sum("replaces the connection" in ended.detail for ended in events.of(NodeDisconnected))


def _is_made_anew(producer: KafkaProducer, events: RecordedEvents) -> Callable[[], bool]:
    """Whether one more connection was made anew, and is ready again."""
    before = _made_anew(events)
    return lambda: (
        _made_anew(events) > before and all(node.state == "ready" for node in producer.status().nodes)
    )


def _with_password(secured: SecuredKraft, protocol: str, folder: Path) -> tuple[MountedSecret, Settings]:
    """A mounted password that brokers know, and the settings of who shows it."""
    secured.security.set_password(_USER, _SCRAM, _FIRST)
    mounted = MountedSecret(folder / "mounted", {"password": _FIRST})
    who: Settings = {
        "sasl.mechanism": _SCRAM,
        "sasl.username": _USER,
        "sasl.password.file": str(mounted.path("password")),
    }
    return mounted, on(secured, protocol) | who


def _refused(events: RecordedEvents) -> Callable[[], bool]:
    """Whether a broker has refused what a file says."""
    return lambda: any(reported.failure for reported in events.of(SecretReloaded))


def _in_order(secured: SecuredKraft, topic: str, sent: int) -> None:
    values = [record.value for record in secured.cluster.read_back(topic)]
    assert values == [str(number).encode() for number in range(sent)]


def test_after_another_password_the_connection_is_made_anew_and_no_record_fails(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    events = RecordedEvents()
    mounted, settings = _with_password(secured_kafka, "SASL_PLAINTEXT", tmp_path)
    with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
        flow = RecordFlow(producer, topic)
        keep_sending(flow, until=flow.one_more(), what="the first records")

        # The secret changes before the broker does: working connections stay.
        mounted.swap({"password": _SECOND})
        keep_sending(flow, until=_refused(events), what="the broker's refusal")
        keep_sending(flow, until=flow.one_more(), what="records on the old connection")
        assert _made_anew(events) == 0

        secured_kafka.security.set_password(_USER, _SCRAM, _SECOND)
        keep_sending(flow, until=_is_made_anew(producer, events), what="a new connection", at_most_s=40)
        keep_sending(flow, until=flow.one_more(), what="records on the new connection")
        sent = flow.all_acknowledged()
    _in_order(secured_kafka, topic, sent)


def test_a_wrong_password_in_the_file_costs_a_running_producer_nothing(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    events = RecordedEvents()
    mounted, settings = _with_password(secured_kafka, "SASL_SSL", tmp_path)
    with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
        flow = RecordFlow(producer, topic)
        keep_sending(flow, until=flow.one_more(), what="the first records")
        mounted.swap({"password": _WRONG})
        keep_sending(flow, until=_refused(events), what="the broker's refusal")
        keep_sending(flow, until=flow.one_more(), what="records on the old connection")
        mounted.swap({"password": _FIRST})
        keep_sending(flow, until=_is_made_anew(producer, events), what="a new connection")
        sent = flow.all_acknowledged()
    _in_order(secured_kafka, topic, sent)


def test_after_another_certificate_the_connection_shows_it_and_no_record_fails(
    secured_kafka: SecuredKraft, topic: str, tmp_path: Path
) -> None:
    """Key, certificate and authority in three files, as Kubernetes' TLS secrets have them."""
    authority, events = secured_kafka.authority, RecordedEvents()
    before, after = authority.issue("before.test"), authority.issue("after.test")
    texts = {"ca.crt": authority.certificate, "tls.crt": before.chain, "tls.key": before.key}
    mounted = MountedSecret(tmp_path / "tls", texts)
    settings: Settings = on(secured_kafka, "SSL_PROXIED") | {
        "ssl.truststore.location": str(mounted.path("ca.crt")),
        "ssl.keystore.certificate.chain.file": str(mounted.path("tls.crt")),
        "ssl.keystore.key.file": str(mounted.path("tls.key")),
    }
    with live_producer(str(settings["bootstrap.servers"]), settings, events=events) as producer:
        flow = RecordFlow(producer, topic)
        keep_sending(flow, until=flow.one_more(), what="the first records")
        accepted = secured_kafka.ssl_proxy.accepted
        mounted.swap({**texts, "tls.crt": after.chain, "tls.key": after.key})
        keep_sending(flow, until=_is_made_anew(producer, events), what="a new connection")
        keep_sending(flow, until=flow.one_more(), what="records on the new connection")
        assert secured_kafka.ssl_proxy.accepted == accepted + 2, "the trial, and the new connection"
        assert {reported.failure for reported in events.of(SecretReloaded)} == {None}
        sent = flow.all_acknowledged()
    _in_order(secured_kafka, topic, sent)
