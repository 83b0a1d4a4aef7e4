"""Log lines as logfmt and as JSON: one line each, whatever the message has, and no secret in any."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core import OPTIONS, ConfigError, KafkaProducer, ProducerConfig
from client_core.testing import FakeCluster
from client_core.testing.sasl import SaslDemand
from service.base.logs import (
    FORMATTERS,
    MAX_MESSAGE_CHARS,
    MAX_STACK_CHARS,
    StderrHandler,
    bounded,
    quoted,
    without_values,
)
from service.base.settings_sources import SettingsError, load_settings
from service.base.watched_file import FileFaultError
from service.cli.serve import serve
from service.process.app import App
from tests.support.http_app import NativeApp
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Characters that may end a line, move a cursor or reverse text, and code points that are no characters.
HOSTILE = 'a\nb\r\x0b\x0c\x1c\x1b[2J\x7f\x85\x9b\u2028\u2029\u202e\u2066\u200f\ud800\udfff"\\=\x00ü€😀'


def line(message: str, *args: object, error: BaseException | None = None, log_format: str = "logfmt") -> str:
    record = logging.LogRecord("a.b", logging.WARNING, "", 1, message, args, None)
    record.created = 1_700_000_000.0075
    if error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    return FORMATTERS[log_format]().format(record)


def fields(message: str, *args: object, error: BaseException | None = None) -> dict[str, Any]:
    """What a line of JSON says."""
    said: dict[str, Any] = json.loads(line(message, *args, error=error, log_format="json"))
    return said


def raised(error: Exception) -> Exception:
    """The error with a stack."""
    try:
        raise error
    except Exception as e:  # noqa: BLE001 - any
        return e


def test_a_line_has_time_in_utc_level_logger_and_message() -> None:
    expected = 'ts=2023-11-14T22:13:20.007Z level=warning logger=a.b msg="it is 5"'
    assert line("it is %d", 5) == expected


def test_a_value_is_quoted_where_it_would_be_ambiguous() -> None:
    expected = {
        "word": "word",
        "two words": '"two words"',
        'say "x"': '"say \\"x\\""',
        "a\nb\r": '"a\\nb\\r"',
        "a=b": '"a=b"',
        "": '""',
        "back\\slash": '"back\\\\slash"',
        "\x1b[31m": '"\\x1b[31m"',
    }
    assert {text: quoted(text) for text in expected} == expected


@given(st.text(), st.text())
def test_any_text_becomes_one_line_in_both_formats(message: str, name: str) -> None:
    for log_format in FORMATTERS:
        reported = line("%s", message, log_format=log_format)
        assert reported.splitlines() == [reported]
        reported.encode("utf-8")
    assert fields("%s", message)["msg"] == message
    assert quoted(name).isprintable() or not name.isprintable()
    assert not {"\n", "\r", "\x1b"} & {*quoted(name)}


def test_json_has_the_same_fields_and_a_stack_where_there_is_one() -> None:
    assert line("it is %d", 5, log_format="json") == (
        '{"ts":"2023-11-14T22:13:20.007Z","level":"warning","logger":"a.b","msg":"it is 5"}'
    )
    assert list(fields("x", error=raised(ValueError("bad")))) == ["ts", "level", "logger", "msg", "stack"]


def test_hostile_text_is_one_line_of_utf_8_that_does_nothing_to_a_terminal() -> None:
    for log_format in FORMATTERS:
        reported = line(HOSTILE, log_format=log_format)
        assert reported.splitlines() == [reported]
        assert reported.isprintable()
        reported.encode("utf-8")
        assert reported.count("ü€😀") == 1
    # JSON keeps the text, except code points that are no characters.
    assert fields(HOSTILE)["msg"] == HOSTILE.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")


def test_a_stack_stays_in_its_line() -> None:
    for log_format in FORMATTERS:
        reported = line("x", error=raised(ValueError("bad\nworse")), log_format=log_format)
        assert reported.splitlines() == [reported]
        assert "ValueError: bad" in reported


def test_a_message_or_stack_of_a_megabyte_keeps_its_beginning_and_its_end() -> None:
    for log_format in FORMATTERS:
        reported = line("begin %s end", "x" * 1_000_000, log_format=log_format)
        assert len(reported) < MAX_MESSAGE_CHARS + 200
        for part in ("begin xxx", "characters left out", "xxx end"):
            assert part in reported
    stack = fields("x", error=raised(ValueError("y" * 1_000_000 + " in the end")))["stack"]
    assert len(stack) < MAX_STACK_CHARS + 100
    assert stack.startswith("Traceback")
    assert stack.endswith("yyy in the end")
    assert bounded("x" * 10, 10) == "x" * 10
    assert bounded("abcdefghijk", 4) == "ab…[7 characters left out]…jk"


class Stubborn:
    """Can't be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_a_message_that_cannot_be_formatted_is_logged_as_it_was_written() -> None:
    cases: list[tuple[str, tuple[object, ...]]]
    cases = [("it is %d", ("five",)), ("%s", (Stubborn(),)), ("%s %s", (1,))]
    for message, args in cases:
        said = fields(message, *args)["msg"]
        assert said.startswith(f"{message} (its arguments can't be shown: ")


