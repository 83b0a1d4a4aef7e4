"""bootstrap.servers that are no brokers, broken ones, or without an address yet: logged, and it stays up."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from client_core import ConfigError
from client_core.testing import FakeCluster
from client_core.testing.free_ports import free_ports
from service.base.settings import Settings
from service.base.settings_sources import SettingsError, load_settings
from service.process.admin import AdminApp, make_registry
from service.process.app import App
from service.process.health import Health
from tests.support.hostile_peers import HOSTILE_PEERS
from tests.support.sidecar import Sidecar
from tests.support.simulated_sidecar import SimulatedSidecar
from tests.support.steered_dns import SteeredDns
from tests.support.tcp_peers import ScriptedPeer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: What each peer is to be called, in the log and the status. Silence shows only when the request times out.
COMPLAINTS = {
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
            fault = re.compile(COMPLAINTS[name])
            wait_until(
                lambda: fault.search(errors_in_status(sidecar)),
                what=f"{fault.pattern!r} in the status",
                last_seen=lambda: errors_in_status(sidecar) + "\n" + sidecar.log(),
            )
            wait_until(lambda: fault.search(sidecar.log()), what="it in the log", last_seen=sidecar.log)
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


def test_a_port_without_a_listener_is_named_with_the_reason(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with Sidecar(tmp_path, bootstrap_servers=f"127.0.0.1:{port}") as sidecar:
        wait_until(lambda: "refused" in errors_in_status(sidecar), what="a refusal")
        named = rf"127\.0\.0\.1:{port}.*refused|refused.*127\.0\.0\.1:{port}"
        wait_until(lambda: re.search(named, sidecar.log()), what="it in the log", last_seen=sidecar.log)
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
            App(load_settings({}, tuple(f"{name}={value}" for name, value in kafka.items())))


def test_a_wrong_setting_ends_the_process_with_2_and_its_name(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path, bootstrap_servers="127.0.0.1:9092", kafka={"acks": "2"})
    with pytest.raises(AssertionError, match=r"the sidecar ended with 2:\n(.|\n)*acks"), sidecar:
        raise RuntimeError("it came up")


# -- brokers without a name ----------------------------------------------------------------------------------


HOST = "kafka.test"


@pytest.fixture
def dns(tmp_path: Path) -> Iterator[SteeredDns]:
    steered = SteeredDns(tmp_path)
    yield steered
    steered.close()


def bootstrap_node(sidecar: Sidecar) -> dict[str, Any]:
    """The status of the first of bootstrap.servers."""
    nodes = sidecar.api.get("/v1/status").json()["nodes"]
    return next((node for node in nodes if node["id"] == -1), {"last_error": None})


def wait_for_error(sidecar: Sidecar, words: str) -> dict[str, Any]:
    """The first of bootstrap.servers as the status has it once its last error holds these words."""
    wait_until(
        lambda: words in (bootstrap_node(sidecar)["last_error"] or ""),
        what=f"{words!r} in the status",
        last_seen=lambda: sidecar.api.get("/v1/status").text + sidecar.log(),
    )
    return bootstrap_node(sidecar)


def is_ready(sidecar: Sidecar) -> bool:
    return sidecar.admin.get("/readyz").status_code == 200


def test_a_sidecar_whose_brokers_have_no_name_yet_says_so_and_is_ready_when_they_have(
    tmp_path: Path, dns: SteeredDns
) -> None:
    dns.fail(HOST)
    with FakeCluster(brokers=1) as cluster:
        for topic in ("orders", "events"):
            cluster.create_topic(topic, partitions=1)
        port = cluster.address(1)[1]
        with Sidecar(
            tmp_path,
            bootstrap_servers=f"{HOST}:{port}",
            environment=dns.environment(),
            flags=(
                *("--events-topic", "events", "--spool-folder", str(tmp_path / "spool")),
                *("--startup-max-wait-ms", "400"),
            ),
            limits={"events_heartbeat_ms": 1_000},
        ) as sidecar:
            reason = "Name or service not known"
            node = wait_for_error(sidecar, reason)
            assert node["host"] == HOST
            assert HOST in node["last_error"]
            assert node["last_error_age_ms"] >= 0
            wait_until(lambda: reason in sidecar.log(), what="it in the log", last_seen=sidecar.log)
            assert f"{HOST}:{port}" in sidecar.log()
            wait_until(
                lambda: sidecar.metric("pilotfish_broker_disconnects_total", reason="unresolved"),
                what="it in the metrics",
            )
            (slow,) = sidecar.api.get("/v1/status").json()["slow"]
            assert HOST in slow["detail"]

            wait_until(
                lambda: sidecar.admin.get("/startupz").status_code == 200,
                what="a start that goes on without brokers",
            )
            assert not is_ready(sidecar)
            assert sidecar.admin.get("/livez").status_code == 200
            looked_up = sidecar.api.get("/v1/topics/orders", params={"max_block_ms": 100})
            assert looked_up.status_code == 503
            spooled = sidecar.produce("orders", [{"value": "spooled"}], delivery="spool")
            assert spooled.status_code == 202, spooled.text

            dns.answer(HOST, ["127.0.0.1"])
            wait_until(lambda: is_ready(sidecar), what="a ready sidecar", last_seen=sidecar.log)
            assert sidecar.produce("orders", [{"value": "at once"}]).status_code == 200
            # By the producers of the spool and of the events.
            wait_until(
                lambda: b"spooled" in {record.value for record in cluster.records("orders")},
                what="the spooled record",
                last_seen=sidecar.log,
            )
            wait_until(lambda: cluster.batches("events"), what="events", last_seen=sidecar.log)
            assert sidecar.terminate() == 0


@contextmanager
def sidecar_of_a_hung_name(folder: Path, dns: SteeredDns) -> Iterator[Sidecar]:
    """Which has found out that its broker's name is not resolved in time."""
    dns.hang(HOST)
    with (
        FakeCluster(brokers=1) as cluster,
        Sidecar(
            folder,
            bootstrap_servers=f"{HOST}:{cluster.address(1)[1]}",
            environment=dns.environment(),
            kafka={"socket.connection.setup.timeout.ms": "300"},
        ) as sidecar,
    ):
        wait_for_error(sidecar, f"{HOST} was not resolved within")
        yield sidecar


