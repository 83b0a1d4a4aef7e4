"""Faults that are planted in a simulated sidecar's own parts and files, and the alerts that they fire.

Those of brokers are in `planted.py`. Some are here, for the alerts of the spool and of metadata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client_core import Errors
from client_core.protocol.api_keys import ApiKey
from service.base.settings import InternalLimits
from tests.operations.planted import (
    ALL,
    OFTEN,
    PARTITIONS,
    TOPIC,
    down,
    expire_in,
    no_load,
    refuse,
    refuse_nothing,
    renew,
    silence,
    speak,
    speed_up,
    up,
    usual_load,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.operations.watched import Watched


@dataclass(frozen=True, slots=True)
class Lasting:
    """A fault that is planted for `lasts_s`, so long that its alerts fire. `settings` get a folder.

    `after`: the load once it is healed; None: the same.
    """

    name: str
    plant: Callable[[Watched], None]
    heal: Callable[[Watched], None]
    alerts: tuple[str, ...]
    lasts_s: int = 180
    kafka: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[Path], Mapping[str, Any]] = lambda _: {}
    load: Callable[[Watched, int], None] = usual_load
    after: Callable[[Watched, int], None] | None = None
    since_start: bool = False


def _spool_in(value: str, *, every_s: int = 1) -> Callable[[Watched, int], None]:
    def load(watched: Watched, second: int) -> None:
        if second % every_s == 0:
            record = {"value": value, "partition": second % PARTITIONS}
            watched.call(
                "POST",
                f"/v1/topics/{TOPIC}/records",
                params={"delivery": "spool"},
                json={"value_format": "text", "records": [record]},
            )

    return load


def _spool_folder(folder: Path) -> Mapping[str, Any]:
    return {"spool_folder": str(folder / "spool")}


def _small_spool(folder: Path) -> Mapping[str, Any]:
    return {**_spool_folder(folder), "spool_max_bytes": 1024 * 1024}


def _bad_disk(watched: Watched) -> None:
    watched.disk.fails["fsync"] = OFTEN


def _good_disk(watched: Watched) -> None:
    watched.disk.fails["fsync"] = 0


def _accept_and_requeue(watched: Watched) -> None:
    refuse_nothing(watched)
    assert watched.app.spool is not None
    assert watched.app.spool.requeue(lambda letter: True, lambda result: None)


def _gone(watched: Watched) -> None:
    watched.is_gone = True


def _back(watched: Watched) -> None:
    watched.is_gone = False


def _bug(watched: Watched) -> None:
    """What is raised in the network's `poll` is raised in the I/O thread's turn."""

    def raised(broker_id: int, payload: bytes) -> int:
        raise RuntimeError("a bug")

    watched.network.delay_ms = raised


def _token(folder: Path) -> Mapping[str, Any]:
    (folder / "token").write_text("a" * 40)
    return {"quit_token_file": str(folder / "token")}


def _empty_token(watched: Watched) -> None:
    Path(watched.settings.quit_token_file).write_text("")


def _right_token(watched: Watched) -> None:
    Path(watched.settings.quit_token_file).write_text("b" * 40)


def _events(folder: Path) -> Mapping[str, Any]:
    (folder / "events").mkdir()
    return {
        "events_folder": str(folder / "events"),
        "internal": InternalLimits(events_max_waiting_bytes=4_000, events_file_max_age_ms=10_000),
    }


def _elsewhere(watched: Watched) -> Path:
    return Path(f"{watched.settings.events_folder}-elsewhere")


def _lose_folder(watched: Watched) -> None:
    Path(watched.settings.events_folder).rename(_elsewhere(watched))


def _find_folder(watched: Watched) -> None:
    _elsewhere(watched).rename(watched.settings.events_folder)


OF_THE_SIDECAR: Final = (
    Lasting("a process that is gone", _gone, _back, ("PilotfishDown",)),
    Lasting(
        "brokers that answer no metadata request",
        silence(ApiKey.METADATA, *ALL),
        speak,
        ("MetadataStale",),
        lasts_s=420,
        kafka={"metadata.max.age.ms": "60000"},
    ),
    Lasting("an exception in the I/O thread", _bug, speed_up, ("PollLoopFailing",)),
    Lasting("a certificate that expires in three days", expire_in(3 * 24 * 3600), renew, ("CertExpiring",)),
    Lasting(
        "a token file that is empty",
        _empty_token,
        _right_token,
        ("CredentialReloadFailed",),
        settings=_token,
        after=no_load,
    ),
    Lasting(
        "a folder of events that is gone",
        _lose_folder,
        _find_folder,
        ("EventsDropped",),
        settings=_events,
    ),
    Lasting(
        "a small spool without brokers",
        down(*ALL, elect=False),
        up,
        ("SpoolNearlyFull",),
        settings=_small_spool,
        load=_spool_in("x" * 10_000),
    ),
    Lasting(
        "a spool without brokers for long",
        down(*ALL, elect=False),
        up,
        ("SpoolNotDelivered",),
        lasts_s=1_020,
        settings=_spool_folder,
        load=_spool_in("x", every_s=10),
    ),
    Lasting(
        "a spool whose records brokers refuse",
        refuse(Errors.TOPIC_AUTHORIZATION_FAILED),
        _accept_and_requeue,
        ("SpoolRefused", "SpoolSetAside"),
        settings=_spool_folder,
        load=_spool_in("x"),
    ),
    Lasting(
        "a disk of the spool that fails",
        _bad_disk,
        _good_disk,
        ("SpoolDiskFailing",),
        settings=_spool_folder,
        load=_spool_in("x"),
    ),
)