def test_lines_that_nobody_reads_are_lost_and_counted_and_the_others_stay_whole() -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    handler = StderrHandler(writer)
    handler.setFormatter(FORMATTERS["json"]())
    said = b""

    def log(message: str) -> None:
        handler.handle(logging.LogRecord("a.b", logging.INFO, "", 1, message, (), None))

    def read(most: int) -> None:
        nonlocal said
        said += os.read(reader, most)

    for number in range(300):
        log(f"{number} " + "x" * 3_000)
    assert handler._patience_ms <= 0, "no more waits, also if the reader goes on slowly"
    for number in range(300, 310):
        read(5_000)
        log(f"{number} " + "y" * 8_000)
    for number in range(310, 320):
        read(1 << 20)
        log(f"{number}")
    read(1 << 20)
    texts = [json.loads(line)["msg"] for line in said.splitlines()]
    numbers = [int(text.split()[0]) for text in texts if "lost" not in text]
    lost = [int(text.split()[0]) for text in texts if "lost" in text]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-10:]) == (0, list(range(310, 320)))
    assert len(numbers) + sum(lost) == 320
    assert len(lost) > 1
    assert sum(lost) > 200
    log("a page of the pipe")  # so that the last line does not fit
    for _ in range(20):
        log("z" * 8_000)
    before = os.read(reader, 1 << 20)
    handler.flush()
    after = os.read(reader, 1 << 20)
    assert not before.endswith(b"\n"), "a line was written in part"
    assert (before + after).endswith(b'zzz"}\n')
    os.close(reader)
    log("to nobody")
    os.close(writer)
    log("to a descriptor that is closed")


def test_a_reader_who_lags_is_waited_for_again_in_the_next_minute() -> None:
    reader, writer = os.pipe()
    now_s, reads = 0.0, False

    def time_passes() -> float:
        """Each look at the clock takes long. Then the reader reads, once, if it does."""
        nonlocal now_s, reads
        now_s += 0.2
        if reads:
            os.read(reader, 1 << 20)
            reads = False
        return now_s

    handler = StderrHandler(writer, time_passes)

    def log(message: str) -> bool:
        """Returns whether it is written."""
        handler.handle(logging.LogRecord("a.b", logging.INFO, "", 1, message, (), None))
        return not handler._lost

    while log("x" * 4_000):
        pass
    assert not log("in the same minute")
    now_s, reads = now_s + 60, True
    assert log("in the next one")
    os.close(reader)
    os.close(writer)


