"""Asking a token endpoint, over loopback. After HttpJwtRetrieverTest, ClientSecretRequestFormatterTest and
JwtResponseParserTest (Kafka 4.3).
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError, DisconnectError, KafkaError, SaslAuthenticationError
from client_core.events import NO_EVENTS
from client_core.network.sasl.http_jwt_retriever import HttpJwtRetriever, _Inherited
from client_core.network.sasl.oauth_credentials import OAuthCredentials
from client_core.network.sasl.token_requests import ClientSecretRequestFormatter
from client_core.network.secret import SecretSource
from client_core.network.security_config import OAuthBearerConfig, SaslConfig
from tests.support.certificates import Authority, by_keytool, write_pem
from tests.support.oauth_endpoint import OAuthEndpoint
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, close_at_once, stay_silent
from tests.support.tls_peers import server_context, show
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Ask = Callable[[bytes], tuple[str | KafkaError, bytes, str]]

CLIENT_ID: Final = "pilot"
CLIENT_SECRET: Final = "fish/+: secret"


def retriever(
    url: str, *, scope: str | None = None, header_urlencode: bool = False, read_timeout_ms: int = 10_000
) -> HttpJwtRetriever:
    config = OAuthBearerConfig(
        url,
        client_id=SecretSource("sasl.oauthbearer.client.credentials.client.id", text=CLIENT_ID),
        client_secret=SecretSource("sasl.oauthbearer.client.credentials.client.secret", text=CLIENT_SECRET),
        scope=scope,
        header_urlencode=header_urlencode,
        connect_timeout_ms=10_000,
        read_timeout_ms=read_timeout_ms,
    )
    credentials = OAuthCredentials(SaslConfig("OAUTHBEARER", oauth_bearer=config), config, NO_EVENTS)
    return HttpJwtRetriever(
        config, ClientSecretRequestFormatter(credentials, header_urlencode=header_urlencode)
    )


class HttpAnswers:
    """A peer that keeps a request and gives one answer, literally."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.request = b""

    def __call__(self, connection: socket.socket) -> None:
        while not self._is_whole():
            self.request += connection.recv(65536)
        connection.sendall(self._answer)

    def _is_whole(self) -> bool:
        head, _, body = self.request.partition(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or -1)
        return len(body) == length


def answer(status: str, body: bytes, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers))
    return f"{head}\r\n".encode() + body


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Asks a peer that answers so: the token or the error, the request, and the peer's address."""
    with ExitStack() as closing:

        def asked(literal: bytes) -> tuple[str | KafkaError, bytes, str]:
            script = HttpAnswers(literal)
            peer = closing.enter_context(ScriptedPeer(script))
            where = f"http://127.0.0.1:{peer.address[1]}"
            try:
                return retriever(f"{where}/token?key=hidden").retrieve(), script.request, where
            except KafkaError as error:
                return error, script.request, where

        yield asked


def test_the_request_on_the_wire(ask: Ask) -> None:
    token, request, where = ask(answer("200 OK", b'{"access_token": " a.b.c "}'))
    assert token == "a.b.c"
    head, _, body = request.decode().partition("\r\n\r\n")
    first, *headers = head.split("\r\n")
    assert first == "POST /token?key=hidden HTTP/1.1"
    basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
    assert set(headers) >= {
        f"Host: {where.removeprefix('http://')}",
        "Accept: application/json",
        f"Authorization: Basic {basic}",
        "Cache-Control: no-cache",
        "Content-Type: application/x-www-form-urlencoded",
    }
    assert body == "grant_type=client_credentials"


def test_scope_and_encoding() -> None:
    for header_urlencode, id_and_secret, body in (
        (False, f"{CLIENT_ID}:{CLIENT_SECRET}", "grant_type=client_credentials&scope=a b"),
        (True, f"{CLIENT_ID}:fish%2F%2B%3A+secret", "grant_type=client_credentials&scope=a+b"),
    ):
        script = HttpAnswers(answer("201 Created", b'{"id_token": "a.b.c"}'))
        with ScriptedPeer(script) as peer:
            url = f"http://127.0.0.1:{peer.address[1]}"
            asking = retriever(url, scope=" a b ", header_urlencode=header_urlencode)
            assert asking.retrieve() == "a.b.c"
        basic = base64.b64encode(id_and_secret.encode()).decode()
        assert f"Basic {basic}\r\n".encode() in script.request
        assert script.request.endswith(body.encode())
        assert script.request.startswith(b"POST / ")


def assert_refused(ask: Ask, literal: bytes, said: str) -> None:
    error, _, where = ask(literal)
    assert isinstance(error, SaslAuthenticationError)
    assert error.message == said.format(where=where)


def test_an_answer_without_a_token_is_a_refusal_and_is_not_shown(ask: Ask) -> None:
    no_object = (b"", b"not json", b"[1]", b"[" * 100_000, b"\xff")
    for body in (*no_object, b"{}", b'{"access_token": ""}', b'{"access_token": 7}'):
        assert_refused(ask, answer("200 OK", body), "the answer of {where}/token did not contain a token")


