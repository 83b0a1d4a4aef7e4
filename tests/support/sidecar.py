"""A sidecar as a user runs it: `pilotfish serve` in a process of its own, called over HTTP only.

    with Sidecar(folder, bootstrap_servers=kafka.bootstrap_servers) as sidecar:
        sidecar.api.get("/v1/cluster")

What it logs is in `log()`, and in the failure's text where it does not come up. `terminate()` sends SIGTERM
and gives the exit code. It ends with the test process (tests/support/process_guard.py). One thread steers;
`api` is httpx's.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from client_core.testing.free_ports import free_ports
from tests.support.plain_http import NO_TLS
from tests.support.process_guard import ProcessGuard
from tests.support.waiting import patient, wait_until

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

_ROOT: Final = Path(__file__).parents[2]
START_TIMEOUT_S: Final = patient(30.0)
#: A produce may wait for max.block.ms and delivery.timeout.ms before it is answered.
ANSWER_TIMEOUT_S: Final = patient(190.0)


class Sidecar:
    """One sidecar process. `kafka` are producer settings by Kafka's names, `flags` the sidecar's own.

    `environment` is what it gets on top of ours: settings as a container would have them. `socket_path`
    has it listen there too, for `over_unix`; with `tls` its API is asked over https. `program` is what Python
    runs in place of the sidecar's own `__main__`; with `headers` the API's clients send these each time.
    `limits` are InternalLimits that differ, by their names.
    """

    def __init__(
        self,
        folder: Path,
        *,
        bootstrap_servers: str,
        kafka: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        socket_path: Path | None = None,
        program: Sequence[str] = ("-m", "service"),
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        limits: Mapping[str, int | str] | None = None,
    ) -> None:
        self.folder = folder
        self._log = folder / "sidecar.log"
        self.api_port, self.admin_port = free_ports(2)
        settings = {"bootstrap.servers": bootstrap_servers, **(kafka or {})}
        given = dict(environment or {})
        if limits is not None:
            program = ("-m", "tests.support.limited_sidecar", json.dumps(limits))
            given = {"PYTHONPATH": str(_ROOT), **given}
        self._command = [
            *("env", *(f"{name}={value}" for name, value in given.items())),
            *(sys.executable, *program, "serve"),
            *("--api-port", str(self.api_port), "--admin-port", str(self.admin_port)),
            *(word for name, value in settings.items() for word in ("--kafka", f"{name}={value}")),
            *(() if socket_path is None else ("--api-socket", str(socket_path))),
            *flags,
        ]
        unlimited = httpx.Limits(max_connections=None)
        self._scheme = "http" if tls is None else "https"
        verify = NO_TLS if tls is None else tls
        self.api = httpx.Client(
            base_url=self.api_url, timeout=ANSWER_TIMEOUT_S, limits=unlimited, verify=verify, headers=headers
        )
        self.admin = httpx.Client(
            base_url=f"http://127.0.0.1:{self.admin_port}", timeout=patient(30), verify=NO_TLS
        )
        unix = None if socket_path is None else httpx.HTTPTransport(uds=str(socket_path), verify=NO_TLS)
        self.over_unix = httpx.Client(
            base_url="http://localhost", timeout=patient(30), transport=unix, verify=NO_TLS
        )

    @property
    def api_url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.api_port}"

    def __enter__(self) -> Sidecar:
        self._guard = ProcessGuard()
        self.start()
        return self

    def start(self) -> None:
        """Starts the process, and waits until it answers; again, at the same ports, after it has ended."""
        self.process = self._guard.start(self._command, log=self._log, cwd=self.folder)
        try:
            wait_until(
                self._answers,
                what="a sidecar that answers",
                timeout_s=START_TIMEOUT_S,
                every_s=0.02,
                last_seen=self.log,
            )
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        self.api.close()
        self.admin.close()
        self.over_unix.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=patient(30))
        self._guard.close()

    def _answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the sidecar ended with {self.process.returncode}:\n{self.log()}")
        try:
            return self.admin.get("/livez").status_code == 200 and self.api.get("/v1/status").is_success
        except httpx.TransportError:
            return False

    def log(self) -> str:
        """All that it has written so far."""
        return self._log.read_text() if self._log.exists() else ""

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM; the exit code. Raises TimeoutExpired when it goes on."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=patient(timeout_s))

    def wait_until_it_knows(self, topic: str) -> None:
        """Waits for a topic that was just made: most dialects give an unknown one no more than a second."""
        wait_until(
            lambda: self.api.get(f"/v1/topics/{topic}").is_success,
            what=f"a sidecar that knows topic {topic}",
            last_seen=self.log,
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def metric(self, name: str, **labels: str) -> float | None:
        """The present value of a series, with at least these labels; their sum if there are several."""
        wanted = {f'{label}="{value}"' for label, value in labels.items()}
        found = [
            float(match["value"])
            for match in _SERIES.finditer(self.admin.get("/metrics").text)
            if match["name"] == name and wanted <= set(_LABEL.findall(match["labels"] or ""))
        ]
        return sum(found) if found else None

    def produce(self, topic: str, records: Sequence[Mapping[str, object]], **query: object) -> httpx.Response:
        """Produces with text keys and text values unless `value_format` or `key_format` say otherwise."""
        formats = {name: query.pop(name, "text") for name in ("key_format", "value_format")}
        return self.api.post(
            f"/v1/topics/{topic}/records",
            params={name: str(value) for name, value in query.items()},
            json={"records": list(records), **formats},
        )


_SERIES: Final = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'\w+="[^"]*"')
