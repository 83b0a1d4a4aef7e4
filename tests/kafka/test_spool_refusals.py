"""Real brokers refuse spooled records for some seconds: they arrive in order, and none is a dead letter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.secured_kraft import ALICE, PASSWORDS
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft

REQUESTS: Final = 24
RECORDS: Final = 12
#: So many attempts are refused before the refusal ends.
REFUSED_MS: Final = 3_000


@pytest.fixture(scope="module")
def sidecar(secured_kafka: SecuredKraft, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """It gives up nothing that is refused while a test lasts."""
    with _sidecar_of_alice(secured_kafka, tmp_path_factory.mktemp("sidecar"), 600_000) as running:
        yield running


@pytest.fixture
def hasty_sidecar(secured_kafka: SecuredKraft, tmp_path: Path) -> Iterator[Sidecar]:
    """It gives up soon."""
    with _sidecar_of_alice(secured_kafka, tmp_path, 5_000) as running:
        yield running


def _sidecar_of_alice(secured_kafka: SecuredKraft, folder: Path, topic_wait_ms: int) -> Sidecar:
    """It goes by her name, and has a spool that retries what is refused for so long. Not started yet."""
    kafka = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ALICE,
        "sasl.password": PASSWORDS[ALICE],
    }
    environment = {f"PILOTFISH_KAFKA_{n.upper().replace('.', '_')}": value for n, value in kafka.items()}
    flags = ["--spool-folder", str(folder / "spool"), "--spool-topic-wait-ms", str(topic_wait_ms)]
    servers = secured_kafka.bootstrap("SASL_PLAINTEXT")
    return Sidecar(folder, bootstrap_servers=servers, flags=flags, environment=environment)


def spool(sidecar: Sidecar, topic: str, *values: str) -> None:
    records = [{"value": value, "key": "k"} for value in values]
    answer = sidecar.produce(topic, records, delivery="spool")
    assert answer.status_code == 202, answer.text


def status_of(sidecar: Sidecar) -> dict[str, Any]:
    found: dict[str, Any] = sidecar.api.get("/v1/status").json()["spool"]
    return found


def wait_until_refused(sidecar: Sidecar, topic: str, reason: str) -> None:
    def is_refused() -> bool:
        return any(
            (one["topic"], one["reason"]) == (topic, reason) and one["refused_ms"] >= REFUSED_MS
            for one in status_of(sidecar)["refused"]
        )

    wait_until(is_refused, what=f"{REFUSED_MS} ms of refusals", last_seen=sidecar.log)


def wait_until_delivered(sidecar: Sidecar) -> None:
    wait_until(lambda: status_of(sidecar)["entries"] == 0, what="an empty spool", last_seen=sidecar.log)
    assert (status_of(sidecar)["set_aside"], status_of(sidecar)["refused"]) == (0, [])


@pytest.mark.parametrize("operation", ["WRITE", "DESCRIBE"])
def test_records_spooled_while_they_were_denied_arrive_in_order(
    secured_kafka: SecuredKraft, new_topic: NewTopic, sidecar: Sidecar, operation: str
) -> None:
    def denied() -> float | None:
        return sidecar.metric("pilotfish_spool_set_aside_records_total", reason="forbidden")

    before = denied()
    topic = new_topic(partitions=3, on=secured_kafka.cluster)
    other = new_topic(partitions=1, on=secured_kafka.cluster)
    spool(sidecar, topic, "first")
    wait_until_delivered(sidecar)
    with secured_kafka.security.denied(ALICE, operation, topic=topic):
        values = [f"{n}" for n in range(REQUESTS * RECORDS)]
        for first in range(0, len(values), RECORDS):
            spool(sidecar, topic, *values[first : first + RECORDS])
        wait_until_refused(sidecar, topic, "forbidden")
        spool(sidecar, other, "goes on")
        wait_until(lambda: secured_kafka.cluster.read_back(other), what="the record of another topic")
    wait_until_delivered(sidecar)
    assert denied() == before
    assert [(one.value or b"").decode() for one in secured_kafka.cluster.read_back(topic)] == [
        "first",
        *values,
    ]


def test_records_of_one_key_keep_their_order_while_max_message_bytes_is_lowered_and_raised(
    secured_kafka: SecuredKraft, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=3, on=secured_kafka.cluster)
    admin = secured_kafka.cluster.admin
    values = [f"{n:03d}" + ("x" * 5_000 if n % 7 == 3 else "") for n in range(200)]
    admin.set_topic_config(topic, "max.message.bytes", "2000")
    for first in range(0, len(values), 50):
        spool(sidecar, topic, *values[first : first + 50])
    wait_until_refused(sidecar, topic, "too_large")
    admin.set_topic_config(topic, "max.message.bytes", "1048588")
    wait_until_delivered(sidecar)
    assert [(one.value or b"").decode() for one in secured_kafka.cluster.read_back(topic)] == values


def test_dead_letters_are_requeued_without_a_restart_and_keep_their_order(
    secured_kafka: SecuredKraft, new_topic: NewTopic, hasty_sidecar: Sidecar
) -> None:
    sidecar = hasty_sidecar
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    values = [f"{n}" for n in range(100)]
    with secured_kafka.security.denied(ALICE, "WRITE", topic=topic):
        # A busy broker learns of it in its own time.
        probe = [{"value": "probe", "partition": 0}]
        wait_until(lambda: sidecar.produce(topic, probe).status_code == 403, what="a broker that refuses")
        spool(sidecar, topic, *values)
        wait_until(lambda: status_of(sidecar)["set_aside"] == 100, what="dead letters", last_seen=sidecar.log)
    assert sidecar.api.post("/v1/spool/requeue", params={"topic": topic}).json() == {"requeued": 100}
    wait_until_delivered(sidecar)
    stored = [(one.value or b"").decode() for one in secured_kafka.cluster.read_back(topic)]
    assert [value for value in stored if value != "probe"] == values
