"""The commands, run against a sidecar on the embedded cluster, and against what is no sidecar at all."""

from __future__ import annotations

import http.server
import io
import json
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from click import Context
from click.testing import CliRunner

from client_core.testing.free_ports import free_ports
from service.__main__ import main
from service.cli import sidecar as asking
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
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
        """What a call says that ends with this code: click's own error line, without a stack."""
        result = self(*words, stdin=stdin)
        assert result.exit_code == code, result.output
        assert isinstance(result.exception, SystemExit)
        (said,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
        return said.removeprefix("Error: ")


@pytest.fixture
def cli(sidecar: Sidecar) -> Cli:
    return Cli(sidecar.api_port, sidecar.admin_port)


@contextmanager
def foreign_server(status: int, body: bytes) -> Iterator[Cli]:
    """Something that speaks HTTP and is no Pilotfish."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
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


def test_topics_are_listed(cli: Cli) -> None:
    head, row, *_ = cli("topics").output.splitlines()
    assert head.split() == ["topic", "partitions", "internal", "id"]
    assert row.split()[:3] == [DEMO_TOPIC, "4", "no"]


def test_a_prefix_that_fits_nothing_leaves_the_head(cli: Cli) -> None:
    assert cli("topics", "--prefix", "zz").output == "topic  partitions  internal  id\n"


def test_a_topic_shows_a_row_per_partition(cli: Cli) -> None:
    rows = cli("topic", DEMO_TOPIC).output.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["0", "1", "2", "3"]


def test_a_key_leads_to_the_same_partition_as_a_produce_of_it(cli: Cli) -> None:
    led = json.loads(cli("leader", DEMO_TOPIC, "--key", "customer-7", "--json").output)
    produced = json.loads(cli("produce", DEMO_TOPIC, "x", "--key", "customer-7", "--json").output)
    assert led["partition"] == produced["results"][0]["partition"]


def test_an_empty_key_is_a_key(cli: Cli) -> None:
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


def test_an_unknown_topic_is_said_in_kafkas_words(cli: Cli) -> None:
    assert cli.refused("topic", "nope") == "Topic nope does not exist [UNKNOWN_TOPIC_OR_PARTITION]"


def test_a_partition_that_is_not_there_is_said(cli: Cli) -> None:
    assert cli.refused("leader", DEMO_TOPIC, "--partition", "9").startswith(
        f"topic {DEMO_TOPIC} has no partition 9, it has 4"
    )


@pytest.mark.parametrize("name", ["", "a b/c", "..", "x" * 250])
def test_a_name_that_kafka_would_not_take_is_a_wrong_call(cli: Cli, name: str) -> None:
    assert "Invalid value for 'TOPIC': a topic" in cli.refused("topic", name, code=2)


@pytest.mark.parametrize("words", [("leader", "demo"), ("leader", "demo", "--key", "a", "--partition", "1")])
def test_a_leader_is_asked_for_in_one_way(cli: Cli, words: tuple[str, ...]) -> None:
    assert cli.refused(*words, code=2) == "give either --key or --partition"


# -- nobody there, or somebody else --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "option"),
    [(("topics",), "--api-port"), (("status",), "--api-port"), (("healthcheck",), "--admin-port")],
)
def test_without_a_sidecar_the_address_and_a_remedy_are_said(words: tuple[str, ...], option: str) -> None:
    (port,) = free_ports(1)
    said = Cli(port, port).refused(*words)
    assert said == (
        f"no Pilotfish answers at 127.0.0.1:{port} (Connection refused). "
        f"Start one with `pilotfish serve`, or name its port with {option}."
    )


def test_the_port_of_the_probes_is_not_that_of_the_api(sidecar: Sidecar) -> None:
    wrong = Cli(sidecar.admin_port, sidecar.api_port)
    assert wrong.refused("topics").endswith("Name its port with --api-port.")
    assert "has no /livez. Name the port of Pilotfish's probes with --admin-port." in wrong.refused(
        "healthcheck"
    )


@pytest.mark.parametrize("body", [b"<html>", b'{"hello":"world"}', b"[]", b""])
def test_an_answer_of_somebody_else_is_no_stack(body: bytes) -> None:
    with foreign_server(200, body) as cli:
        for words in (("topics",), ("status",), ("produce", "demo", "x")):
            assert "not as Pilotfish's API does" in cli.refused(*words)


def test_a_server_that_takes_a_request_and_says_nothing_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        said = Cli(port, port).refused("healthcheck", "--timeout", "0.05")
        assert f"127.0.0.1:{port} took the request and has not answered for 0.05 s" in said


@pytest.mark.parametrize("port", ["0", "70000", "http"])
def test_what_is_no_port_is_a_wrong_call(cli: Cli, port: str) -> None:
    assert "'--api-port'" in cli.refused("topics", "--api-port", port, code=2)


def test_listening_everywhere_is_asked_on_loopback() -> None:
    assert asking.Sidecar("0.0.0.0", 1).address == "127.0.0.1:1"
    assert asking.Sidecar("::", 1).address == "[::1]:1"


# -- produce -------------------------------------------------------------------------------------------------


def test_values_are_told_row_by_row(cli: Cli) -> None:
    head, first, second = cli("produce", DEMO_TOPIC, "a", "b", "--partition", "3").output.splitlines()
    assert head.split() == ["partition", "offset", "error"]
    assert int(second.split()[1]) == int(first.split()[1]) + 1


def test_lines_are_told_portion_by_portion(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, "--partition", "1", stdin="".join(f"{n}\n" for n in range(1_200)))
    assert [line.split(", partition 1 offset")[0] for line in result.stdout.splitlines()] == [
        "lines 1-500: 500 acknowledged",
        "lines 501-1000: 500 acknowledged",
        "lines 1001-1200: 200 acknowledged",
    ]
    assert result.stderr == "1200 records acknowledged\n"
    assert result.exit_code == 0


def test_json_of_lines_is_one_document_per_line(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, "--json", stdin="x\n" * 700)
    assert [len(json.loads(line)["results"]) for line in result.stdout.splitlines()] == [500, 200]


def test_no_input_is_no_record_and_no_failure(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, stdin="")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "0 records acknowledged\n")


def test_a_line_that_is_not_utf8_is_named_and_nothing_of_its_portion_is_sent(cli: Cli) -> None:
    said = cli.refused("produce", DEMO_TOPIC, stdin=b"a\n\xff\xfe\nb\n")
    assert said == "line 2 is not UTF-8; nothing was acknowledged"


def test_what_went_before_a_bad_line_is_said(cli: Cli) -> None:
    said = cli.refused("produce", DEMO_TOPIC, stdin=b"a\n" * 500 + b"\xff\n")
    assert said == "line 501 is not UTF-8; 500 records before line 501 were acknowledged, none after"


def test_a_line_without_its_separator_is_named(cli: Cli) -> None:
    said = cli.refused("produce", DEMO_TOPIC, "--key-separator", ":", stdin="a:1\nb\n")
    assert said.startswith("line 2 has no ':', so it is not clear which part is its key")


def test_values_that_should_be_json_and_are_not_are_named(cli: Cli) -> None:
    assert cli.refused("produce", DEMO_TOPIC, "--json-values", "1", "{bad").startswith(
        "value 2 is not JSON: Expecting property name"
    )


def test_a_record_that_is_too_large_is_said_with_its_line(cli: Cli) -> None:
    result = cli("produce", DEMO_TOPIC, stdin="x" * (MAX_REQUEST_SIZE + 1))
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: line 1: ")
    assert "max.request.size configuration. [MESSAGE_TOO_LARGE]\nnothing was acknowledged" in result.stderr


def test_a_record_that_the_sidecar_names_is_told_as_the_line_that_it_was() -> None:
    problem = {"detail": "records[2].value: bad base64", "written": "no"}
    with foreign_server(422, json.dumps(problem).encode()) as cli:
        said = cli.refused("produce", DEMO_TOPIC, stdin="a\nb\nc\n")
    assert said == "line 3: value: bad base64"


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


def test_an_unknown_outcome_is_said() -> None:
    problem = {"detail": "no answer", "kafka_error": "REQUEST_TIMED_OUT", "written": "unknown"}
    with foreign_server(504, json.dumps(problem).encode()) as cli:
        said = cli.refused("produce", DEMO_TOPIC, "x")
    assert said == "no answer [REQUEST_TIMED_OUT] (it may have been written all the same)"


def test_produce_to_an_unknown_topic_ends_when_the_user_said(cli: Cli) -> None:
    said = cli.refused("produce", "nope-2", "x", "--max-block-ms", "50")
    # On a busy machine the broker may not have answered by then.
    assert said in {
        f"Topic nope-2 not present in metadata after 50 ms. [{error}]"
        for error in ("UNKNOWN_TOPIC_OR_PARTITION", "REQUEST_TIMED_OUT")
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--key", "a", "--key-separator", ":"), "give either --key or --key-separator"),
        (("--key-separator", ""), "--key-separator must not be empty"),
        (("--header", "x"), "--header wants NAME=VALUE, not 'x'"),
        (("value", "--file", "-"), "give either VALUES or --file"),
        (("--file", "/no/such/file"), "Invalid value for '--file': '/no/such/file': No such file"),
        (("\udcff",), "it is not UTF-8; send other bytes as base64 over HTTP"),
    ],
)
def test_a_wrong_call_is_said_before_anything_is_sent(cli: Cli, words: tuple[str, ...], said: str) -> None:
    assert said in cli.refused("produce", DEMO_TOPIC, *words, code=2, stdin="x\n")


def test_keys_headers_and_json_arrive_as_they_were_given(cli: Cli, cluster: EmbeddedCluster) -> None:
    words = ("--json-values", "--key-separator", ":", "--header", "trace=a=b", "--header", "h=")
    assert cli("produce", DEMO_TOPIC, 'seven:{"total": 12.50}', *words).exit_code == 0
    (record,) = [r for r in cluster.kafka.records(DEMO_TOPIC) if r.key == b"seven"]
    assert record.value == b'{"total":12.50}'
    assert record.headers == (("trace", b"a=b"), ("h", b""))


def test_an_interrupt_says_what_is_known(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    class Interrupted(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            if self.tell() == len(self.getvalue()):
                raise KeyboardInterrupt
            return super().read1(size)

    monkeypatch.setattr("service.cli.produce._standard_input", lambda: Interrupted(b"a\n" * 600))
    assert cli.refused("produce", DEMO_TOPIC, code=130) == "interrupted: 600 records were acknowledged"


# -- probes --------------------------------------------------------------------------------------------------


def test_healthcheck_and_wait_pass_on_a_running_sidecar(cli: Cli) -> None:
    assert (cli("healthcheck").output, cli("healthcheck").exit_code) == ("ok\n", 0)
    assert (cli("wait").output, cli("wait").exit_code) == ("", 0)


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


def test_wait_gives_up_with_the_reason() -> None:
    (port,) = free_ports(1)
    said = Cli(port, port).refused("wait", "--timeout", "0")
    assert said.startswith(f"not started after 0 s: no Pilotfish answers at 127.0.0.1:{port}")


# -- help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", main.list_commands(Context(main)))
def test_every_command_and_option_is_explained(name: str) -> None:
    command = main.get_command(Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert getattr(parameter, "help", None), parameter.name