def said_by(program: str, log_format: str = "json") -> list[dict[str, Any]]:
    """What a process logs that runs this; each line is an object."""
    setup = (
        f"import logging, sys, threading, warnings\nfrom service.base.logs import set_up_logging\n"
        f"set_up_logging('info', {log_format!r})\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", setup + program], capture_output=True, text=True, check=False
    )
    return [json.loads(each) for each in ended.stderr.splitlines()]


def test_an_uncaught_exception_is_a_line_as_any_other_and_so_are_warnings() -> None:
    in_a_thread, warned, unraisable, uncaught = said_by(
        "worker = threading.Thread(target=lambda: 1 / 0, name='worker')\nworker.start()\nworker.join()\n"
        "warnings.warn('old')\nclass A:\n  def __del__(self): 1 / 0\nA()\n"
        "raise ValueError('bad')"
    )
    assert (uncaught["level"], uncaught["msg"]) == ("critical", "ended with an uncaught exception")
    assert uncaught["stack"].endswith("ValueError: bad")
    assert in_a_thread["level"] == "critical"
    assert in_a_thread["msg"] == "thread worker ended with an uncaught exception"
    assert "ZeroDivisionError" in in_a_thread["stack"]
    assert (warned["logger"], "UserWarning: old" in warned["msg"]) == ("py.warnings", True)
    assert (unraisable["level"], "ZeroDivisionError" in unraisable["stack"]) == ("error", True)


def test_of_a_query_the_names_are_logged_and_no_value() -> None:
    expected = {
        "": "",
        "partition=3": "partition=…",
        "partition=3&key=jane%26": "partition=…&key=…",
        "jane": "…",
        "a==b&&c=": "a=…&c=…",
    }
    assert {query: without_values(query) for query in expected} == expected


