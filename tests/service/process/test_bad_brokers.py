"""bootstrap.servers that are no broker, or a broken one: the sidecar says so, waits between tries, stays up.

The sidecar is a process of its own; the peers are on loopback in this one. The fault of the peer stands in
three places: the log, /v1/status, and the answer to a look-up.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from client_core import ConfigError
from client_core.testing.free_ports import free_ports
from service.base.settings_sources import SettingsError, load_settings
from service.process.app import create_app
from tests.support.hostile_peers import HOSTILE_PEERS
from tests.support.sidecar import Sidecar
from tests.support.tcp_peers import ScriptedPeer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

#: What each peer is to be called, in the log and the status. Silence shows only when the request times out.
TOLD = {
    # Reset, where it closes after something had come that it did not read.
    "accepts and closes": r"closed|reset the connection",
    "closes instead of an answer": r"closed",
    "says nothing": r"timed? ?out|timeout",
    "speaks HTTP": r"HTTP",
    "speaks TLS": r"TLS",
    "promises two gigabytes": r"2147483647|larger than",
    "announces a negative size": r"Invalid receive \(size = -2",
    "sends empty frames": r"truncated|bytes|header",
    "sends garbage": r"ApiVersions",
    "answers another question": r"[Cc]orrelation id",
    "answers twice": r"[Cc]orrelation|no in-flight|unexpected|closed|ApiVersions|Metadata",
    "sends half and closes": r"closed",
    "sends half and waits": r"timed? ?out|timeout",
    "promises a billion entries": r"ApiVersions",
}

SETTINGS = {
    # Short, so that the silent ones are found out within the test.
    "request.timeout.ms": "400",
    "socket.connection.setup.timeout.ms": "400",
    "delivery.timeout.ms": "2000",
}


def errors_in_status(sidecar: Sidecar) -> str:
    """Every error that the status names."""
    status = sidecar.api.get("/v1/status").json()
    reported = [node["last_error"] for node in status["nodes"]] + [status["metadata"]["last_error"]]
    return "\n".join(text for text in reported if text)


@pytest.mark.parametrize("name", HOSTILE_PEERS)
def test_a_peer_that_is_no_broker_is_called_by_its_fault_and_tried_again_in_peace(
    name: str, tmp_path: Path
) -> None:
    script: Callable[[socket.socket], None] = HOSTILE_PEERS[name]
    with ScriptedPeer(script) as peer:
        host, port = peer.address
        with Sidecar(tmp_path, bootstrap_servers=f"{host}:{port}", kafka=SETTINGS) as sidecar:
            fault = re.compile(TOLD[name])
            wait_until(
                lambda: fault.search(errors_in_status(sidecar)),
                what=f"{fault.pattern!r} in the status",
                last_seen=lambda: errors_in_status(sidecar) + "\n" + sidecar.log(),
            )
            assert fault.search(sidecar.log()), sidecar.log()
            assert f"{host}:{port}" in sidecar.log()

            answer = sidecar.api.get("/v1/topics/t", params={"max_block_ms": 200})
            assert answer.status_code == 503, answer.text
            assert "retry-after" in answer.headers
            assert fault.search(answer.text) or "no broker" in answer.text.lower()

            turns_before = sidecar.api.get("/v1/status").json()["loop_turns"]
            assert sidecar.produce("t", [{"value": "x"}], max_block_ms=1_000).status_code == 503
            turns = sidecar.api.get("/v1/status").json()["loop_turns"] - turns_before
            assert turns < 300, "the poll loop must not spin while it waits"
            assert sidecar.admin.get("/livez").status_code == 200
            assert sidecar.admin.get("/readyz").status_code == 503
            assert sidecar.terminate() == 0
            assert "Traceback" not in sidecar.log()


def test_a_port_that_nobody_listens_on_is_named_with_the_reason(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Sidecar(tmp_path, bootstrap_servers=f"127.0.0.1:{port}") as sidecar:
        wait_until(lambda: "refused" in errors_in_status(sidecar), what="a refusal")
        assert re.search(rf"127\.0\.0\.1:{port}.*refused|refused.*127\.0\.0\.1:{port}", sidecar.log())
        answer = sidecar.api.get("/v1/cluster", params={"max_block_ms": 100})
        assert answer.status_code == 503
        assert sidecar.terminate() == 0


def test_a_wrong_setting_is_refused_with_its_name() -> None:
    for settings, reported in (
        ({"acks": "2"}, r"acks"),
        ({"lingr.ms": "0"}, r"linger\.ms"),
        ({"compression.type": "brotli"}, r"compression\.type"),
        ({"security.protocol": "TLS"}, r"security\.protocol"),
        ({"security.protocol": "SASL_SSL"}, r"sasl\.mechanism must be given"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/no/such/ca"},
            r"ssl\.truststore\.location",
        ),
        ({"bootstrap.servers": "localhost"}, r"localhost"),
        ({"buffer.memory": "lots"}, r"buffer\.memory"),
    ):
        kafka = {"bootstrap.servers": "127.0.0.1:9092", **settings}
        with pytest.raises((SettingsError, ConfigError), match=reported):
            create_app(load_settings({}, tuple(f"{name}={value}" for name, value in kafka.items())))


def test_a_wrong_setting_ends_the_process_with_2_and_its_name(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path, bootstrap_servers="127.0.0.1:9092", kafka={"acks": "2"})
    with pytest.raises(AssertionError, match=r"the sidecar ended with 2:\n(.|\n)*acks"), sidecar:
        raise RuntimeError("it came up")
