"""A container of the image beside brokers, as a pod would have it: how it starts, serves, and ends.

Its settings come from a mounted folder, as a ConfigMap's, and from the environment. Ports are free ones of
this machine, whose network it has. Raises AssertionError where it does not do what it should.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import httpx

from client_core.testing.free_ports import free_ports
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from tests.deploy.image_builder import ImageConfig
    from tests.deploy.oci_container import Container, ContainerRuntime
    from tests.support.kraft import KraftCluster

CONFIG_FOLDER: Final = "/etc/pilotfish"

_START_TIMEOUT_S: Final = 60
#: Far beyond the check: only the flush of the shutdown can send records that linger so.
_LONG_LINGER_MS: Final = 60_000
#: The line of `python -v` about a module that it had to compile from its source.
_COMPILED: Final = re.compile(r"^# code object from '?(\S+\.py)'?$", re.MULTILINE)


class Running(NamedTuple):
    """A container that is ready, where it listens, and how long that took from the runtime's call on."""

    container: Container
    api: httpx.Client
    ready_s: float


class ImageLife:
    """The image's root, and the brokers it is to be run beside."""

    def __init__(
        self, runtime: ContainerRuntime, image: ImageConfig, root: Path, kafka: KraftCluster, folder: Path
    ) -> None:
        """`folder` takes the configuration."""
        self._runtime = runtime
        self._image = image
        self._root = root
        self._kafka = kafka
        self._folder = folder

    @contextmanager
    def running(
        self, kafka_settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
    ) -> Generator[Running, None, None]:
        """A container that /startupz has said yes of, on real brokers: it knows their metadata."""
        api_port, admin_port = free_ports(2)
        settings = {"bootstrap.servers": self._kafka.bootstrap_servers, **(kafka_settings or {})}
        lines = [f'{name} = "{value}"' for name, value in settings.items()]
        self._folder.mkdir(exist_ok=True)
        (self._folder / "pilotfish.toml").write_text("\n".join(["[kafka]", *lines, ""]))
        ours = {
            "PILOTFISH_CONFIG": f"{CONFIG_FOLDER}/pilotfish.toml",
            "PILOTFISH_API_PORT": str(api_port),
            "PILOTFISH_ADMIN_PORT": str(admin_port),
        }
        called_s = time.monotonic()
        with (
            self._runtime.start(
                self._image,
                self._root,
                environment={**ours, **(environment or {})},
                files={CONFIG_FOLDER: self._folder},
            ) as container,
            httpx.Client(base_url=f"http://127.0.0.1:{api_port}", timeout=60) as api,
        ):
            _wait_until_started(container, f"http://127.0.0.1:{admin_port}/startupz")
            yield Running(container, api, time.monotonic() - called_s)

    def serves(self, topic: str) -> float:
        """Looks up, produces, is healthy and restricted, and ends with 0; the seconds until it was ready."""
        with self.running() as (container, api, ready_s):
            leader = api.get(f"/v1/topics/{topic}/leader", params={"partition": 0})
            assert leader.status_code == 200, f"a look-up is answered {leader.status_code}: {leader.text}"
            _produce(api, topic, ["served"])
            _is_restricted(container, self._image, seccomp=self._runtime.seccomp is not None)
            code, said = container.execute(*self._image.healthcheck[1:])
            assert code == 0, f"HEALTHCHECK of a healthy container ends with {code}: {said}"
            code, said = container.execute("env", "PILOTFISH_ADMIN_PORT=1", *self._image.healthcheck[1:])
            assert code == 1, f"HEALTHCHECK where nobody answers ends with {code}: {said}"
            code, said = container.execute("touch", "/opt/pilotfish/written", "/etc/written")
            assert code == 1, "the root can be written to"
            assert said.count("Read-only file system") == 2, said
            code = container.terminate(self._image.stop_signal)
            assert code == 0, f"it ends with {code} after {self._image.stop_signal}:\n{container.log()}"
        return ready_s

    def drains(self, topic: str) -> None:
        """After SIGTERM it delivers and answers what it had accepted before, and ends with 0."""
        settings = {"linger.ms": str(_LONG_LINGER_MS), "delivery.timeout.ms": str(2 * _LONG_LINGER_MS)}
        with (
            self.running(settings) as (container, api, _),
            ThreadPoolExecutor(max_workers=1) as callers,
        ):
            asked = callers.submit(_produce, api, topic, ["drained 1", "drained 2"])
            wait_until(
                lambda: api.get("/v1/status").json()["buffer"]["records"] == 2, what="two lingering records"
            )
            code = container.terminate(self._image.stop_signal)
            assert code == 0, f"it ends with {code}:\n{container.log()}"
            asked.result(timeout=10)

    def memory_kib(self, topic: str, requests: int) -> tuple[int, int]:
        """KiB of memory that are its own: once it has started, and after as many produces of ten records."""
        with self.running() as (container, api, _):
            at_start = _resident_kib(container)
            for number in range(requests):
                _produce(api, topic, [f"{number}"] * 10)
            return at_start, _resident_kib(container)

    def compiled_at_start(self) -> list[str]:
        """The Python files that a start compiles, because there is no bytecode that it could read."""
        with self.running(environment={"PYTHONVERBOSE": "1"}) as (container, _, _):
            return sorted(set(_COMPILED.findall(container.log())))


def _wait_until_started(container: Container, url: str) -> None:
    with httpx.Client(timeout=5) as prober:

        def started() -> bool:
            code = container.process.poll()
            assert code is None, f"the container ended with {code}:\n{container.log()}"
            try:
                return prober.get(url).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(
            started,
            what="a container that has started",
            timeout_s=_START_TIMEOUT_S,
            every_s=0.005,
            last_seen=container.log,
        )


def _produce(api: httpx.Client, topic: str, values: list[str]) -> None:
    body = {"records": [{"value": value} for value in values], "value_format": "text"}
    answer = api.post(f"/v1/topics/{topic}/records", json=body)
    assert answer.status_code == 200, f"a produce is answered {answer.status_code}: {answer.text}"


def _is_restricted(container: Container, image: ImageConfig, *, seccomp: bool) -> None:
    """Checks the first process by the kernel's view: it is the program itself, and has no capability."""
    uid, _, gid = image.user.partition(":")
    expected = {
        "Uid": f"{uid}\t" * 3 + uid,
        "Gid": f"{gid}\t" * 3 + gid,
        "CapEff": "0" * 16,
        "CapBnd": "0" * 16,
        "NoNewPrivs": "1",
        "Seccomp": "2" if seccomp else "0",
    }
    found = {field: container.status(field) for field in expected}
    assert found == expected, f"the first process is {found}, and should be {expected}"
    code, said = container.execute("readlink", "/proc/1/exe")
    assert code == 0, said
    assert "python3" in said, f"the container's first process is {said}"


def _resident_kib(container: Container) -> int:
    return int(container.status("VmRSS").split()[0])
