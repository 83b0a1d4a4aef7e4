"""Every listener of a real sidecar: asked over TLS and over its Unix domain socket, by httpx, curl, the CLI.

It ends at once even if a client keeps a connection open, and leaves no socket behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from client_core import certificate_expires_at_s
from service.process.embedded import EmbeddedCluster
from tests.support.certificates import Authority, Identity, write_pem
from tests.support.debian_packages import install
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CURL = shutil.which("curl")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=("orders",)) as running:
        yield running


class Secured:
    """A sidecar with every listener that there is."""

    def __init__(self, folder: Path, cluster: EmbeddedCluster) -> None:
        authority = Authority()
        self.identity: Identity = authority.issue("127.0.0.1")
        self.client = authority.issue("client").write(folder / "client.pem")
        self.authority = authority.write_trust(folder / "authority.crt")
        certificate = write_pem(folder / "tls.crt", self.identity.chain)
        key = write_pem(folder / "tls.key", self.identity.key)
        self.context = ssl.create_default_context(cafile=self.authority)
        self.context.load_cert_chain(self.client)
        self.socket = folder / "api.sock"
        self.process = Sidecar(
            folder,
            bootstrap_servers=cluster.bootstrap_servers,
            tls=self.context,
            socket_path=self.socket,
            flags=[
                *("--api-socket-mode", "0660"),
                *("--api-tls-certificate-file", str(certificate)),
                *("--api-tls-key-file", str(key)),
                *("--api-tls-client-ca-file", str(self.authority)),
            ],
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, cluster: EmbeddedCluster) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("s"), cluster)
    with made.process:
        yield made


def test_all_listeners_answer_and_are_gone_at_the_end(
    tmp_path_factory: pytest.TempPathFactory, cluster: EmbeddedCluster
) -> None:
    secured = Secured(tmp_path_factory.mktemp("s"), cluster)
    with secured.process as sidecar:
        check_all_listeners(secured, sidecar)
        began = time.monotonic()
        assert sidecar.terminate() == 0  # both clients keep their connection open
        assert time.monotonic() - began < patient(15.0)
        assert not secured.socket.exists()


def check_all_listeners(secured: Secured, sidecar: Sidecar) -> None:
    for client in (sidecar.api, sidecar.over_unix):
        answer = client.get("/v1/topics/orders")
        assert (answer.status_code, answer.json()["name"]) == (200, "orders")
    assert stat.S_IMODE(os.stat(secured.socket).st_mode) == 0o660
    started = next(line for line in sidecar.log().splitlines() if "serves on" in line)
    assert f"serves on {sidecar.api_url} and {secured.socket}, metrics and probes on http://" in started
    assert sidecar.metric("pilotfish_http_connections") == 2
    expiry = sidecar.metric("pilotfish_tls_certificate_expiry_timestamp_seconds", listener="api")
    assert expiry == certificate_expires_at_s(secured.identity.der)


def test_a_killed_sidecars_socket_is_taken_over_by_the_next(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("s")
    path = folder / "api.sock"
    first = Sidecar(folder, bootstrap_servers="127.0.0.1:1", socket_path=path)
    with first:
        first.process.kill()
        first.process.wait(timeout=patient(30))
    assert path.exists()
    with Sidecar(folder, bootstrap_servers="127.0.0.1:1", socket_path=path) as second:
        assert second.over_unix.get("/v1/status").status_code == 200


def test_the_commands_ask_over_the_socket(secured: Secured) -> None:
    environment = {**os.environ, "PILOTFISH_API_SOCKET": str(secured.socket)}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "service", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    assert "orders" in run("topics")
    assert "offset" in run("produce", "orders", "hello")


def test_curl_asks_as_the_docs_say(secured: Secured) -> None:
    if CURL is None:
        install("curl")
    sidecar = secured.process

    def curl(*words: str) -> str:
        command = ["curl", "-s", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    over_tls = ("--cacert", str(secured.authority), "--cert", str(secured.client))
    url = f"{sidecar.api_url}/v1/topics/orders/leader?partition=0"
    assert '"leader":' in curl(*over_tls, url)
    assert '"leader":' in curl(
        "--unix-socket", str(secured.socket), "http://localhost/v1/topics/orders/leader?partition=0"
    )
    plain = url.replace("https://", "http://")
    assert "this port speaks TLS" in curl(plain)
    assert curl("--cacert", str(secured.authority), url) == ""  # without a certificate of its own


def test_failed_handshakes_are_not_logged(secured: Secured) -> None:
    sidecar = secured.process
    name = "pilotfish_http_connections_ended_total"
    wait_until(lambda: "Producer id is" in sidecar.log(), what="the last line of the start")
    before, count = sidecar.log(), sidecar.metric(name, reason="handshake") or 0
    for written in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01junk", b"\x00"):
        with socket.create_connection(("127.0.0.1", sidecar.api_port)) as caller:
            caller.sendall(written)
            with contextlib.suppress(ConnectionResetError):
                while caller.recv(4_096):
                    pass
    assert sidecar.api.get("/v1/status").status_code == 200
    assert sidecar.log() == before
    assert sidecar.metric(name, reason="handshake") == count + 3
