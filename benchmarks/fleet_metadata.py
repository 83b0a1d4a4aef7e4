"""Counts what a fleet of busy sidecars costs the brokers: Metadata requests, and bytes of all responses.

    python -m benchmarks.fleet_metadata          30 sidecars, 60 seconds

Each sidecar is a process of its own, and looks up five topics of 20 partitions, one topic each 200 ms. The
brokers are fake ones, in this process. Nothing is timed: the figures hold on a slow machine, too, as long as
it keeps up with the look-ups, which the last line shows. Not part of `make bench`.
"""

from __future__ import annotations

import http.client
import time
import urllib.request
from contextlib import ExitStack
from itertools import cycle
from typing import Final, NamedTuple

from benchmarks.load import free_port, process
from benchmarks.sidecar import serve_command
from client_core.protocol.api_keys import ApiKey
from client_core.testing import FakeCluster

SIDECARS: Final = 30
SECONDS: Final = 60
_EACH_S: Final = 0.2
_TOPICS: Final = [f"topic-{n}" for n in range(5)]
_RECEIVED: Final = "pilotfish_network_received_bytes_total"


class Counted(NamedTuple):
    """What has arrived at the brokers, and what they have answered, so far."""

    requests: int
    response_bytes: float


def counted(cluster: FakeCluster, admin_ports: list[int]) -> Counted:
    """Returns the counts of the whole fleet."""
    received = 0.0
    for port in admin_ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        received += sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_RECEIVED))
    return Counted(len(cluster.requests(ApiKey.METADATA)), received)


def look_up(callers: list[http.client.HTTPConnection]) -> int:
    """Looks up a topic by each sidecar, each 200 ms, for a minute. Returns the number of look-ups."""
    topics, done = cycle(_TOPICS), 0
    begun_s = time.monotonic()
    for turn in range(int(SECONDS / _EACH_S)):
        topic = next(topics)
        for caller in callers:
            caller.request("GET", f"/v1/topics/{topic}")
            answer = caller.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            done += 1
        time.sleep(max(begun_s + (turn + 1) * _EACH_S - time.monotonic(), 0))
        if time.monotonic() - begun_s > SECONDS:
            break
    return done


def main() -> None:
    """Prints the counts, and what they are for a thousand sidecars in an hour."""
    with ExitStack() as stack:
        cluster = stack.enter_context(FakeCluster(3))
        for topic in _TOPICS:
            cluster.create_topic(topic, partitions=20, replication_factor=3)
        callers, admin_ports = [], []
        for _ in range(SIDECARS):
            api, admin = free_port(), free_port()
            command = serve_command(api, admin, cluster.bootstrap_servers, warm_topics=_TOPICS)
            stack.enter_context(process(command, admin, "/readyz"))
            callers.append(http.client.HTTPConnection("127.0.0.1", api))
            admin_ports.append(admin)
        before = counted(cluster, admin_ports)
        begun_s = time.monotonic()
        look_ups = look_up(callers)
        took_s = time.monotonic() - begun_s
        after = counted(cluster, admin_ports)
    requests, received = after.requests - before.requests, after.response_bytes - before.response_bytes
    an_hour = 3_600 / took_s * 1_000 / SIDECARS
    print(f"{SIDECARS} sidecars, {took_s:.0f} s: {requests:,} Metadata requests, {received / 1e6:.2f} MB")
    print(f"1,000 sidecars, an hour: {requests * an_hour:,.0f} requests, {received * an_hour / 1e9:.2f} GB")
    print(f"{look_ups:,} look-ups of {SIDECARS * int(SECONDS / _EACH_S):,}")


if __name__ == "__main__":
    main()
