"""Texts of others in our output (logs, terminals, metrics, records, answers) stay plain text."""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Final

import pytest
from click.testing import CliRunner
from prometheus_client.exposition import choose_encoder

from client_core.error_codes import Errors
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from client_core.testing.sasl import SaslDemand
from service.__main__ import main
from service.process.admin import make_registry
from tests.support.http_app import HttpApp
from tests.support.running_server import RunningServer
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A forged line, after each character that may be read as a line's end, and control sequences of terminals.
FORGED: Final = "ts=2026-01-01T00:00:00.000Z level=info logger=service.process.server msg=forged"
HOSTILE: Final = f"x\r\n{FORGED}\n\u2028{FORGED}\u0085{FORGED}\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\x00"
RAW: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]")


def check_log(log: str) -> None:
    """Each line is one of ours, and none has control sequences for a terminal."""
    lines = log.removesuffix("\n").split("\n")
    assert all(re.match(r"ts=\S+ level=\w+ logger=[\w.]+ msg=", line) for line in lines), log
    assert not [line for line in lines if line.startswith(FORGED[:40])]
    assert not RAW.search(log)


# -- the log -----------------------------------------------------------------------------------------------


def test_a_brokers_words_forge_no_line_of_the_log_and_order_no_terminal_about(tmp_path: Path) -> None:
    with FakeCluster(brokers=1) as brokers:
        brokers.demand_sasl(SaslDemand(("PLAIN",), passwords={"me": "another"}))
        refused = Errors.SASL_AUTHENTICATION_FAILED.code
        brokers.change_next(
            ApiKey.SASL_AUTHENTICATE,
            lambda answer: answer._replace(error_code=refused, error_message=HOSTILE),
            times=1_000,
        )
        kafka = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": "mine",
        }
        flags = ("--log-level", "debug", "--access-log")
        servers = brokers.bootstrap_servers
        with Sidecar(tmp_path, bootstrap_servers=servers, kafka=kafka, flags=flags) as sidecar:
            wait_until(lambda: "owned" in sidecar.log(), what="the broker's words")
            for path in (
                "/v1/topics/a%0d%0ats=1%20level=info",
                "/v1/topics/%E2%80%A8%1b%5b2J",
                "/%0a%0dx",
                "/v1/cluster?x=%0a%1b%5b2J",
            ):
                sidecar.api.get(path, params={"max_block_ms": "0"})
            status = sidecar.api.get("/v1/status").json()
            shown = CliRunner().invoke(main, ["status", "--api-port", str(sidecar.api_port)])
            assert sidecar.terminate() == 0
            check_log(sidecar.log())
    assert any("owned" in (node["last_error"] or "") for node in status["nodes"])
    assert shown.exit_code == 0, shown.output
    assert "owned" in shown.output
    assert not RAW.search(shown.output)
    assert not [line for line in shown.output.splitlines() if line.startswith(FORGED[:40])]


# -- terminals -----------------------------------------------------------------------------------------------


class _Hostile(BaseHTTPRequestHandler):
    """A hostile server on the port that a command was given."""

    def do_GET(self) -> None:
        body = json.dumps({"detail": HOSTILE, "kafka_error": HOSTILE}).encode()
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.path.startswith("/v1") else HOSTILE.encode().ljust(len(body)))

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def hostile_port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Hostile) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_servers_text_in_a_command_does_nothing_to_a_terminal(hostile_port: int) -> None:
    for words in (
        ("topics", "--api-port"),
        ("topic", "orders", "--api-port"),
        ("status", "--api-port"),
        ("produce", "orders", "x", "--api-port"),
        ("healthcheck", "--admin-port"),
    ):
        reported = CliRunner().invoke(main, [*words, str(hostile_port)])
        assert reported.exit_code == 1, words
        assert "owned" in reported.output, words
        assert not RAW.search(reported.output), words
        assert len(reported.output.splitlines()) == 1, words


# -- metrics -------------------------------------------------------------------------------------------------


def metrics_of(web: HttpApp) -> str:
    encode, _ = choose_encoder("")
    return encode(make_registry(web.app)).decode()


def test_names_that_callers_make_up_make_no_series_of_metrics() -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})

    def ask(number: int) -> None:
        web.get(f"/made-up-{number}")
        web.get(f"/v1/topics/made%20up-{number}")
        web.ask(f"MADE{number}", "/v1/topics/orders")
        web.get("/v1/topics/orders", headers={"user-agent": f"made-up-{number}", "host": f"made-up-{number}"})

    ask(0)
    before = len(metrics_of(web).splitlines())
    for number in range(1, 20):
        ask(number)
    after = metrics_of(web)
    assert len(after.splitlines()) == before
    assert not re.search(r"made.up", after)
    assert "MADE" not in after


# -- records -------------------------------------------------------------------------------------------------

EVENT: Final = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/x", "ce-type": "t"}
SPLITTING: Final = "a\r\nce-evil: 1\r\n\r\n"


@pytest.fixture
def web() -> HttpApp:
    app = HttpApp()
    app.producer.set_topics({"orders": 3})
    return app


