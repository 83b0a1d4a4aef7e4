"""A pod's life played on real brokers: every record acknowledged to the app can be read back from them.

The pods are those of helm/examples, the kubelet is tests/deploy/kubelet.py. No produce of the app may fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.deploy.play import LAST_RECORDS, NATIVE_LIFE, QUITS, Play, deployment, legacy_job, numbers
from tests.support.secured_settings import MountedSecret
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.deploy.kubelet import Kubelet
    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster
    from tests.support.secured_kraft import SecuredKraft

_SCRAM: Final = "SCRAM-SHA-512"
_USER: Final = "grete"
_FIRST: Final = "caterpillar-3Hn"
_SECOND: Final = "butterfly-8Lc"


def _end_in_order(kubelet: Kubelet, play: Play) -> None:
    """Deletes the pod while its app produces; nothing may be wrong."""
    before = len(play.acknowledged())
    kubelet.delete()
    assert kubelet.reported == NATIVE_LIFE, kubelet.log("orders") + kubelet.log("pilotfish")
    assert kubelet.failures == []
    assert kubelet.probes_answered > 0
    assert "all accepted records are acknowledged" in kubelet.log("pilotfish")
    assert len(play.acknowledged()) >= before + LAST_RECORDS


def _is_all_there(cluster: KraftCluster, topic: str, play: Play) -> None:
    stored = [(record.value or b"").decode() for record in cluster.read_back(topic)]
    assert stored == play.acknowledged() == numbers(len(stored))


def test_nothing_acknowledged_is_lost_when_a_pod_is_deleted(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    play = deployment(tmp_path, bootstrap_servers=kafka.bootstrap_servers, topic=topic)
    with play.kubelet() as kubelet:
        kubelet.start()
        play.wait_for_records(50)
        _end_in_order(kubelet, play)
    _is_all_there(kafka, topic, play)


def test_a_job_completes_and_its_records_are_there(
    kafka: KraftCluster, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, replication_factor=3, min_insync_replicas=2)
    play = legacy_job(
        tmp_path,
        bootstrap_servers=kafka.bootstrap_servers,
        topic=topic,
        app={"APP_RECORDS": "100"},
        app_command=QUITS,
    )
    with play.kubelet() as kubelet:
        kubelet.start()
        kubelet.wait_until_completed()
        assert kubelet.reported == [  # and nobody sent a signal
            "started pilotfish",
            "hooked pilotfish",
            "startup pilotfish",
            "started once",
            "ended pilotfish 0",
            "ended once 0",
        ], kubelet.log("once") + kubelet.log("pilotfish")
        assert "POST /quitquitquit: shutting down" in kubelet.log("pilotfish")
    assert len(play.acknowledged()) == 100
    _is_all_there(kafka, topic, play)


def test_a_secret_that_is_rotated_under_a_running_pod_costs_no_record(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path
) -> None:
    """The broker takes the new password and no other; the pod's connections are made anew with it."""
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    secured_kafka.security.set_password(_USER, _SCRAM, _FIRST)
    secret = MountedSecret(tmp_path / "kafka", {"username": _USER, "password": _FIRST})
    play = deployment(
        tmp_path,
        bootstrap_servers=secured_kafka.bootstrap("SASL_SSL"),
        topic=topic,
        sidecar={
            "PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "PILOTFISH_KAFKA_SASL_MECHANISM": _SCRAM,
            "PILOTFISH_KAFKA_SASL_USERNAME_FILE": str(secret.path("username")),
            "PILOTFISH_KAFKA_SASL_PASSWORD_FILE": str(secret.path("password")),
            "PILOTFISH_KAFKA_SSL_TRUSTSTORE_LOCATION": str(secured_kafka.trust_path),
        },
    )
    with play.kubelet() as kubelet:
        kubelet.start()
        play.wait_for_records(50)
        secured_kafka.security.set_password(_USER, _SCRAM, _SECOND)
        secret.swap({"username": _USER, "password": _SECOND})
        wait_until(
            lambda: "replaces the connection" in kubelet.log("pilotfish"),
            what="a connection with the new password",
            last_seen=lambda: kubelet.log("pilotfish"),
        )
        play.wait_for_records(50, what="records behind the rotation")
        _end_in_order(kubelet, play)
        reported = kubelet.log("pilotfish") + kubelet.log("orders")
    assert _FIRST not in reported
    assert _SECOND not in reported
    _is_all_there(secured_kafka.cluster, topic, play)
