"""Runs a sidecar in its own process with production settings, and queries it for benchmarks.

with sidecar(bootstrap_servers, kafka={"linger.ms": "0"}, warm_topics=["orders"]) as ours:
    ours.get("/v1/topics/orders")
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from benchmarks.load import free_port, process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PATIENCE_S: Final = 60.0
_NO_SETTINGS: Final[Mapping[str, str]] = {}


def serve_command(
    api_port: int,
    admin_port: int,
    bootstrap_servers: str | None,
    kafka: Mapping[str, str] = _NO_SETTINGS,
    warm_topics: Sequence[str] = (),
    module: str = "service",
) -> list[str]:
    """Returns the arguments for Python. Without bootstrap servers it runs with a Kafka inside its process."""
    settings = dict(kafka) if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers, **kafka}
    return [
        *("-m", module, "serve", "--api-port", str(api_port), "--admin-port", str(admin_port)),
        *(("--embedded",) if bootstrap_servers is None else ()),
        *(word for name, value in settings.items() for word in ("--kafka", f"{name}={value}")),
        *(word for name in warm_topics for word in ("--warm-topics", name)),
    ]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A running sidecar."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> bytes:
        """Returns the body of a 200. Ends the benchmark with a plain message on any other answer."""
        return self._ask(path)[1]

    def etag(self, path: str) -> str:
        """Returns the ETag of a 200."""
        return self._ask(path)[0]

    def metadata(self) -> dict[str, int]:
        """Returns the metadata part of /v1/status: update_version, topics, partitions …"""
        reported: dict[str, Any] = json.loads(self.get("/v1/status"))
        found: dict[str, int] = reported["metadata"]
        return found

    def await_partitions(self, count: int) -> None:
        """Waits until it knows `count` partitions."""
        give_up_s = time.monotonic() + _PATIENCE_S
        while (known := self.metadata()["partitions"]) < count:
            if time.monotonic() > give_up_s:
                raise SystemExit(f"the sidecar knows {known} of {count} partitions after {_PATIENCE_S:g} s")
            time.sleep(0.05)

    def _ask(self, path: str) -> tuple[str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise SystemExit(f"the sidecar answered {path} with {answer.status}: {body[:500]!r}")
        return answer.headers.get("etag", ""), body


@contextlib.contextmanager
def sidecar(
    bootstrap_servers: str | None,
    kafka: Mapping[str, str] = _NO_SETTINGS,
    warm_topics: Sequence[str] = (),
    module: str = "service",
    **environment: str,
) -> Iterator[Sidecar]:
    """Yields a sidecar that is ready; it ends with the block."""
    api, admin = free_port(), free_port()
    command = serve_command(api, admin, bootstrap_servers, kafka, warm_topics, module)
    with process(command, admin, "/readyz", **environment) as server:
        yield Sidecar(api, server.pid)