def headers_of_the_record(web: HttpApp) -> list[tuple[str, bytes | None]]:
    ((record,),) = web.producer.submitted
    return list(record.headers)


def test_an_attribute_of_an_event_becomes_one_header_whatever_it_contains(web: HttpApp) -> None:
    sent = {**EVENT, "ce-subject": "a%0D%0Ace-evil:%201", "content-type": "text/plain"}
    answer = web.post("/cloudevents/orders", content=b"x", headers=sent)
    names = [name for name, _ in headers_of_the_record(web)] if answer.is_success else []
    assert answer.status_code in (202, 204, 400)
    assert len(names) == len(set(names))
    assert "ce_evil" not in names


def test_no_header_of_the_request_becomes_one_of_the_record(web: HttpApp) -> None:
    for name in ("authorization", "cookie", "x-forwarded-for", "host", "dapr-api-token"):
        given = {name: "localhost"} if name == "host" else {name: "hunter2"}
        for path, media_type in (
            ("/cloudevents/orders", "text/plain"),
            ("/v1/topics/orders/records", "application/octet-stream"),
            ("/v1.0/publish/pubsub/orders?metadata.rawPayload=true", "application/octet-stream"),
        ):
            web.producer.submitted.clear()
            event = EVENT if path.startswith("/cloudevents") else {}
            answer = web.post(path, content=b"x", headers={**event, **given, "content-type": media_type})
            assert answer.is_success, answer.text
            ((record,),) = web.producer.submitted
            assert b"hunter2" not in b"".join(value or b"" for _, value in record.headers), (name, path)
            assert name not in [header.lower() for header, _ in record.headers], (name, path)
            assert b"hunter2" not in (record.value or b""), (name, path)


def test_a_record_header_is_the_bytes_that_were_given_and_no_more(web: HttpApp) -> None:
    name, value = (base64.b64encode(text.encode()).decode() for text in ("n\r\nx", SPLITTING))
    headers = {"content-type": "application/octet-stream", "pilotfish-headers": f"{name}:{value}"}
    assert web.post("/v1/topics/orders/records", content=b"x", headers=headers).status_code == 200
    assert headers_of_the_record(web) == [("n\r\nx", SPLITTING.encode())]


# -- answers -------------------------------------------------------------------------------------------------


SPLIT: Final = b"%0d%0aSet-Cookie:%20evil=1%0d%0a%0d%0a<script>"
SPLIT_REQUESTS: Final = (
    b"GET /v1/topics/" + SPLIT + b"?max_block_ms=0 HTTP/1.1\r\n",
    b"GET /" + SPLIT + b" HTTP/1.1\r\n",
    b"GET /v1/topics/orders/leader?key=" + SPLIT + b" HTTP/1.1\r\n",
    b"GET /v3/clusters/" + SPLIT + b" HTTP/1.1\r\n",
    b'GET /v1/topics/orders HTTP/1.1\r\nIf-None-Match: "' + SPLIT + b'"\r\n',
    b"GET /v1/cluster HTTP/1.1\r\nX-Request-Id: a\rSet-Cookie: evil=1\r\n",
    b"GET /v1/cluster HTTP/1.1\r\nX-Request-Id: a\nSet-Cookie: evil=1\r\n",
    b"GET /v1/cluster HTTP/1.1\r\nX: a\x00b\r\n",
)


async def test_nothing_of_a_request_splits_its_answer() -> None:
    running = RunningServer()
    async with running.clients():
        end = b"Host: localhost\r\nConnection: close\r\n\r\n"
        reported = [await running.raw(request + end) for request in SPLIT_REQUESTS]
    for answer in reported:
        head = answer.partition(b"\r\n\r\n")[0].lower()
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"set-cookie" not in head
        assert b"evil" not in head


TRAVERSALS: Final = (
    b"/console/../../../../../../etc/passwd",
    b"/console/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    b"/console/..%2f..%2f..%2f..%2fetc%2fpasswd",
    b"/console/..%5c..%5c..%5cetc%5cpasswd",
    b"/console/..\\..\\..\\etc\\passwd",
    b"/console/%252e%252e/%252e%252e/etc/passwd",
    b"/console/..;/..;/etc/passwd",
    b"/console//etc/passwd",
    b"//etc/passwd",
    b"/console/%00/etc/passwd",
    b"/console/main.js%00.html",
    b"/console/main.js/",
    b"/console/./main.js",
    b"/console/index.html",
    b"/docs/../console/main.js",
    b"/docs/%c0%ae%c0%ae/%c0%ae%c0%ae/etc/passwd",
    b"/docs/....//....//etc/passwd",
    b"/console/file:///etc/passwd",
    b"/console/~root/.ssh/id_rsa",
    b"/../../etc/passwd",
    b"/v1/../console/main.js",
)


async def test_no_path_over_the_wire_leads_to_another_file() -> None:
    running = RunningServer()
    async with running.clients():
        end = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        reported = [(path, await running.raw(b"GET " + path + end)) for path in TRAVERSALS]
    for path, answer in reported:
        status = answer.split(b" ")[1]
        assert status in (b"400", b"404"), (path, answer)
        assert b"root:" not in answer
        assert b"import " not in answer