def test_a_resolver_that_hangs_holds_up_neither_the_sidecar_nor_its_end(
    tmp_path: Path, dns: SteeredDns
) -> None:
    with sidecar_of_a_hung_name(tmp_path, dns) as sidecar:
        assert sidecar.admin.get("/livez").status_code == 200
        assert sidecar.terminate() == 0
        assert "has shut down" in sidecar.log()
        assert "did not end within" not in sidecar.log()


def test_a_hung_look_up_that_is_answered_at_last_is_good(tmp_path: Path, dns: SteeredDns) -> None:
    with sidecar_of_a_hung_name(tmp_path, dns) as sidecar:
        dns.answer(HOST, ["127.0.0.1"])
        wait_until(lambda: is_ready(sidecar), what="a ready sidecar", last_seen=sidecar.log)


@contextmanager
def dead_address(host: str, port: int) -> Iterator[None]:
    """An address that neither accepts nor refuses: its queue of connections is full, and nobody takes one."""
    with socket.socket() as listener, ExitStack() as waiting:
        listener.bind((host, port))
        listener.listen(0)
        for _ in range(4):
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex((host, port))
        yield


def test_a_resolver_that_lies_answers_fifty_addresses_and_changes_costs_no_setup_timeout(
    tmp_path: Path, dns: SteeredDns
) -> None:
    refusing = [f"127.0.1.{n}" for n in range(1, 48)]
    dns.answer(HOST, ["127.0.0.2", "::1", *refusing])
    with (
        FakeCluster(brokers=1) as cluster,
        dead_address("127.0.0.2", port := cluster.address(1)[1]),
        Sidecar(tmp_path, bootstrap_servers=f"{HOST}:{port}", environment=dns.environment()) as sidecar,
    ):
        wait_for_error(sidecar, "refused")
        dns.answer(HOST, ["127.0.0.2", "::1", *refusing, "127.0.0.1"])
        wait_until(lambda: is_ready(sidecar), what="a ready sidecar", last_seen=sidecar.log)
        assert not sidecar.metric("pilotfish_broker_disconnects_total", reason="setup_timeout")


def test_a_name_that_no_resolver_could_ever_know_is_a_wrong_setting() -> None:
    for bootstrap_servers in (
        "kafka.test",
        ":9092",
        "a b:1",
        "kafka..test:9092",
        f"{'a' * 64}.test:9092",
        f"{'.'.join(['a' * 60] * 5)}:9092",
        "kafka.test:99999",
        "1:2:3:9092",
        "999.1.1.1:9092",
        "127.0.0.1:9092,kafka.test",
    ):
        with pytest.raises(ConfigError, match=r"bootstrap\.servers") as raised:
            App(Settings(kafka={"bootstrap.servers": bootstrap_servers}))
        assert raised.value.name == "bootstrap.servers", bootstrap_servers


def test_a_malformed_name_ends_the_process_with_exit_code_2() -> None:
    api_port, admin_port = free_ports(2)
    command = [sys.executable, "-m", "service", "serve", "--kafka", "bootstrap.servers=kafka..test:9092"]
    ended = subprocess.run(
        [*command, "--api-port", str(api_port), "--admin-port", str(admin_port)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "kafka..test:9092: each part of a host name has 1 to 63 characters" in ended.stderr


async def test_without_a_name_it_has_started_after_half_a_minute_by_default() -> None:
    """Otherwise the kubelet would restart the pod until DNS knows the brokers."""
    sidecar = SimulatedSidecar()
    sidecar.names.is_down = True
    health = Health(sidecar.app.sidecar, asyncio.get_running_loop(), lambda: True)
    transport = httpx.ASGITransport(app=AdminApp(make_registry(sidecar.app), health))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as admin:
        codes: dict[int, int] = {}
        for second in range(40):
            codes[second] = (await admin.get("/startupz")).status_code
            await sidecar.sleep(1_000)
        assert codes == {second: 503 if second < 30 else 200 for second in range(40)}
        assert (await admin.get("/readyz")).status_code == 503
        (node,) = (await sidecar.get("/v1/status")).json()["nodes"]
        assert "Name or service not known" in node["last_error"]
        sidecar.names.is_down = False
        await sidecar.sleep(2_000)
        assert (await admin.get("/readyz")).status_code == 200
        assert (await admin.get("/startupz")).status_code == 200
    sidecar.close()
