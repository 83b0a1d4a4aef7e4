"""A sidecar in a real cgroup: brokers hang, callers send a megabyte each, and it refuses instead of dying."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster
from tests.support.limited_cgroup import LimitedCgroup
from tests.support.plain_http import NO_TLS
from tests.support.sidecar import Sidecar
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MIB: Final = 1024 * 1024
_CALLERS: Final = 70
_ROUNDS: Final = 4
#: A small request, and megabytes: few large records, as many small ones as the smallest sidecar takes.
_SHAPES: Final = {
    "one small": (1, 100),
    "one record": (1, 1_000_000),
    "large": (1_000, 1_000),
    "small": (8_700, 70),
}
#: Streams of a megabyte, in each form: the path, and a record.
_STREAMS: Final[dict[str, tuple[str, dict[str, object]]]] = {
    "ndjson": ("/v1/topics/orders/records?value_format=text", {"value": "x" * 1_000}),
    "REST v3": (
        "/v3/clusters/{cluster}/topics/orders/records",
        {"value": {"type": "STRING", "data": "x" * 1_000}},
    ),
}
_STREAMED_PIECES: Final = 10
#: As many as there may be streams, and as many callers with a body of a megabyte.
_STREAM_CALLERS: Final = 100
#: More than a sidecar with little memory accepts, and what each sends.
_CONNECTED: Final = 4_500
_LONG_HEAD: Final = b" HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000
_WAITING: Final = b'{"records":[{"value":"x"}]}'
_CONNECTIONS: Final = {
    "heads": b"GET /v1/topics" + _LONG_HEAD,
    "admin heads": b"GET /metrics" + _LONG_HEAD,
    "waiting requests": b"POST /v1/topics/orders/records?timeout_ms=10000 HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_WAITING), _WAITING),
}
#: Callers that keep a tenth of a processor busy for some ten seconds.
_BUSY_CALLERS: Final = 8
_BUSY_CALLS: Final = 600


@pytest.fixture(params=[96, 128, 256])
def limited(request: pytest.FixtureRequest) -> Iterator[LimitedCgroup]:
    with LimitedCgroup(memory_bytes=request.param * _MIB) as group:
        yield group


@contextlib.contextmanager
def running(limited: LimitedCgroup, folder: Path) -> Iterator[tuple[FakeCluster, Sidecar]]:
    """A ready sidecar in a cgroup, and its brokers, which have a topic."""
    with FakeCluster(3) as cluster:
        cluster.create_topic("orders", partitions=6)
        with Sidecar(folder, bootstrap_servers=cluster.bootstrap_servers, program=limited.program) as sidecar:
            wait_until(lambda: sidecar.admin.get("/readyz").is_success, what="a sidecar that is ready")
            yield cluster, sidecar


def call(url: str, shape: str, **query: str) -> int:
    records, size = _SHAPES[shape]
    body = json.dumps({"value_format": "text", "records": [{"value": "x" * size}] * records}).encode()
    with httpx.Client(verify=NO_TLS, timeout=120) as client:
        head = {"content-type": "application/json"}
        return client.post(
            f"{url}/v1/topics/orders/records", content=body, params=query, headers=head
        ).status_code


@pytest.mark.parametrize("shape", ["large", "one record", "small"])
def test_callers_are_refused_while_brokers_hang_and_served_when_they_are_back(
    limited: LimitedCgroup, shape: str, tmp_path: Path
) -> None:
    with running(limited, tmp_path) as (cluster, sidecar):
        assert sidecar.log().count("for the memory limit of ") == 1
        hold = cluster.hold_next(ApiKey.PRODUCE, times=100_000)
        with ThreadPoolExecutor(_CALLERS) as callers:
            codes = list(
                callers.map(
                    lambda _: call(sidecar.api_url, shape, timeout_ms="5000", max_block_ms="4000"),
                    range(_ROUNDS * _CALLERS),
                )
            )
        assert sidecar.is_running, sidecar.log()
        assert 429 in codes
        assert set(codes) <= {429, 503, 504}
        hold.release()
        wait_until(
            lambda: call(sidecar.api_url, shape) == 200, what="a produce that is acknowledged", every_s=1
        )


def stream(url: str, form: str) -> int:
    """Sends a megabyte of records on an open stream, and reads its answer afterwards."""
    path, record = _STREAMS[form]
    with httpx.Client(verify=NO_TLS, timeout=patient(120)) as client:
        if "{cluster}" in path:
            clusters = client.get(f"{url}/v3/clusters").json()["data"]
            path = path.format(cluster=clusters[0]["cluster_id"])
        piece = (json.dumps(record).encode() + b"\n") * 100
        head = {"content-type": "application/x-ndjson" if form == "ndjson" else "application/json"}
        return client.post(f"{url}{path}", content=iter([piece] * _STREAMED_PIECES), headers=head).status_code


@pytest.mark.parametrize("form", _STREAMS)
def test_streams_beside_large_bodies_do_not_exceed_the_limit(
    limited: LimitedCgroup, form: str, tmp_path: Path
) -> None:
    """Each stream holds reads that nothing counts. Brokers answer, then hang, then answer again."""
    with (
        running(limited, tmp_path) as (cluster, sidecar),
        ThreadPoolExecutor(2 * _STREAM_CALLERS) as callers,
    ):
        for hangs in (False, True, False):
            hold = cluster.hold_next(ApiKey.PRODUCE, times=100_000) if hangs else None
            streams = [callers.submit(stream, sidecar.api_url, form) for _ in range(_STREAM_CALLERS)]
            bodies = [
                callers.submit(call, sidecar.api_url, "large", timeout_ms="5000", max_block_ms="4000")
                for _ in range(_STREAM_CALLERS)
            ]
            codes = [one.result() for one in bodies]
            assert sidecar.is_running, sidecar.log()
            if hold is not None:
                assert 200 not in codes
                hold.release()
            streamed = [one.result() for one in streams]
            assert sidecar.is_running, sidecar.log()
            assert 200 in streamed
            assert set(streamed) <= {200, 429}


def test_streams_whose_callers_read_nothing_do_not_exceed_the_limit(
    limited: LimitedCgroup, tmp_path: Path
) -> None:
    """The outcomes of small records take more memory than the records did."""
    lines = b'{"value":"a"}\n' * 2_000
    head = (
        b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    def send(port: int) -> None:
        """Until nothing more is taken, or the connection is cut."""
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            caller.settimeout(patient(2))
            caller.connect(("127.0.0.1", port))
            with contextlib.suppress(TimeoutError, ConnectionError):
                caller.sendall(head)
                while True:
                    caller.sendall(b"%x\r\n%b\r\n" % (len(lines), lines))

    with running(limited, tmp_path) as (_, sidecar):
        with ThreadPoolExecutor(_STREAM_CALLERS) as callers:
            list(callers.map(send, [sidecar.api_port] * _STREAM_CALLERS))
        assert sidecar.is_running, sidecar.log()
        wait_until(lambda: call(sidecar.api_url, "one small") == 200, what="a produce that is acknowledged")


def is_alive(sidecar: Sidecar) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return sidecar.admin.get("/livez").is_success
    return False


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process have as many open files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    ("limited", "what"),
    [(96, "heads"), (256, "heads"), (96, "admin heads"), (96, "waiting requests")],
    indirect=["limited"],
)
def test_no_number_of_connections_exceeds_the_limit(
    limited: LimitedCgroup, what: str, tmp_path: Path
) -> None:
    """Requests that wait, and heads without an end. Then all is as before."""
    sent = _CONNECTIONS[what]
    with running(limited, tmp_path) as (cluster, sidecar):
        hold = cluster.hold_next(ApiKey.PRODUCE, times=100_000)
        port = sidecar.admin.base_url.port if what.startswith("admin") else sidecar.api_port
        assert port is not None
        with contextlib.ExitStack() as callers:
            for _ in range(_CONNECTED):
                caller = callers.enter_context(socket.create_connection(("127.0.0.1", port)))
                caller.setblocking(False)
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    caller.send(sent)
            wait_until(lambda: is_alive(sidecar), what="a probe that has its turn")
            assert sidecar.is_running, sidecar.log()
        hold.release()
        wait_until(lambda: call(sidecar.api_url, "one small") == 200, what="a produce that is acknowledged")


def test_a_tenth_of_a_processor_is_enough_to_start_and_for_the_probes_under_load(tmp_path: Path) -> None:
    """The chart's startup probe gives it 60 s and each liveness probe 5 s."""
    with (
        LimitedCgroup(cpus=0.1) as group,
        FakeCluster(3) as cluster,
        Sidecar(tmp_path, bootstrap_servers=cluster.bootstrap_servers, program=group.program) as sidecar,
        ThreadPoolExecutor(_BUSY_CALLERS) as callers,
    ):
        cluster.create_topic("orders", partitions=6)
        wait_until(
            lambda: sidecar.admin.get("/startupz").is_success, what="a sidecar that has started", timeout_s=60
        )
        produced = [callers.submit(call, sidecar.api_url, "one small") for _ in range(_BUSY_CALLS)]
        while not all(one.done() for one in produced):
            assert sidecar.admin.get("/livez", timeout=patient(5)).is_success
        assert {one.result() for one in produced} == {200}
