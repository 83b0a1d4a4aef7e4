"""Producers that are forked, dropped, or never closed: no record is lost without a report, and none hangs.

Each life is a process of its own, `programs.py`, on this Python or on another one (`--python`; `make lives`
takes all that this machine has). A life that hangs is ended by the test's own timeout.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from client_core import KafkaProducer, ProducerConfig
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.lives.programs import RECORDS, TOPIC, public_calls
from tests.support.certificates import Authority
from tests.support.tcp_peers import ScriptedPeer, stay_silent
from tests.support.tls_peers import server_context
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[2]
_PROGRAMS: Final = Path(__file__).with_name("programs.py")

#: The log line about undelivered records, on stderr, since the programs set up no logging.
_LOST: Final = re.compile(
    r"^(\d+) records that the producer \S+ had accepted were not delivered", re.MULTILINE
)

#: A bounded flush of a broker that does not answer.
_BRIEF: Final = "exit.flush.timeout.ms=100"

#: How a program that sends and does not close may end, and its exit code.
_ENDS: Final = {
    "end_of_main": 0,
    "sys_exit": 3,
    "uncaught_exception": 1,
    "interrupted": -signal.SIGINT,
    "sent_by_a_thread_that_outlives_main": 0,
    "dropped_at_the_end": 0,
    "own_producer_in_a_forked_child": 0,
    "own_producer_in_multiprocessing_fork": 0,
    "own_producer_in_multiprocessing_spawn": 0,
    "own_producer_in_multiprocessing_forkserver": 0,
}


class Ended(NamedTuple):
    """The output and the exit code of a life."""

    code: int
    out: str
    err: str

    @property
    def lost(self) -> list[int]:
        """The numbers of records that it said were lost."""
        return [int(number) for number in _LOST.findall(self.err)]

    def said(self, what: str) -> list[str]:
        """What follows `what` on the lines of stdout that begin with it."""
        return [line[len(what) + 1 :] for line in self.out.splitlines() if line.startswith(f"{what} ")]


@pytest.fixture
def python(pytestconfig: pytest.Config) -> str:
    return str(pytestconfig.getoption("--python") or sys.executable)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


@contextmanager
def living(python: str, life: str, cluster: FakeCluster, *settings: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [python, str(_PROGRAMS), life, cluster.bootstrap_servers, *settings],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lived(python: str, life: str, cluster: FakeCluster, *settings: str) -> Ended:
    with living(python, life, cluster, *settings) as process:
        out, err = process.communicate()
        return Ended(process.returncode, out, err)


def delivered(cluster: FakeCluster) -> int:
    return len(cluster.records(TOPIC))


# -- the end of the process ----------------------------------------------------------------------------------


@pytest.mark.behaviour("LIFE-02", "LIFE-03")
@pytest.mark.parametrize(("life", "code"), _ENDS.items(), ids=list(_ENDS))
def test_a_process_that_ends_without_close_delivers_what_was_sent(
    python: str, cluster: FakeCluster, life: str, code: int
) -> None:
    ended = lived(python, life, cluster)
    assert (delivered(cluster), ended.lost, ended.code) == (RECORDS, [], code), ended.err


@pytest.mark.behaviour("LIFE-03")
@pytest.mark.parametrize(("life", "code"), _ENDS.items(), ids=list(_ENDS))
def test_records_that_a_broker_does_not_answer_in_time_are_counted_and_the_process_ends(
    python: str, cluster: FakeCluster, life: str, code: int
) -> None:
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    ended = lived(python, life, cluster, _BRIEF)
    assert (ended.lost, ended.code) == ([RECORDS], code), ended.err


def test_without_a_broker_the_process_ends_too_and_counts_the_parked_records(
    python: str, cluster: FakeCluster
) -> None:
    cluster.kill(1)
    ended = lived(python, "submitted", cluster, _BRIEF)
    assert (ended.lost, ended.code) == ([RECORDS], 0), ended.err


def test_parked_records_are_delivered_or_counted_as_lost(python: str, cluster: FakeCluster) -> None:
    ended = lived(python, "submitted", cluster)
    assert delivered(cluster) + sum(ended.lost) == RECORDS, ended.err


def test_with_a_timeout_of_0_nothing_is_waited_for_and_all_are_counted_as_lost(
    python: str, cluster: FakeCluster
) -> None:
    ended = lived(python, "end_of_main", cluster, "exit.flush.timeout.ms=0")
    assert (ended.lost, ended.code) == ([RECORDS], 0), ended.err


def test_each_producer_is_flushed_and_reported(python: str, cluster: FakeCluster) -> None:
    assert lived(python, "two_producers", cluster).lost == []
    assert delivered(cluster) == 2 * RECORDS
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    assert lived(python, "two_producers", cluster, _BRIEF).lost == [RECORDS, RECORDS]


def test_an_interrupt_ends_the_flush_of_the_end_but_not_its_report(python: str, cluster: FakeCluster) -> None:
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    ended = lived(python, "interrupted_twice", cluster, "exit.flush.timeout.ms=3600000")
    assert (ended.lost, ended.code) == ([RECORDS], -signal.SIGINT), ended.err


def test_a_thread_that_does_not_come_back_is_not_waited_for_and_its_records_are_counted_as_lost(
    python: str, cluster: FakeCluster
) -> None:
    ended = lived(python, "stuck_in_a_callback", cluster, _BRIEF, "linger.ms=0")
    # The one whose callback runs is acknowledged, and none of them.
    assert (ended.lost, ended.code) == ([RECORDS], 0), ended.err


def test_an_interrupted_close_counts_what_it_gave_up(python: str, cluster: FakeCluster) -> None:
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    ended = lived(python, "interrupted_close", cluster)
    assert (ended.lost, ended.code) == ([RECORDS], -signal.SIGINT), ended.err


@pytest.mark.behaviour("LIFE-03")
@pytest.mark.parametrize(
    "life", ["interrupted_close_of_an_async_producer", "interrupted_loop_of_an_async_producer"]
)
def test_an_interrupted_close_on_an_event_loop_counts_what_the_end_of_the_process_gave_up(
    python: str, cluster: FakeCluster, life: str
) -> None:
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    ended = lived(python, life, cluster, _BRIEF)
    assert (ended.lost, ended.code) == ([RECORDS], -signal.SIGINT), ended.err


def test_a_producer_that_was_closed_is_not_flushed_again_and_nothing_is_said(
    python: str, cluster: FakeCluster
) -> None:
    ended = lived(python, "closed_in_time", cluster)
    assert (ended.out, ended.err, ended.code) == ("flushed True\n", "", 0)
    cluster.hold_next(ApiKey.PRODUCE, times=9)
    ended = lived(python, "closed_too_soon", cluster)
    assert (ended.out, ended.err, ended.code) == (f"flushed False {RECORDS}\n", "", 0)


def test_the_exit_waits_5_seconds_by_default() -> None:
    config = ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092"})
    assert config.exit_flush_timeout_ms == 5_000


# -- garbage -------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("LIFE-02")
@pytest.mark.parametrize("life", ["dropped", "dropped_in_a_cycle"])
def test_a_producer_that_is_dropped_sends_what_it_has_and_leaves_no_thread_and_no_descriptor(
    python: str, cluster: FakeCluster, life: str
) -> None:
    ended = lived(python, life, cluster)
    assert (delivered(cluster), ended.lost, ended.code) == (RECORDS, [], 0), ended.err
    assert "ResourceWarning: unclosed <KafkaProducer producer-1 RUNNING>" in ended.err
    assert ended.said("producer gone") == ["True thread gone True"]
    assert ended.said("descriptors") == ended.said("before")


def test_a_producer_that_never_began_frees_its_descriptors_and_counts_its_records_as_lost(
    python: str, cluster: FakeCluster
) -> None:
    ended = lived(python, "dropped_before_it_was_started", cluster)
    assert (ended.lost, ended.code) == ([RECORDS], 0), ended.err
    assert "ResourceWarning" not in ended.err
    assert ended.said("descriptors") == ended.said("before")


# -- fork ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("LIFE-01")
def test_the_child_of_a_fork_is_refused_by_every_call_whatever_locks_were_held(
    python: str, cluster: FakeCluster
) -> None:
    ended = lived(python, "forked_while_locks_are_held", cluster)
    assert ended.said("child ended with") == ["0"], ended.err
    said = dict(line.split(" ", 2)[1:] for line in ended.out.splitlines() if line.startswith("child "))
    refused = {name for name, what in said.items() if what.startswith("IllegalStateError: <")}
    futures = {"future.done", "future.result", "future.exception", "future.add_done_callback"}
    assert refused == _public_names() | futures
    assert all("Make a new KafkaProducer in the child" in said[name] for name in refused)
    assert {name: what for name, what in said.items() if name not in refused | {"ended"}} == {
        "done_before.result": "returned 0",
        "ticket.cancel": "returned None",
        "repr": "returned '<KafkaProducer producer-1 FORKED> <FutureRecordMetadata pending>'",
        "close": "returned CloseReport(unacknowledged=(), failed_earlier=0)",
        "__exit__": "returned None",
        "own.send": "returned False",
        "own.close": "returned True",
    }


def _public_names() -> set[str]:
    """What may be called on a producer, `close` and the end of a `with` excepted."""
    public = {name for name in vars(KafkaProducer) if not name.startswith("_")}
    return (public | {"__enter__"}) - {"close"}


def test_the_parent_goes_on_as_if_there_had_been_no_fork(python: str, cluster: FakeCluster) -> None:
    ended = lived(python, "forked_while_locks_are_held", cluster)
    assert ended.said("parent flushed") == ["True pending 2"]
    values = [record.value for record in cluster.records(TOPIC)]
    assert values == [b"acknowledged", b"of the child's own", b"lingers", b"of the parent"]


@pytest.mark.parametrize("life", ["forked_and_the_child_exits", "forked_in_a_thread", "forked_in_a_callback"])
@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_the_end_of_a_child_costs_the_parent_no_connection(
    python: str, tmp_path: Path, life: str, tls: bool
) -> None:
    authority = Authority()
    trust = authority.write_trust(tmp_path / "trust.pem")
    settings = ("security.protocol=SSL", f"ssl.truststore.location={trust}") if tls else ()
    context = server_context(authority.issue("127.0.0.1")) if tls else None
    with FakeCluster(brokers=1, tls=context) as cluster:
        cluster.create_topic(TOPIC)
        ended = lived(python, life, cluster, *settings)
        assert ended.said("parent flushed") == ["True"], ended.err
        assert ended.said("child ended with") == ["7" if life == "forked_and_the_child_exits" else "0"]
        assert ended.lost == []
        assert delivered(cluster) == RECORDS + (life == "forked_in_a_callback")
        connections = len(cluster.requests(ApiKey.API_VERSIONS))
        lived(python, "closed_in_time", cluster, *settings)
        assert connections == len(cluster.requests(ApiKey.API_VERSIONS)) - connections


def test_a_connection_ends_with_the_parents_close_while_a_child_lives(
    python: str, cluster: FakeCluster
) -> None:
    with living(python, "connections_end_with_the_parents_close", cluster) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "closed\n"
        wait_until(lambda: cluster.connections(1) == 0, what="the ends of the parent's connections")
        out, err = process.communicate("\n")
    assert out == "child ended with 0\n", err


@pytest.mark.behaviour("LIFE-01")
def test_the_child_of_a_fork_lets_go_of_the_connection_that_asks_for_a_token(
    python: str, cluster: FakeCluster
) -> None:
    asked = threading.Event()

    def silent(connection: socket.socket) -> None:
        connection.recv(65_536)
        asked.set()
        stay_silent(connection)

    with ScriptedPeer(silent) as endpoint:
        settings = (
            "security.protocol=SASL_PLAINTEXT",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.oauthbearer.token.endpoint.url=http://127.0.0.1:{endpoint.address[1]}/token",
            "sasl.oauthbearer.client.credentials.client.id=pilot",
            "sasl.oauthbearer.client.credentials.client.secret=fish",
            _BRIEF,
        )
        with living(python, "forked_while_a_token_is_asked_for", cluster, *settings) as process:
            assert asked.wait(patient(30))
            out, err = process.communicate("\n")
    parent, sockets, refused, ended = out.splitlines()
    assert (parent, sockets, ended) == ("parent sockets True", "child sockets []", "child ended with 0"), err
    assert refused.startswith("child send IllegalStateError: <KafkaProducer "), err
    assert refused.endswith("Make a new KafkaProducer in the child, after the fork.")


def test_the_calls_that_a_child_tries_are_those_that_there_are() -> None:
    producer = KafkaProducer(ProducerConfig.from_mapping({"bootstrap.servers": "localhost:9092"}))
    try:
        assert public_calls(producer).keys() == _public_names()
    finally:
        producer.close()
