"""The commands, run against a sidecar on the embedded cluster, and against other servers."""

from __future__ import annotations

import http.server
import io
import itertools
import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from click import Context
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from client_core.testing.free_ports import free_ports
from service.__main__ import main
from service.cli import sidecar as asking
from service.cli.options import render
from service.cli.produce import (
    BYTES_PER_REQUEST,
    LINES_PER_REQUEST,
    LINES_WITH_TOPICS,
    MAX_LINE_BYTES,
    Chunk,
    LineTooLongError,
    chunks,
)
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from service.produce.many_topics import MAX_TOPICS
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from click.testing import Result

#: Small enough that a test can exceed it.
MAX_REQUEST_SIZE = 2_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(topics=(DEMO_TOPIC,)) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory, cluster: EmbeddedCluster) -> Iterator[Sidecar]:
    folder = tmp_path_factory.mktemp("cli")
    kafka = {"max.request.size": str(MAX_REQUEST_SIZE)}
    with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers, kafka=kafka) as running:
        yield running


class Cli:
    """The command as a shell would call it."""

    def __init__(self, api_port: int, admin_port: int) -> None:
        self._environment = {"PILOTFISH_API_PORT": str(api_port), "PILOTFISH_ADMIN_PORT": str(admin_port)}

    def __call__(self, *words: str, stdin: bytes | str | None = None) -> Result:
        return CliRunner().invoke(main, words, input=stdin, env=self._environment)

    def refused(self, *words: str, code: int = 1, stdin: bytes | str | None = None) -> str:
        """The error line of a call that ends with this code: click's own, without a stack."""
        result = self(*words, stdin=stdin)
        assert result.exit_code == code, result.output
        assert isinstance(result.exception, SystemExit)
        (said,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        return said.removeprefix("Error: ")


@pytest.fixture
def cli(sidecar: Sidecar) -> Cli:
    return Cli(sidecar.api_port, sidecar.admin_port)


@contextmanager
def foreign_server(status: int, body: bytes, asked: list[str] | None = None) -> Iterator[Cli]:
    """Something that speaks HTTP and is no Pilotfish. `asked` gets the target of each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None:
                asked.append(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Cli(server.server_port, server.server_port)
        finally:
            server.shutdown()
            thread.join()


# -- look-ups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "path", "query"),
    [
        (("topics", "--prefix", "or", "--internal"), "/v1/topics", {"prefix": "or", "internal": "true"}),
        (("topic", "orders", "--max-block-ms", "7"), "/v1/topics/orders", {"max_block_ms": "7"}),
        (
            ("leader", "orders", "--key", "a", "--key-format", "base64", "--max-block-ms", "7"),
            "/v1/topics/orders/leader",
            {"key": "a", "key_format": "base64", "max_block_ms": "7"},
        ),
        (("leader", "orders", "--partition", "3"), "/v1/topics/orders/leader", {"partition": "3"}),
        (
            ("produce", "orders", "x", "--max-block-ms", "7", "--timeout-ms", "9"),
            "/v1/topics/orders/records",
            {"max_block_ms": "7", "timeout_ms": "9"},
        ),
        (
            ("produce", "orders:x", "--topic-separator", ":", "--max-block-ms", "7", "--timeout-ms", "9"),
            "/v1/records",
            {"max_block_ms": "7", "timeout_ms": "9"},
        ),
    ],
)
def test_each_option_of_a_request_reaches_the_sidecar(
    words: tuple[str, ...], path: str, query: dict[str, str]
) -> None:
    asked: list[str] = []
    with foreign_server(404, b"{}", asked) as cli:
        cli(*words)
    (target,) = map(urlsplit, asked)
    assert (target.path, dict(parse_qsl(target.query))) == (path, query)


def test_topics_are_listed_and_a_topic_shows_a_row_per_partition(cli: Cli) -> None:
    head, row, *_ = cli("topics").output.splitlines()
    assert head.split() == ["topic", "partitions", "internal", "id"]
    assert row.split()[:3] == [DEMO_TOPIC, "4", "no"]
    assert cli("topics", "--prefix", "zz").output == "topic  partitions  internal  id\n"
    rows = cli("topic", DEMO_TOPIC).output.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]


def test_a_key_leads_to_the_same_partition_as_a_produce_of_it(cli: Cli) -> None:
    led = json.loads(cli("leader", DEMO_TOPIC, "--key", "customer-7", "--json").output)
    produced = json.loads(cli("produce", DEMO_TOPIC, "x", "--key", "customer-7", "--json").output)
    assert led["partition"] == produced["results"][0]["partition"]
    assert cli("leader", DEMO_TOPIC, "--key", "").exit_code == 0


def test_status_shows_the_sidecar_and_its_brokers(cli: Cli) -> None:
    output = ""

    def is_connected() -> bool:
        nonlocal output
        output = cli("status").output
        return re.search(r"^\d +127\.0\.0\.1:\d+ +ready ", output, re.MULTILINE) is not None

    wait_until(is_connected, what="a broker that is ready", last_seen=lambda: output)
    assert output.startswith("what ")
    assert "state              running" in output


def test_status_says_first_what_is_slow_and_names_connections_that_have_no_id(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    with Sidecar(tmp_path, bootstrap_servers=f"127.0.0.1:{nobody}") as lost:
        status = Cli(lost.api_port, lost.admin_port)

        def reports() -> str:
            output = status("status").output
            return output if "refused" in output else ""

        output = wait_until(reports, what="a connection that was refused", every_s=0.02)
    slow, *_ = output.split("\n\n")
    assert slow.startswith("Slow:\n  no broker of bootstrap.servers has answered yet: ")
    assert f"\nbootstrap  127.0.0.1:{nobody}" in output


def test_json_is_the_sidecars_own_answer(cli: Cli, sidecar: Sidecar) -> None:
    answered = sidecar.api.get(f"/v1/topics/{DEMO_TOPIC}").json()
    assert json.loads(cli("topic", DEMO_TOPIC, "--json").output) == answered


def test_a_missing_topic_is_reported_in_kafkas_words(cli: Cli) -> None:
    assert cli.refused("topic", "nope") == "Topic nope does not exist [UNKNOWN_TOPIC_OR_PARTITION]"
    said = cli.refused("leader", DEMO_TOPIC, "--partition", "9")
    assert said.startswith(f"topic {DEMO_TOPIC} has no partition 9; it has 4 partitions")


def test_what_can_not_be_asked_is_a_wrong_call(cli: Cli) -> None:
    for name in ("", "a b/c", "..", "x" * 250):
        assert "Invalid value for 'TOPIC': a topic" in cli.refused("topic", name, code=2), name
    for words in ((), ("--key", "a", "--partition", "1")):
        assert cli.refused("leader", "demo", *words, code=2) == "give either --key or --partition"
    for port in ("0", "70000", "http"):
        assert "'--api-port'" in cli.refused("topics", "--api-port", port, code=2), port
    for command in ("wait", "healthcheck"):
        for seconds in ("nan", "inf", "-1", "1e9"):
            assert "'--timeout'" in cli.refused(command, "--timeout", seconds, code=2), (command, seconds)


# -- no server, or another one -------------------------------------------------------------------------------


def test_without_a_sidecar_the_address_and_a_remedy_are_said() -> None:
    (port,) = free_ports(1)
    for command, option in (("topics", "api"), ("status", "api"), ("healthcheck", "admin")):
        assert Cli(port, port).refused(command) == (
            f"no Pilotfish answers at 127.0.0.1:{port} (Connection refused). "
            f"Start one with `pilotfish serve`, or name its port with --{option}-port."
        )


def test_the_port_of_the_probes_is_not_that_of_the_api(sidecar: Sidecar) -> None:
    wrong = Cli(sidecar.admin_port, sidecar.api_port)
    assert wrong.refused("topics").endswith("Give Pilotfish's port with --api-port.")
    said = "has no /livez. Name the port of Pilotfish's probes with --admin-port."
    assert said in wrong.refused("healthcheck")


def test_an_answer_of_another_server_gives_no_stack() -> None:
    for body in (b"<html>", b'{"hello":"world"}', b"[]", b""):
        with foreign_server(200, body) as cli:
            for words in (("topics",), ("status",), ("produce", "demo", "x")):
                assert "not as Pilotfish's API does" in cli.refused(*words), (body, words)


def test_a_server_that_takes_a_request_and_says_nothing_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        said = Cli(port, port).refused("healthcheck", "--timeout", "0.05")
        assert f"127.0.0.1:{port} accepted the request, but has not answered for 0.05 s" in said


def test_texts_of_a_server_that_terminals_would_obey_are_escaped() -> None:
    with foreign_server(400, b'{"detail":"no \\u001b[31mtopic","kafka_error":"\\u001b[2J"}') as cli:
        assert cli.refused("topics") == r"no \x1b[31mtopic [\x1b[2J]"


def test_an_api_socket_that_takes_a_request_and_says_nothing_is_waited_for_as_long_as_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind("api.sock")
        mute.listen()
        connection = asking.Sidecar("", 1, timeout_s=0.05, socket_path="api.sock")._connection()
        connection.connect()
        assert connection.sock.gettimeout() == 0.05
        connection.close()


def test_listening_everywhere_is_asked_on_loopback() -> None:
    assert asking.Sidecar("0.0.0.0", 1).address == "127.0.0.1:1"
    assert asking.Sidecar("::", 1).address == "[::1]:1"


# -- produce -------------------------------------------------------------------------------------------------


def test_values_are_reported_row_by_row(cli: Cli) -> None:
    head, first, second = cli("produce", DEMO_TOPIC, "a", "b", "--partition", "3").output.splitlines()
    assert head.split() == ["partition", "offset", "error"]
    assert int(second.split()[1]) == int(first.split()[1]) + 1


def test_lines_are_sent_chunk_by_chunk(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, "--partition", "1", stdin="".join(f"{n}\n" for n in range(1_200)))
    assert [line.split(", partition 1 offset")[0] for line in result.stdout.splitlines()] == [
        "lines 1-500: 500 acknowledged",
        "lines 501-1000: 500 acknowledged",
        "lines 1001-1200: 200 acknowledged",
    ]
    assert result.stderr == "1200 records acknowledged\n"
    assert result.exit_code == 0


def test_json_of_lines_is_one_document_per_line_and_no_input_no_failure(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, "--json", stdin="x\n" * 700)
    assert [len(json.loads(line)["results"]) for line in result.stdout.splitlines()] == [500, 200]
    result = cli("produce", DEMO_TOPIC, stdin="")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 records acknowledged\n")


def test_a_line_that_can_not_be_sent_is_named_with_what_went_before_it(cli: Cli) -> None:
    said = cli.refused("produce", DEMO_TOPIC, stdin=b"a\n\xff\xfe\nb\n")
    assert said == "line 2 is not UTF-8; nothing was acknowledged"
    said = cli.refused("produce", DEMO_TOPIC, stdin=b"a\n" * 500 + b"\xff\n")
    assert said == "line 501 is not UTF-8; 500 records before line 501 were acknowledged, none after"
    said = cli.refused("produce", DEMO_TOPIC, "--key-separator", ":", stdin="a:1\nb\n")
    assert said.startswith("line 2 has no ':', so it has no key")
    said = cli.refused("produce", DEMO_TOPIC, "--json-values", "1", "{bad")
    assert said.startswith("value 2 is not JSON: Expecting property name")


def test_values_are_all_checked_before_the_first_is_sent(cli: Cli, cluster: EmbeddedCluster) -> None:
    before = len(cluster.kafka.records(DEMO_TOPIC))
    for bad, why in (
        ("{bad", "Expecting property name"),
        ("NaN", "NaN is not JSON"),
        ('"\\ud800"', "a lone surrogate"),
        ("[" * 129 + "]" * 129, "nested deeper than 128 levels"),
    ):
        said = cli.refused("produce", DEMO_TOPIC, "--json-values", *["1"] * 549, bad)
        assert said.startswith(f"value 550 is not JSON: {why}")
        assert said.endswith("; no value was sent")
    said = cli.refused("produce", "--topic-separator", "|", *[f"{DEMO_TOPIC}|1"] * 549, "a b|1")
    assert said.startswith("value 550 names an invalid topic: a topic's name has letters")
    assert said.endswith("; no value was sent")
    assert len(cluster.kafka.records(DEMO_TOPIC)) == before


def test_a_record_that_is_too_large_is_said_with_its_line(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, stdin="x" * (MAX_REQUEST_SIZE + 1))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: line 1: ")
    assert "max.request.size configuration. [MESSAGE_TOO_LARGE]\nnothing was acknowledged" in result.stderr


def test_the_sidecars_answer_to_a_record_is_printed_with_its_line() -> None:
    problem = {"detail": "records[2].value: bad base64", "written": "no"}
    with foreign_server(422, json.dumps(problem).encode()) as cli:
        said = cli.refused("produce", DEMO_TOPIC, stdin="a\nb\nc\n")
    assert said == "line 3: value: bad base64"
    problem = {"detail": "no answer", "kafka_error": "REQUEST_TIMED_OUT", "written": "unknown"}
    with foreign_server(504, json.dumps(problem).encode()) as cli:
        said = cli.refused("produce", DEMO_TOPIC, "x")
    assert said == "no answer [REQUEST_TIMED_OUT] (it may still have been written)"


def test_some_failed_records_are_named_and_the_others_go_through() -> None:
    failed = {"kafka_error": "MESSAGE_TOO_LARGE", "code": 10, "message": "too large", "retriable": False}
    results = [{"partition": 2, "offset": 7, "timestamp": 1}, {"error": {**failed, "written": "no"}}]
    with foreign_server(207, json.dumps({"topic": DEMO_TOPIC, "results": results}).encode()) as cli:
        result = cli("produce", DEMO_TOPIC, stdin="a\nb\n")
    assert result.stdout == "lines 1-2: 1 acknowledged, 1 failed, partition 2 offset 7\n"
    assert result.stderr.splitlines() == [
        "line 2: MESSAGE_TOO_LARGE: too large",
        "1 records acknowledged, 1 failed",
        "Error: 1 records were not acknowledged",
    ]
    assert result.exit_code == 1


def test_produce_to_an_unknown_topic_ends_when_the_user_said(cli: Cli) -> None:
    said = cli.refused("produce", "nope-2", "x", "--max-block-ms", "50")
    # On a busy machine the broker may not have answered by then.
    assert said in {
        f"Topic nope-2 not present in metadata after 50 ms.{known}"
        for known in (
            " The brokers have no such topic or partition. [UNKNOWN_TOPIC_OR_PARTITION]",
            " [REQUEST_TIMED_OUT]",
        )
    }


def test_a_wrong_call_is_said_before_anything_is_sent(cli: Cli) -> None:
    for words, said in (
        (("--key", "a", "--key-separator", ":"), "give either --key or --key-separator"),
        (("--key-separator", ""), "--key-separator must not be empty"),
        (("--header", "x"), "--header must be NAME=VALUE, not 'x'"),
        (("value", "--file", "-"), "give either VALUES or --file"),
        (("--file", "/no/such/file"), "Invalid value for '--file': '/no/such/file': No such file"),
        (("\udcff",), "it is not UTF-8; send other bytes as base64 over HTTP"),
    ):
        assert said in cli.refused("produce", DEMO_TOPIC, *words, code=2, stdin="x\n")


def test_keys_headers_and_json_arrive_as_they_were_given(cli: Cli, cluster: EmbeddedCluster) -> None:
    words = ("--json-values", "--key-separator", ":", "--header", "trace=a=b", "--header", "h=")
    assert cli("produce", DEMO_TOPIC, 'seven:{"total": 12.50}', *words).exit_code == 0
    (record,) = [r for r in cluster.kafka.records(DEMO_TOPIC) if r.key == b"seven"]
    assert record.value == b'{"total":12.50}'
    assert record.headers == (("trace", b"a=b"), ("h", b""))


def test_values_that_name_their_topics_go_to_them(cli: Cli, cluster: EmbeddedCluster) -> None:
    cluster.kafka.create_topic("second")
    words = ("--topic-separator", "|", "--partition", "0")
    result = cli("produce", f"{DEMO_TOPIC}|one", "second|two|three", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    head, *rows = [line.split() for line in result.stdout.splitlines()]
    assert head == ["topic", "partition", "offset", "error"]
    assert [(topic, partition) for topic, partition, *_ in rows] == [(DEMO_TOPIC, "0"), ("second", "0")]
    assert cluster.kafka.records("second")[-1].value == b"two|three"
    result = cli("produce", *words, stdin=f"{DEMO_TOPIC}|a\nsecond|b\nsecond|c\n")
    assert result.stdout.startswith(f"lines 1-3: 3 acknowledged, {DEMO_TOPIC} partition 0 offset ")
    assert "second partition 0 offsets 1-2" in result.stdout
    said = cli.refused("produce", *words, stdin="none\n")
    assert said.startswith("line 1 has no '|', so it has no topic; nothing was acknowledged")
    said = cli.refused("produce", *words, "a b|x", "second|y")
    assert "topic: a topic's name has letters" in said
    assert len(cluster.kafka.records("second")) == 3


def test_more_topics_than_a_request_may_have_are_sent_in_several(cli: Cli, cluster: EmbeddedCluster) -> None:
    assert LINES_WITH_TOPICS == MAX_TOPICS
    names = [f"many-{number}" for number in range(MAX_TOPICS + 1)]
    for name in names:
        cluster.kafka.create_topic(name)
    values = [f"{name}|x" for name in names]
    result = cli("produce", "--topic-separator", "|", *values)
    assert (result.exit_code, result.stderr) == (0, "")
    result = cli("produce", "--topic-separator", "|", stdin="".join(f"{value}\n" for value in values))
    assert (result.exit_code, result.stderr) == (0, f"{len(names)} records acknowledged\n")
    assert {len(cluster.kafka.records(name)) for name in names} == {2}


def test_without_a_topic_it_is_said_how_to_name_one(cli: Cli) -> None:
    assert "give TOPIC, or --topic-separator" in cli.refused("produce", code=2)
    assert "--topic-separator must not be empty" in cli.refused(
        "produce", "--topic-separator", "", "x", code=2
    )


def test_an_interrupt_says_what_is_known(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            if self.tell() == len(self.getvalue()):
                raise KeyboardInterrupt
            return super().read1(size)

    monkeypatch.setattr("service.cli.produce._standard_input", lambda: Interrupted(b"a\n" * 600))
    assert cli.refused("produce", DEMO_TOPIC, code=130) == "interrupted: 600 records were acknowledged"


def test_an_interrupt_while_values_are_sent_says_what_is_known(
    monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    posts: list[bytes] = []
    post = asking.Sidecar.post

    def interrupted(sidecar: asking.Sidecar, *words: Any, body: bytes, **times: Any) -> Any:
        if posts:
            raise KeyboardInterrupt
        posts.append(body)
        return post(sidecar, *words, body=body, **times)

    monkeypatch.setattr(asking.Sidecar, "post", interrupted)
    result = cli("produce", DEMO_TOPIC, *["x"] * 600)
    assert result.stderr == (
        "Error: interrupted: 500 records were acknowledged; values 501-600 may be written too\n"
    )
    assert result.exit_code == 130


def test_healthcheck_and_wait_pass_on_a_running_sidecar_and_wait_gives_up_without(cli: Cli) -> None:
    assert (cli("healthcheck").output, cli("healthcheck").exit_code) == ("ok\n", 0)
    assert (cli("wait").output, cli("wait").exit_code) == ("", 0)
    (port,) = free_ports(1)
    said = Cli(port, port).refused("wait", "--timeout", "0")
    assert said.startswith(f"not started after 0 s: no Pilotfish answers at 127.0.0.1:{port}")
    with foreign_server(503, b"no metadata after 12 ms\n") as starting:
        said = starting.refused("wait", "--timeout", "0")
        assert said == "not started after 0 s: no metadata after 12 ms"


def test_a_token_file_ends_with_a_line_end_as_editors_write_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("pf_token\n")
    assert cli("topics", "--token-file", str(file)).exit_code == 0
    file.write_text("two words\n")
    assert "is not a token" in cli.refused("topics", "--token-file", str(file), code=2)


def test_a_health_check_loads_nothing_of_the_sidecar() -> None:
    """It is run every half minute: with all that the other commands need it takes ten times as long."""
    (port,) = free_ports(1)
    program = (
        "import sys\n"
        "from service.__main__ import main\n"
        "try:\n"
        "    main(['healthcheck', '--admin-port', sys.argv[1]])\n"
        "except SystemExit as end:\n"
        "    assert end.code == 1\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(roots & {'fastapi', 'uvicorn', 'pydantic', 'prometheus_client', 'client_core'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(port)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_a_sidecar_does_not_load_pydantic_1() -> None:
    """FastAPI would, in the first route whose types it looks at."""
    code = (
        "import sys\n"
        "from service.cli.serve import _server\n"
        "_server()\n"
        "from tests.support.http_app import NativeApp\n"
        "paths = NativeApp().get('/openapi.json').json()['paths']\n"
        "print('/v1/leaders' in paths, 'pydantic.v1.main' in sys.modules)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "True False\n"


# -- help ----------------------------------------------------------------------------------------------------


def test_every_command_and_option_is_explained() -> None:
    for name in main.list_commands(Context(main)):
        command = main.get_command(Context(main), name)
        assert command is not None, name
        assert (command.name, bool(command.help)) == (name, True)
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0, name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), (name, parameter.name)


class Pieces:
    """A source that is read in these pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = iter(pieces)

    def read1(self, size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def test_what_is_there_is_not_held_back_and_a_line_may_come_in_pieces() -> None:
    for pieces, found in (
        ([], []),
        ([b"a\n", b"b\nc\n"], [Chunk(1, [b"a"]), Chunk(2, [b"b", b"c"])]),
        ([b"a", b"b\r", b"\n\nc", b"d\r"], [Chunk(1, [b"ab", b""]), Chunk(3, [b"cd"])]),
    ):
        assert list(chunks(Pieces(pieces))) == found
    assert (Chunk(1, [b"", b""]).name, Chunk(7, [b""]).name) == ("lines 1-2", "line 7")


def test_a_chunk_has_so_many_lines_at_most() -> None:
    found = [len(chunk.lines) for chunk in chunks(io.BytesIO(b"x\n" * (2 * LINES_PER_REQUEST + 1)))]
    assert found == [LINES_PER_REQUEST, LINES_PER_REQUEST, 1]


def test_a_chunk_has_so_many_bytes_at_most_but_one_line_always_fits() -> None:
    large = b"x" * (BYTES_PER_REQUEST + 1)
    source = Pieces([b"a\n" + large + b"\n" + b"b\nc\n"])
    assert [len(chunk.lines) for chunk in chunks(source)] == [1, 1, 2]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    class Endless:
        def read1(self, size: int = -1, /) -> bytes:
            return b"x" * size

    with pytest.raises(LineTooLongError, match=str(MAX_LINE_BYTES)):
        list(chunks(Endless()))


@given(
    st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line and b"\r" not in line)), st.data()
)
def test_however_it_comes_each_line_comes_out_once(lines: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    edges = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges) if a < b]
    found = list(chunks(Pieces(pieces)))
    assert [line for chunk in found for line in chunk.lines] == lines
    assert [chunk.first for chunk in found] == [
        1 + sum(len(p.lines) for p in found[:n]) for n in range(len(found))
    ]


def test_columns_are_as_wide_as_needed_numbers_are_aligned_right_and_an_unknown_value_is_a_dash() -> None:
    assert render(("topic", "partitions"), [("orders", 12), ("a", 3)]) == (
        "topic   partitions\norders          12\na                3"
    )
    assert render(("leader", "isr", "internal"), [(None, [1, 2], True), (1, [], False)]) == (
        "leader  isr  internal\n     -  1,2  yes\n     1  -    no"
    )
    assert render(("topic",), []) == "topic"
