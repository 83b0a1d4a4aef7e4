"""jgo fetches jars behind a proxy that signs every certificate with an authority only the system knows."""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest

from pipeline.jars.connector_jars import JarsMissingError, WantedJars, ensure_jars
from tests.support.certificates import Authority
from tests.support.tls_peers import server_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_WANTED: Final = WantedJars("a jar", ("org.example:thing:1",))
_FILES: Final = {
    "thing-1.jar": b"PK\x05\x06" + 18 * b"\x00",
    "thing-1.pom": b"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
    b"<artifactId>thing</artifactId><version>1</version></project>",
}


class _InterceptingProxy(BaseHTTPRequestHandler):
    """Answers CONNECT to any host, and then serves that host's repository under a certificate of its own."""

    authority: Authority

    def do_CONNECT(self) -> None:
        self.send_response_only(200)
        self.end_headers()
        context = server_context(self.authority.issue(self.path.partition(":")[0]))
        with suppress(OSError):  # a client that does not trust the authority hangs up
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile = self.connection.makefile("rb")
            self.wfile = self.connection.makefile("wb", buffering=0)
            self.close_connection = False
            return
        self.close_connection = True

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        content = _FILES.get(name.removesuffix(".sha1"))
        if content is None:
            self.send_error(404)
            return
        body = hashlib.sha1(content).hexdigest().encode() if name.endswith(".sha1") else content
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: pytest's output is for failures."""


@pytest.fixture
def authority(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Authority]:
    """The proxy's authority; the proxy runs, and every request to a repository goes through it."""
    authority = Authority()
    handler = type("Proxy", (_InterceptingProxy,), {"authority": authority})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_address[1]}")
        for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))  # jgo keeps what it fetched there
        yield authority
        proxy.shutdown()
        thread.join()


def test_jgo_trusts_an_authority_that_the_system_trusts(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.write_trust(tmp_path / "system.pem")))
    assert [jar.name for jar in ensure_jars(_WANTED, tmp_path / "jars", fetcher="jgo")] == ["thing-1.jar"]


def test_what_the_user_named_wins_over_the_system(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority().write_trust(tmp_path / "system.pem")))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.write_trust(tmp_path / "mine.pem")))
    assert [jar.name for jar in ensure_jars(_WANTED, tmp_path / "jars", fetcher="jgo")] == ["thing-1.jar"]


def test_an_unknown_authority_is_named_with_its_remedy_and_without_a_traceback(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority().write_trust(tmp_path / "system.pem")))
    with pytest.raises(JarsMissingError, match="REQUESTS_CA_BUNDLE") as raised:
        ensure_jars(_WANTED, tmp_path / "jars", fetcher="jgo")
    assert "Traceback" not in str(raised.value)
    assert "update-ca-certificates" in str(raised.value)
