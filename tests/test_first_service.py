"""The programs of docs/first-service.md, run as by a reader, through each answer that the page promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from client_core.testing import ApiKey
from service.base.settings import Settings
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.debian_packages import install
from tests.support.shared_sidecar import SharedSidecar
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.sidecar import Sidecar

_PAGE: Final = Path(__file__).parent.parent / "docs" / "first-service.md"
_FOLDER: Final = _PAGE.parent.parent / "examples" / "send"
#: What runs each program, and Debian's package of it.
_RUN: Final = {
    "send.sh": (("sh",), "curl", "curl"),
    "send.php": (("php",), "php", "php-cli"),
    "send.rb": (("ruby", "-w"), "ruby", "ruby"),
}
_TRY_LATER: Final = 75
_USAGE: Final = 64
#: What a ScriptedServer answers.
_LOST: Final = b""
_CUT_SHORT: Final = b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"topic":"demo","results":[{"par'
_ACKNOWLEDGED: Final = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n{"topic":"demo","results":[{"partition":1,"offset":7}]}'
)
_ANOTHER_SERVERS: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n<p>It works!</p>"
_TIMEOUT_S: Final = patient(120.0)


class Rig:
    """An embedded cluster, and sidecars on it."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self.cluster.bootstrap_servers

    @property
    def disturbances(self) -> int:
        """None: each case leaves the brokers as they were, and waits until its record is acknowledged."""
        return 0

    def start(self, listing: str, sidecar: Sidecar, *arguments: str) -> subprocess.Popen[str]:
        return started(listing, sidecar.api_url, *arguments)

    def stored(self, text: str) -> list[tuple[int, int]]:
        """Partition and offset of each record with this text."""
        value = json.dumps({"text": text}, separators=(",", ":")).encode()
        records = self.cluster.kafka.records(DEMO_TOPIC)
        return [(record.partition, record.offset) for record in records if record.value == value]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with EmbeddedCluster(topics=(DEMO_TOPIC,)) as cluster:
        yield Rig(cluster)


@pytest.fixture(scope="module")
def shared(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    """With room for one waiting request, as the page has it for 429."""
    folder = tmp_path_factory.mktemp("sidecar")
    with SharedSidecar(folder, rig, flags=("--max-waiting-requests", "1")) as running:
        yield running


class ScriptedServer:
    """Takes one connection for each answer: reads a request, sends the answer, closes."""

    def __init__(self, *answers: bytes) -> None:
        self.requests: Final[list[bytes]] = []
        self._answers: Final = answers
        self._listener: Final = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TIMEOUT_S)
        self._thread: Final = threading.Thread(target=self._run)
        self.url: Final = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends an accept
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        for answer in self._answers:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(_TIMEOUT_S)
                request = b""
                while not request.endswith(b"]}") and (received := connection.recv(65_536)):
                    request += received
                self.requests.append(request)
                connection.sendall(answer)


def sent(request: bytes) -> tuple[bytes, bytes]:
    """The key and the body of a request."""
    head, _, body = request.partition(b"\r\n\r\n")
    (key,) = re.findall(rb"^idempotency-key: *(\S+)", head, re.IGNORECASE | re.MULTILINE)
    return key, body


def need(listing: str) -> None:
    """Has the program of a listing, before a case holds or stops a broker. PackagesMissingError names it."""
    _, program, package = _RUN[listing]
    if shutil.which(program) is None:
        install(package)