def raw_answer(port: int, request_line: bytes) -> bytes:
    """The beginning of the answer to a request that no client would send."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(request_line + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        return connection.recv(100)


@pytest.mark.parametrize("log_format", FORMATTERS)
def test_the_access_log_has_a_line_for_each_request_and_nothing_secret(
    tmp_path: Path, log_format: str
) -> None:
    flags = ("--access-log", "--log-format", log_format, "--log-level", "warning")
    with FakeCluster(brokers=1) as kafka:
        kafka.create_topic("orders", partitions=1)
        with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers, flags=flags) as sidecar:
            target = "/v1/topics/orders/leader?key=hunter2&max_block_ms=5000"
            headers = {"authorization": "Bearer hunter2", "pilotfish-key": "hunter2"}
            assert sidecar.api.get(target).status_code == 200
            # Answered before there is an ASGI request.
            assert sidecar.api.get("/v1/topics/orders/leader?partition=0").status_code == 200
            headers |= {"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}
            answer = sidecar.api.post("/v1/topics/orders/records?key=hunter2", headers=headers)
            assert answer.status_code == 415
            assert b" 400 " in raw_answer(sidecar.api_port, b"GET /v1/topics/orders?\xff=hunter2 HTTP/1.1")
            assert sidecar.terminate() == 0
            log = sidecar.log()
    assert "hunter2" not in log
    assert "GET /v1/topics/orders/leader?key=…&max_block_ms=… HTTP/1.1" in log
    assert "GET /v1/topics/orders/leader?partition=… HTTP/1.1" in log
    assert log.count("service.access_log") == 4  # with the status that the rig waits for
    if log_format == "json":
        lines = [json.loads(each) for each in log.splitlines()]
        by_path = {line["path"]: line for line in lines if line["logger"] == "service.access_log"}
        look_up, produce = by_path["/v1/topics/orders/leader"], by_path["/v1/topics/orders/records"]
        common = ("ts", "level", "logger", "msg", "method", "path", "status", "duration_ms")
        assert (tuple(look_up), tuple(produce)) == (common, (*common, "trace_id"))
        assert (look_up["method"], look_up["status"]) == ("GET", 200)
        assert (produce["method"], produce["status"], produce["trace_id"]) == ("POST", 415, TRACE_ID)
        assert look_up["duration_ms"] > 0
        others = [line for line in lines if line["logger"] != "service.access_log"]
        assert {tuple(line) for line in others} <= {("ts", "level", "logger", "msg")}


TRACE_ID: Final = "0af7651916cd43dd8448eb211c80319c"


def test_a_line_that_is_logged_for_a_request_has_its_trace_id() -> None:
    trace: list[str | None] = [TRACE_ID, None]
    record = logging.LogRecord("name", logging.WARNING, "", 1, "said", (), None)
    formatter = FORMATTERS["json"](lambda: trace[0])
    assert json.loads(formatter.format(record))["trace_id"] == TRACE_ID
    assert FORMATTERS["logfmt"](lambda: trace[0]).format(record).endswith(f" msg=said trace_id={TRACE_ID}")
    trace.pop(0)
    assert "trace_id" not in formatter.format(record)
    record.pilotfish_fields = {"status": 503, "duration_ms": 1.5, "trace_id": "of the request"}
    line = json.loads(formatter.format(record))
    assert (line["status"], line["duration_ms"], line["trace_id"]) == (503, 1.5, "of the request")
    within_another = FORMATTERS["json"](lambda: TRACE_ID).format(record)
    assert json.loads(within_another)["trace_id"] == "of the request"


SECRET: Final = "hunter2hunter2"
BROKERS: Final = ("--kafka", "bootstrap.servers=127.0.0.1:1")
SASL: Final = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN")

LOG_FORMATS: Final = pytest.mark.parametrize("log_format", FORMATTERS)


def refused_by(*arguments: str, **environment: str) -> str:
    """The output of a `pilotfish serve` that can't start: it is refused when its settings are read or its app
    is made, before anything is started.
    """
    said: list[str] = []
    context = serve.make_context("serve", list(arguments), resilient_parsing=False)
    given = {name: value for name, value in context.params.items() if value not in (None, ())}
    config_file, flags = given.pop("config_file", None), given.pop("kafka", ())
    for name in ("embedded", "embedded_port", "embedded_folder"):
        given.pop(name, None)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            settings = load_settings(given, flags, config_file)
            said.append(repr(settings))
            said.append(repr(App(settings).sidecar.config))
        except SettingsError as e:
            said.append(str(e))
        except ConfigError as e:
            said.append(e.message)
        except FileFaultError as e:
            said.append(str(e))
        else:
            raise AssertionError(f"it would start: {said}")
    return "\n".join(said)


def kafka(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--kafka", setting)]


_SSL: Final = ("security.protocol=SSL",)
_OAUTH: Final = ("security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER")
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url=https://"
_CLIENT_SECRET: Final = f"sasl.oauthbearer.client.credentials.client.secret={SECRET}"
_LOGIN: Final = f'LoginModule required username="a" password="{SECRET}'
_STORE: Final = ("ssl.keystore.location=/nowhere",)

#: Settings with which no sidecar starts, whatever is wrong with them.
WRONG: Final[dict[str, tuple[str, ...]]] = {
    "no name": (f"={SECRET}",),
    "no value": (f"sasl.password:{SECRET}",),
    "misspelt": (*SASL, "sasl.username=me", f"sasl.pasword={SECRET}"),
    "JAAS that is none": (*SASL, f"sasl.jaas.config={SECRET}"),
    "JAAS without end": (*SASL, f"sasl.jaas.config=x.Plain{_LOGIN}"),
    "JAAS of another mechanism": (*SASL, f'sasl.jaas.config=x.Scram{_LOGIN}";'),
    "a password without user": (*SASL, f"sasl.password={SECRET}"),
    "a password given twice": (
        *(*SASL, "sasl.username=a", f"sasl.password={SECRET}", "sasl.password.file=/nowhere"),
    ),
    "a key that is none": (
        *(*_SSL, f"ssl.keystore.key={SECRET}", f"ssl.keystore.certificate.chain={SECRET}"),
    ),
    "a key's password": (*_SSL, f"ssl.key.password={SECRET}", *_STORE),
    "authorities that are none": (*_SSL, f"ssl.truststore.certificates={SECRET}"),
    "a Java store's password": (f"ssl.truststore.password={SECRET}",),
    "a token endpoint with a user": (*_OAUTH, f"{_ENDPOINT}me:{SECRET}@idp.example/token", _CLIENT_SECRET),
    "a client secret without id": (*_OAUTH, f"{_ENDPOINT}idp.example/token", _CLIENT_SECRET),
    "an assertion without a key": (
        *(*_OAUTH, f"{_ENDPOINT}idp.example/token", "sasl.oauthbearer.assertion.claim.iss=me"),
        f"sasl.oauthbearer.assertion.private.key.passphrase={SECRET}",
    ),
    "a number beside a secret": (*SASL, "sasl.username=a", f"sasl.password={SECRET}", "batch.size=many"),
}


def test_settings_that_are_refused_are_named_without_a_secret() -> None:
    for name, wrong in WRONG.items():
        said = refused_by(*BROKERS, *kafka(*wrong))
        assert said, name
        assert SECRET not in said, name
    for variable in ("PILOTFISH_KAFKA_SASL_PASWORD", "PILOTFISH_TOKN", "PILOTFISH_KAFKA_SASL_JAAS_CONFIG"):
        said = refused_by(*BROKERS, *kafka(*SASL), **{variable: SECRET})
        assert said, variable
        assert SECRET not in said, variable
    # None that holds a secret is missing.
    secret = {option.name for option in OPTIONS if option.kind.name == "PASSWORD"} | {"sasl.password"}
    assert secret - {setting.partition("=")[0] for words in WRONG.values() for setting in words} == set()


def test_a_file_of_settings_or_tokens_that_is_none_is_named_without_a_line_of_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in (
        f'[kafka]\nsasl.password = "{SECRET}\n',
        f"[kafka]\nsasl.password = {SECRET}\n",
        f'[kafka\nsasl.password = "{SECRET}"\n',
        f'[kafka]\nsasl.password = "{SECRET}"\nsasl.password = "x"\n',
        f'kafka = "{SECRET}"\n',
    ):
        path.write_text(text)
        assert SECRET not in refused_by(*BROKERS, "--config", str(path)), text
    for text in (SECRET, f"[[tokens]]\nsha256 = '{SECRET}'\n", f"tokens = ['{SECRET}'"):
        path.write_text(text)
        said = refused_by(*BROKERS, "--tokens-file", str(path))
        assert ("tokens_file" in said, SECRET in said) == (True, False), text


def test_a_broker_that_refuses_the_password_is_logged_without_it(tmp_path: Path) -> None:
    def log_of(mechanism: str, log_format: str) -> str:
        settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
        settings |= {"sasl.username": "me", "sasl.password": SECRET, "reconnect.backoff.max.ms": "100"}
        servers = {"bootstrap.servers": brokers.bootstrap_servers}
        with logged(log_format) as log, KafkaProducer(ProducerConfig.from_mapping({**servers, **settings})):
            wait_until(lambda: log.getvalue().count("authentication failed due to") > 3, what="attempts")
        return log.getvalue()

    with FakeCluster(brokers=1) as brokers:
        brokers.demand_sasl(SaslDemand(("PLAIN", "SCRAM-SHA-256"), passwords={"me": "another"}))
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            for log_format in FORMATTERS:
                assert_logged_once(log_of(mechanism, log_format))


def assert_logged_once(log: str) -> None:
    assert SECRET not in log
    assert log.count("authentication failed due to") > 1  # at DEBUG each, to be seen here
    errors = [line for line in log.splitlines() if "level=error" in line or '"level":"error"' in line]
    assert len(errors) == 1, errors


def test_a_sidecar_that_brokers_refuse_logs_it_without_the_password(tmp_path: Path) -> None:
    with FakeCluster(brokers=1) as brokers:
        brokers.demand_sasl(SaslDemand(("SCRAM-SHA-256",), passwords={"me": "another"}))
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "me",
            "sasl.password": SECRET,
            "reconnect.backoff.max.ms": "100",
        }
        flags = ("--log-level", "debug", "--access-log", "--log-format", "json")
        servers = brokers.bootstrap_servers
        with Sidecar(tmp_path, bootstrap_servers=servers, kafka=settings, flags=flags) as sidecar:
            name = "pilotfish_broker_disconnects_total"
            wait_until(lambda: (sidecar.metric(name, reason="authentication") or 0) > 3, what="attempts")
            assert sidecar.terminate() == 0
            log = sidecar.log()
    assert_logged_once(log)


@contextmanager
def logged(log_format: str) -> Iterator[io.StringIO]:
    """What comes to the root logger, at every level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS[log_format]())
    handler.addFilter(lambda record: not record.name.startswith("http"))  # the caller's own
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@LOG_FORMATS
def test_a_bugs_stack_holds_nothing_of_the_request(log_format: str) -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("a bug")

    web.producer.submit = broken  # type: ignore[method-assign,assignment]  # a bug, as it were
    headers = {
        "authorization": f"Bearer {SECRET}",
        "pilotfish-key": SECRET,
        "cookie": SECRET,
        "content-type": "application/octet-stream",
    }
    with logged(log_format) as log:
        answer = web.post("/v1/topics/orders/records", content=SECRET.encode(), headers=headers)
    assert answer.status_code == 500
    assert "RuntimeError: a bug" in log.getvalue()
    assert "an unexpected exception" in log.getvalue()
    assert SECRET not in log.getvalue()