def test_an_error_that_is_answered_with_200_is_shown_without_what_was_sent(ask: Ask) -> None:
    body = f'{{"error": "bad_client", "error_description": "not {CLIENT_SECRET}"}}'.encode()
    said = "the answer of {where}/token did not contain a token (bad_client - not [hidden])"
    assert_refused(ask, answer("200 OK", body), said)


def test_an_answer_without_an_end_is_not_read_to_it(ask: Ask) -> None:
    head, much = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"x" * (1024 * 1024 + 1)
    for endless in (answer("200 OK", much), head + b"40000000\r\n" + much, head + b"-1\r\n" + much):
        assert_refused(ask, endless, "the answer of {where}/token is larger than 1048576 bytes")


def test_an_answer_in_chunks(ask: Ask) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    token, _, _ = ask(head + b'10\r\n{"access_token":\r\n8\r\n"a.b.c"}\r\n0\r\n\r\n')
    assert token == "a.b.c"
    error, _, where = ask(head + b'10\r\n{"access_token":\r\n8\r\n"a.b.c"}\r\n')
    assert isinstance(error, DisconnectError)
    assert error.message == f"{where}/token can't be reached: the connection ended within the answer"


def test_a_lasting_failure_is_a_refusal(ask: Ask) -> None:
    body = b'{"error": "invalid_client", "error_description": "bad\\n client"}'
    for status in (400, 401, 403, 404, 405, 409, 422, 501, 505):
        said = f"{{where}}/token answered {status} (invalid_client - bad  client)"
        assert_refused(ask, answer(f"{status} No", body), said)


def test_a_passing_failure_is_temporary(ask: Ask) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    troubles = {half: "can't be reached: the connection ended within the answer"}
    for status in (202, 299, 408, 425, 429, 500, 502, 503, 504):
        troubles[answer(f"{status} Later", b"<html>")] = f"answered {status}"
    for literal, said in troubles.items():
        error, _, where = ask(literal)
        assert isinstance(error, DisconnectError)
        assert error.message == f"{where}/token {said}"


def test_a_redirect_is_not_followed(ask: Ask) -> None:
    elsewhere = answer("302 Found", b"", "Location: http://127.0.0.1:1/")
    remedy = "redirects are not followed; set sasl.oauthbearer.token.endpoint.url"
    assert_refused(ask, elsewhere, f"{{where}}/token answered 302: {remedy}")


def test_an_error_that_repeats_what_was_sent_is_masked(ask: Ask) -> None:
    repeating = answer("401 No", f'{{"errorCode":"E1","errorSummary":"not {CLIENT_SECRET}"}}'.encode())
    assert_refused(ask, repeating, "{where}/token answered 401 (E1 - not [hidden])")


def test_a_secret_where_a_long_error_is_cut_is_masked(ask: Ask) -> None:
    """Of a secret that was cut in two, its half would be shown."""
    for before in (190, 195):
        said = json.dumps({"error": "x" * before + CLIENT_SECRET}).encode()
        error, _, _ = ask(answer("401 No", said))
        assert isinstance(error, SaslAuthenticationError)
        assert CLIENT_SECRET[:5] not in error.message


def test_something_that_is_no_http_is_a_refusal(ask: Ask) -> None:
    literal = b"SSH-2.0-OpenSSH_9.0\r\n\r\n"
    assert_refused(ask, literal, "{where}/token does not speak HTTP (BadStatusLine)")


def test_nobody_there_and_a_peer_that_hangs_up_are_temporary_trouble() -> None:
    with TcpPeer() as peer:
        port = peer.address[1]
    with pytest.raises(DisconnectError, match="can't be reached: connection refused"):
        retriever(f"http://127.0.0.1:{port}").retrieve()
    with ScriptedPeer(close_at_once) as closing, pytest.raises(DisconnectError, match="can't be reached"):
        retriever(f"http://127.0.0.1:{closing.address[1]}").retrieve()


def test_an_untrusted_certificate_is_a_refusal() -> None:
    context = server_context(Authority().issue("127.0.0.1"))
    refused = pytest.raises(SaslAuthenticationError, match="the certificate of https://127")
    with OAuthEndpoint({}, tls=context) as endpoint, refused as caught:
        retriever(endpoint.url).retrieve()
    assert "self-signed" in caught.value.message or "unable to get" in caught.value.message


def test_authorities_that_are_rotated_count_for_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, trust = Authority(), Authority(), tmp_path / "ca.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(old.write_trust(trust)))
    context = server_context(old.issue("127.0.0.1"))
    with OAuthEndpoint({CLIENT_ID: CLIENT_SECRET}, tls=context) as endpoint:
        asking = retriever(endpoint.url)
        assert asking.retrieve()
        show(context, new.issue("127.0.0.1"))
        with pytest.raises(SaslAuthenticationError, match="was refused"):
            asking.retrieve()
        new.write_trust(trust)
        assert asking.retrieve()


