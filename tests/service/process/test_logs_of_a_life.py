"""The log of a sidecar through start, broker death and return, and drain: as people read it.

There is one line for each state change. A lasting condition (a dead broker that is tried each second, a topic
that is asked for again and again) is logged once. Brokers are the fake cluster's; the sidecar is a process.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from client_core.testing import FakeCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

ONE: Final = ({"key": "k", "value": "x"},)
#: Quick, so that a second of outage is many attempts.
QUICK: Final = {
    "reconnect.backoff.ms": "10",
    "reconnect.backoff.max.ms": "20",
    "retry.backoff.ms": "10",
    "retry.backoff.max.ms": "20",
    "metadata.max.age.ms": "500",
}
FLAGS: Final = ("--log-format", "json", "--drain-timeout-ms", "1000")
NO_BROKER: Final = "No broker is reachable; metadata is not refreshed until one is"


def lines(sidecar: Sidecar) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sidecar.log().splitlines()]


def messages(sidecar: Sidecar, level: str | None = None) -> list[str]:
    return [line["msg"] for line in lines(sidecar) if level in (None, line["level"])]


def attempts(sidecar: Sidecar) -> float:
    return sidecar.metric("pilotfish_broker_disconnects_total") or 0


def test_an_outage_of_all_brokers_is_a_few_lines_however_long_it_lasts(tmp_path: Path) -> None:
    with FakeCluster(brokers=2) as kafka:
        kafka.create_topic("orders", partitions=2, replication_factor=2)
        with Sidecar(
            tmp_path, bootstrap_servers=kafka.bootstrap_servers, kafka=QUICK, flags=FLAGS
        ) as sidecar:
            assert sidecar.produce("orders", ONE).status_code == 200
            begun = len(lines(sidecar))
            for broker in kafka.broker_ids:
                kafka.kill(broker)
            # 504: it was written to a connection whose end the sidecar had not noticed yet.
            assert sidecar.produce("orders", ONE, timeout_ms=2_000).status_code in (503, 504)
            before = attempts(sidecar)
            # On a slow machine one broker's backoff may end before the other's attempt does, many times over.
            wait_until(
                lambda: attempts(sidecar) > before + 40 and NO_BROKER in messages(sidecar),
                what="many attempts in vain, and a moment in which no broker could be connected to",
            )
            before = attempts(sidecar)
            wait_until(lambda: attempts(sidecar) > before + 40, what="many more")
            # Once for each broker: that the last metadata no longer named one shows a second later.
            reported = messages(sidecar)[begun:]
            assert len(reported) <= 14, "\n".join(reported)
            assert len(set(reported)) == len(reported), "\n".join(reported)
            quiet = len(lines(sidecar))

            for broker in kafka.broker_ids:
                kafka.revive(broker)
            wait_until(lambda: sidecar.produce("orders", ONE).status_code == 200, what="a produce")
            back = messages(sidecar)[quiet:]
            assert any(each.startswith("Metadata is refreshed again, ") for each in back)
            assert any(re.search(r"is ready; earlier attempts failed: \d+$", each) for each in back)


def _is_missing(sidecar: Sidecar, topic: str) -> bool:
    """On a slow machine no broker may have answered within so short a time: 503."""
    return sidecar.api.get(f"/v1/topics/{topic}?max_block_ms=300").status_code == 404


def test_a_missing_topic_is_logged_once_however_often_it_is_asked_for(tmp_path: Path) -> None:
    with (
        FakeCluster(brokers=1) as kafka,
        Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, kafka=QUICK, flags=FLAGS) as sidecar,
    ):
        for name in ("nope", "nope", "never", "nope", "neither", "nope"):
            wait_until(partial(_is_missing, sidecar, name), what=f"a 404 for {name}")
        warnings = messages(sidecar, "warning")
        assert len(warnings) == 1, warnings
        assert "{'nope': 'UNKNOWN_TOPIC_OR_PARTITION'}" in warnings[0]


def test_a_start_and_an_orderly_end_are_logged_line_by_line(tmp_path: Path) -> None:
    with (
        FakeCluster(brokers=1) as kafka,
        Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=FLAGS) as sidecar,
    ):
        wait_until(lambda: "Cluster ID: " in sidecar.log(), what="the cluster is known")
        assert sidecar.terminate() == 0
        reported = messages(sidecar)
    expected = [
        r"settings: api_port=\d+ admin_port=\d+ .*; kafka: bootstrap\.servers=127\.0\.0\.1:\d+$",
        r"pilotfish \S+ serves on http://127\.0\.0\.1:\d+, metrics and probes on ",
        r"The I/O thread has started",
        r"Bootstrap server 127\.0\.0\.1:\d+ is ready$",
        r"Cluster ID: ",
        r"SIGTERM: shutting down",
        r"Closing the Kafka producer with a timeout of 1000 ms",
        r"all accepted records are acknowledged",
    ]
    rest = iter(reported)
    for pattern in expected:
        assert any(re.match(pattern, each) for each in rest), (pattern, reported)
    assert {line["level"] for line in lines(sidecar)} == {"info"}
    assert len(reported) <= 18, reported
