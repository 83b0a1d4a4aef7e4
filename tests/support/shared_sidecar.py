"""One sidecar for tests that don't change it: its start takes longer than most of them.

    with SharedSidecar(folder, kafka, limits={"listing_max_age_ms": 0}) as shared:
        shared.running().api.get("/v1/cluster")

A test may end it or any of its brokers: the next test gets another one. A test of a shared sidecar must not
look at values of its whole life, such as counters. One thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from tests.support.sidecar import Sidecar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Brokers(Protocol):
    """What a sidecar is connected to, and how often that was disturbed so far: a KraftCluster."""

    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def disturbances(self) -> int: ...


class SharedSidecar:
    """A module's sidecar. `settings` are producer settings by Kafka's names, `flags` and `limits` its own."""

    def __init__(
        self,
        folder: Path,
        kafka: Brokers,
        *,
        settings: Mapping[str, str] | None = None,
        flags: Sequence[str] = (),
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._folder: Final = folder
        self._kafka: Final = kafka
        self._settings: Final = settings
        self._flags: Final = flags
        self._limits: Final = limits
        self._started = 0
        self._disturbances = 0
        self._sidecar: Sidecar | None = None

    def __enter__(self) -> SharedSidecar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._sidecar is not None:
            self._sidecar.__exit__()
            self._sidecar = None

    def running(self) -> Sidecar:
        """The one that runs; another where it has ended, or brokers were disturbed since it was started."""
        sidecar = self._sidecar
        if sidecar is None or not sidecar.is_running or self._disturbances != self._kafka.disturbances:
            self.__exit__()
            sidecar = self._sidecar = self._start()
        return sidecar

    def _start(self) -> Sidecar:
        self._started += 1
        self._disturbances = self._kafka.disturbances
        folder = self._folder / f"sidecar-{self._started}"
        folder.mkdir()
        return Sidecar(
            folder,
            bootstrap_servers=self._kafka.bootstrap_servers,
            kafka=self._settings,
            flags=self._flags,
            limits=self._limits,
        ).__enter__()