def test_an_authority_as_keytool_makes_them_is_accepted_as_that_of_brokers_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since Python 3.13 default contexts refuse it."""
    authority, identity = by_keytool("localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(write_pem(tmp_path / "ca.pem", authority)))
    with OAuthEndpoint({CLIENT_ID: CLIENT_SECRET}, tls=server_context(identity)) as endpoint:
        assert retriever(endpoint.url.replace("127.0.0.1", "localhost")).retrieve()


def test_cancel_ends_a_question_that_is_not_answered() -> None:
    arrived = threading.Event()

    def script(connection: socket.socket) -> None:
        HttpAnswers(b"")(connection)  # the whole question; then nothing
        arrived.set()
        stay_silent(connection)

    with ScriptedPeer(script) as peer:
        asking = retriever(f"http://127.0.0.1:{peer.address[1]}", read_timeout_ms=120_000)
        errors: list[KafkaError] = []

        def ask_once() -> None:
            try:
                asking.retrieve()
            except KafkaError as error:
                errors.append(error)

        thread = threading.Thread(target=ask_once)
        thread.start()
        assert arrived.wait(30)
        assert asking._inherited.socket is not None
        assert asking._inherited.socket.gettimeout() == 120  # the connect had ten seconds
        asking.cancel()
        thread.join(patient(30))
        assert [type(error) for error in errors] == [DisconnectError]
        with pytest.raises(DisconnectError, match="the client is closing"):
            asking.retrieve()


def test_cancel_ends_a_tls_handshake_that_is_not_answered() -> None:
    arrived = threading.Event()

    def script(connection: socket.socket) -> None:
        connection.recv(65536)  # the ClientHello; then nothing
        arrived.set()
        stay_silent(connection)

    with ScriptedPeer(script) as peer:
        asking = retriever(f"https://127.0.0.1:{peer.address[1]}")
        errors: list[KafkaError] = []

        def ask_once() -> None:
            with pytest.raises(DisconnectError) as caught:
                asking.retrieve()
            errors.append(caught.value)

        thread = threading.Thread(target=ask_once)
        thread.start()
        assert arrived.wait(patient(30))
        assert is_daemon("pilotfish-oauthbearer-deadline")  # a process that ends does not wait for it
        asking.cancel()
        thread.join(patient(30))
        assert "can't be reached" in errors[0].message  # not by its deadline


def is_daemon(name: str) -> bool:
    (thread,) = [thread for thread in threading.enumerate() if thread.name == name]
    return thread.daemon


def test_an_address_that_is_none_is_a_config_error_that_does_not_show_it() -> None:
    for url, said in {
        "": "must begin with https://",
        "ftp://host/": "must begin with https://",
        "https://": "must begin with https://",
        "https://host:99999/": "is not a URL",
        "https://[::1/": "is not a URL",
        "https://a..b/": "is not a URL",
        "https://user:hunter2@host/": "contains a user name",
        "https://hunter2@host/": "contains a user name",
        "https://host/a b": "has invalid characters",
    }.items():
        with pytest.raises(ConfigError) as caught:
            retriever(url)
        assert caught.value.name == "sasl.oauthbearer.token.endpoint.url"
        assert said in caught.value.message
        assert "hunter2" not in caught.value.message


def test_a_shown_address_has_no_query() -> None:
    assert repr(retriever("https://host:8443/a/token?secret=hunter2")) == (
        "<HttpJwtRetriever https://host:8443/a/token>"
    )
    assert retriever("http://[::1]/token").shown == "http://[::1]/token"


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
    ],
)
def test_an_endpoint_that_answers_byte_by_byte_does_not_answer_in_time(beginning: bytes) -> None:
    """Each byte comes in time, and the whole of them never."""
    is_over = threading.Event()

    def dribbles(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(beginning)
        while not is_over.wait(0.02):
            connection.sendall(b" ")

    with ScriptedPeer(dribbles) as peer:
        asking = retriever(f"http://127.0.0.1:{peer.address[1]}/", read_timeout_ms=300)
        with pytest.raises(DisconnectError, match="did not answer in time"):
            asking.retrieve()
        with pytest.raises(DisconnectError, match="did not answer in time"):  # and it can ask again
            asking.retrieve()
        is_over.set()
    assert "pilotfish-oauthbearer-deadline" not in {thread.name for thread in threading.enumerate()}


def test_the_copy_of_a_connection_that_the_child_of_a_fork_has_is_closed_there() -> None:
    inherited = _Inherited()
    inherited.close()  # there is none
    ours, theirs = socket.socketpair()
    with ours, theirs:
        inherited.socket = ours
        inherited.close()
        assert ours.fileno() == -1
        assert theirs.recv(1) == b""


def test_without_settings_a_token_is_fetched_and_refreshed_by_kafkas_defaults() -> None:
    assert OAuthBearerConfig("https://host/") == OAuthBearerConfig(
        "https://host/",
        scope_claim_name="scope",
        sub_claim_name="sub",
        header_urlencode=False,
        connect_timeout_ms=10_000,
        read_timeout_ms=10_000,
        retry_backoff_ms=100,
        retry_backoff_max_ms=10_000,
        refresh_window_factor=0.8,
        refresh_window_jitter=0.05,
        refresh_min_period_s=60,
        refresh_buffer_s=300,
    )