@LOG_FORMATS
def test_requests_that_are_refused_leave_nothing_of_theirs_in_the_log(log_format: str) -> None:
    web = NativeApp()
    web.producer.set_topics({"orders": 3})
    bearer = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
    with logged(log_format) as log:
        for body in (SECRET, f'{{"records":"{SECRET}"}}', f'{{"records":[{{"value":"{SECRET}","x":1}}]}}'):
            assert web.post("/v1/topics/orders/records", content=body, headers=bearer).status_code >= 400
        web.get(f"/v1/topics/orders/leader?key={SECRET}&partition=1", headers=bearer)
        web.get(f"/v1/topics/orders?token={SECRET}", headers=bearer)
        web.post(f"/v1.0/publish/pubsub/orders?metadata.x={SECRET}&metadata.rawPayload={SECRET}", content="1")
    assert SECRET not in log.getvalue()


def test_a_line_of_the_sidecar_that_is_logged_for_a_request_has_its_trace_id(tmp_path: Path) -> None:
    """A limit of the wrong type makes the request fail unexpectedly, so that it is logged."""
    with (
        FakeCluster(brokers=1) as kafka,
        Sidecar(
            tmp_path,
            bootstrap_servers=kafka.bootstrap_servers,
            flags=("--log-format", "json"),
            limits={"idempotency_max_keys": "no number"},
        ) as sidecar,
    ):
        kafka.create_topic("orders", partitions=1)
        for headers in ({"traceparent": f"00-{TRACE_ID}-b7ad6b7169203331-01"}, {}):
            record = {"records": [{"value": "x"}]}
            target = "/v1/topics/orders/records"
            answer = sidecar.api.post(target, json=record, headers={"idempotency-key": "k", **headers})
            assert answer.status_code == 500, answer.text
        lines = [json.loads(line) for line in sidecar.log().splitlines()]
    failures = [line for line in lines if "unexpected exception" in line["msg"]]
    assert [line.get("trace_id") for line in failures] == [TRACE_ID, None]
    assert all("trace_id" not in line for line in lines if line not in failures)