def started(listing: str, url: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_RUN[listing][0], str(_FOLDER / listing), *arguments],
        env={**os.environ, "SIDECAR_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, what it printed, what it complained of."""
    out, err = process.communicate(timeout=_TIMEOUT_S)
    return process.returncode, out, err


def answered(sidecar: Sidecar, *codes: int) -> float:
    """How many requests got one of these statuses so far."""
    requests = partial(sidecar.metric, "pilotfish_http_requests_total", method="POST")
    return sum(requests(code=str(code)) or 0 for code in codes)


def acknowledged_once(rig: Rig, process: subprocess.Popen[str], text: str) -> None:
    is_acknowledged_once(rig, text, *finished(process))


def is_acknowledged_once(rig: Rig, text: str, code: int, out: str, err: str) -> None:
    assert code == 0, err
    receipt = json.loads(out)["results"][0]
    assert rig.stored(text) == [(receipt["partition"], receipt["offset"])]


# -- the cases: each starts a listing, and takes it through one row of the page's table ----------------------


def _is_acknowledged(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    acknowledged_once(rig, rig.start(listing, sidecar, DEMO_TOPIC, f"hello {listing}"), f"hello {listing}")


def _sends_any_text_as_it_is(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    text = f'a "quoted" \\ text\nof\ttwo lines, it\'s {listing}","admin":"yes'
    acknowledged_once(rig, rig.start(listing, sidecar, DEMO_TOPIC, text), text)


def _repeats_under_its_key(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    text, key = f"once {listing}", f"order-17-{listing}"
    first, second = (finished(rig.start(listing, sidecar, DEMO_TOPIC, text, key)) for _ in range(2))
    assert (first[0], first[1]) == (second[0], second[1])
    assert (first[0], len(rig.stored(text))) == (0, 1)
    code, _, err = finished(rig.start(listing, sidecar, DEMO_TOPIC, "other", key))
    assert (code, key in err) == (1, True), err
    assert rig.stored("other") == []


def _stops_at_its_own_mistakes(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    for status, topic, detail in (
        (400, "a,b", "letters, digits"),
        (400, "my topic", "not 'my topic'"),
        (404, "nope", "Topic nope not present"),
    ):
        before = answered(sidecar, status)
        code, out, err = finished(rig.start(listing, sidecar, topic, "lost"))
        assert (code, out, detail in err) == (1, "", True), err
        assert err.startswith(f"{status} (stored: no): ")
        assert answered(sidecar, status) == before + 1


def _needs_a_topic_and_a_text_of_unicode(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    for arguments in ((), (DEMO_TOPIC,), (DEMO_TOPIC, "hello", "big", "world")):
        code, out, err = finished(rig.start(listing, sidecar, *arguments))
        assert (code, out, err.count("\n"), "TOPIC TEXT [KEY]" in err) == (_USAGE, "", 1, True), err
    code, out, err = finished(rig.start(listing, sidecar, DEMO_TOPIC, os.fsdecode(b"caf\xe9")))
    assert (code, out, err.count("\n"), "UTF-8" in err) == (1, "", 1, True), err


def _stops_where_no_sidecar_answers(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    code, out, err = finished(started(listing, f"http://127.0.0.1:{sidecar.admin_port}/", DEMO_TOPIC, "lost"))
    assert (code, out, err.rstrip()) == (1, "", "405: only GET")
    with ScriptedServer(_ANOTHER_SERVERS) as server:
        code, out, err = finished(started(listing, server.url, DEMO_TOPIC, "lost"))
    assert (code, out, err.rstrip()) == (1, "", "200: <p>It works!</p>")


def _repeats_what_it_sent_if_an_answer_is_lost(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    with ScriptedServer(_LOST, _CUT_SHORT, _ACKNOWLEDGED) as server:
        code, out, err = finished(started(listing, f"{server.url}/", DEMO_TOPIC, "held dear"))
    assert (code, err.count("(stored: unknown): "), '"offset":7' in out) == (0, 2, True), err
    assert len(server.requests) == 3
    keys, bodies = zip(*(sent(request) for request in server.requests), strict=True)
    assert (len(set(keys)), set(bodies)) == (1, {b'{"records":[{"value":{"text":"held dear"}}]}'})


def _waits_for_a_broker(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    # 504: it was written to a connection whose end the sidecar had not noticed yet.
    text, brokers, before = f"patience {listing}", rig.cluster.kafka.broker_ids, answered(sidecar, 503, 504)
    for broker in brokers:
        rig.cluster.stop_broker(broker)
    try:
        process = rig.start(listing, sidecar, DEMO_TOPIC, text)
        complaint = first_complaint(process)
        assert rig.stored(text) == []
    finally:
        for broker in brokers:
            rig.cluster.start_broker(broker)
    acknowledged_once(rig, process, text)
    assert answered(sidecar, 503, 504) > before, complaint


def _asks_again_after_an_unknown_outcome(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    text, before = f"slowly {listing}", answered(sidecar, 504)
    hold = rig.cluster.kafka.hold_next(ApiKey.PRODUCE)
    try:
        process = rig.start(listing, sidecar, DEMO_TOPIC, text)
        complaint = first_complaint(process)
        assert len(rig.stored(text)) == 1
    finally:
        hold.release()
    acknowledged_once(rig, process, text)
    assert complaint.startswith("504 (stored: unknown): ")
    assert answered(sidecar, 504) > before, complaint


def _waits_for_room(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    text, before = f"room {listing}", answered(sidecar, 429)
    hold = rig.cluster.kafka.hold_next(ApiKey.PRODUCE)
    waiting = threading.Thread(target=sidecar.produce, args=(DEMO_TOPIC, [{"value": "holds the room"}]))
    waiting.start()
    try:
        hold.wait_until_held()
        process = rig.start(listing, sidecar, DEMO_TOPIC, text)
        complaint = first_complaint(process)
        assert rig.stored(text) == []
    finally:
        hold.release()
        waiting.join()
    acknowledged_once(rig, process, text)
    assert complaint.startswith("429 (stored: no): ")
    assert answered(sidecar, 429) > before, complaint


def _waits_for_the_sidecar(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    text = f"early {listing}"
    assert sidecar.terminate() == 0
    process = rig.start(listing, sidecar, DEMO_TOPIC, text)
    first_complaint(process)
    sidecar.start()
    code, out, err = finished(process)
    if code == _TRY_LATER:  # a busy machine starts it more slowly: what the page has for that
        process = rig.start(listing, sidecar, DEMO_TOPIC, text, err.split()[-1])
        code, out, err = finished(process)
    is_acknowledged_once(rig, text, code, out, err)


def _gives_up_with_its_key(rig: Rig, listing: str, sidecar: Sidecar) -> None:
    assert sidecar.terminate() == 0
    key = f"order-18-{listing}"
    code, out, err = finished(rig.start(listing, sidecar, DEMO_TOPIC, f"never {listing}", key))
    assert (code, out) == (_TRY_LATER, ""), err
    *attempts, last = err.splitlines()
    assert key in last
    assert len(attempts) == 8
    for line in attempts:  # each with the reason and the port; curl has other words than the others
        assert re.search(r"\(stored: no\): .*(refused|[Cc]ould(n't| not) connect)", line)
        assert str(sidecar.api_port) in line


def first_complaint(process: subprocess.Popen[str]) -> str:
    """The first line of its standard error: an attempt has failed."""
    assert process.stderr is not None
    return process.stderr.readline()


_CASES: Final[Mapping[str, Callable[[Rig, str, Sidecar], None]]] = {
    "200": _is_acknowledged,
    "any text": _sends_any_text_as_it_is,
    "the same key": _repeats_under_its_key,
    "400 and 404": _stops_at_its_own_mistakes,
    "wrong arguments": _needs_a_topic_and_a_text_of_unicode,
    "another server": _stops_where_no_sidecar_answers,
    "a lost answer": _repeats_what_it_sent_if_an_answer_is_lost,
    "429": _waits_for_room,
    "503": _waits_for_a_broker,
    "504": _asks_again_after_an_unknown_outcome,
    "connection refused": _waits_for_the_sidecar,
    "no sidecar": _gives_up_with_its_key,
}


def test_the_pages_look_ups_name_the_new_leader_after_a_stop(rig: Rig, shared: SharedSidecar) -> None:
    """Both commands of "Which broker leads", with the first one's leader stopped in between."""
    need("send.sh")
    sidecar = shared.running()
    commands = re.findall(
        r"^curl -s '(\S+/leader\?\S+)'; echo$", _PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    first, second = (
        ["curl", "-s", "--noproxy", "*", url.replace("http://127.0.0.1:8085", sidecar.api_url)]
        for url in commands
    )
    before = json.loads(subprocess.check_output(first, timeout=_TIMEOUT_S))["leader"]["id"]
    rig.cluster.kafka.kill(before)
    try:
        after = json.loads(subprocess.check_output(second, timeout=_TIMEOUT_S))["leader"]["id"]
        assert after not in {before, None}
    finally:
        rig.cluster.kafka.revive(before)


def test_no_example_needs_a_variable_that_a_sidecar_would_refuse() -> None:
    """A pod's environment may be for both. A sidecar refuses an unknown variable that begins like its own."""
    examples = [path for path in (_FOLDER.parent).rglob("*") if path.is_file()]
    assert [path.name for path in examples if b"PILOTFISH_" in path.read_bytes()] == []
    named = re.findall(r"PILOTFISH_(\w+)", _PAGE.read_text(encoding="utf-8"))
    assert {name.lower() for name in named} <= set(Settings.model_fields)


def test_every_program_that_the_page_links_is_run() -> None:
    linked = re.findall(r"\(\.\./examples/send/([\w.]+)\)", _PAGE.read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(_RUN) == sorted(path.name for path in _FOLDER.iterdir())


@pytest.mark.parametrize("case", _CASES)
def test_the_shell_listing_does_what_the_page_says(rig: Rig, shared: SharedSidecar, case: str) -> None:
    need("send.sh")
    _CASES[case](rig, "send.sh", shared.running())


@pytest.mark.tools
@pytest.mark.parametrize("case", _CASES)
@pytest.mark.parametrize("listing", sorted(set(_RUN) - {"send.sh"}))
def test_a_listing_in_a_language_of_debian_does_what_the_page_says(
    rig: Rig, shared: SharedSidecar, listing: str, case: str
) -> None:
    need(listing)
    _CASES[case](rig, listing, shared.running())
