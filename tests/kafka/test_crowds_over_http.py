"""Many callers at once on the real brokers: connections stay few, and nobody stands in another's way."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest

from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.conftest import NewTopic
    from tests.support.kraft import KraftCluster

CLIENTS: Final = 50
REQUESTS_EACH: Final = 20

_ESTABLISHED: Final = "01"


@pytest.fixture
def sidecar(kafka: KraftCluster, tmp_path: Path) -> Iterator[Sidecar]:
    with Sidecar(tmp_path, bootstrap_servers=kafka.bootstrap_servers) as running:
        yield running


def connections_to(sidecar: Sidecar, ports: set[int]) -> list[int]:
    """The brokers' ports that the sidecar's process has connections to, once for each connection."""
    own = {
        link.readlink().name.removeprefix("socket:[").rstrip("]")
        for link in Path(f"/proc/{sidecar.process.pid}/fd").iterdir()
        if link.readlink().name.startswith("socket:")
    }
    found = []
    for line in Path(f"/proc/{sidecar.process.pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        port = int(fields[2].split(":")[1], 16)
        if fields[3] == _ESTABLISHED and fields[9] in own and port in ports:
            found.append(port)
    return found


def test_fifty_clients_on_new_connections_share_one_connection_a_broker(
    sidecar: Sidecar, kafka: KraftCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=6, replication_factor=3)
    ports = {int(address.rsplit(":", 1)[1]) for address in kafka.bootstrap_servers.split(",")}

    def client(number: int) -> None:
        for n in range(REQUESTS_EACH):
            body = {"records": [{"value": f"{number}-{n}", "partition": n % 6}]}
            answer = httpx.post(f"{sidecar.api_url}/v1/topics/{topic}/records", json=body, timeout=60)
            assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(client, range(CLIENTS)))
    assert sorted(connections_to(sidecar, ports)) == sorted(ports)
    values = sorted(record.value or b"" for record in kafka.read_back(topic))
    assert values == sorted(b'"%d-%d"' % (c, n) for c in range(CLIENTS) for n in range(REQUESTS_EACH))
