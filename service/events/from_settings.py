"""Creates the event log that the settings describe.

Called once, by the app. Raises SettingsError for an unusable folder, ConfigError for an unusable producer.
"""

from __future__ import annotations

import re
import socket
from random import Random
from typing import Final

from client_core import Clock
from service.base.settings import Settings
from service.base.version import pilotfish_version
from service.events.event_files import EventFiles, FileLimits
from service.events.event_log import EventLog, EventLogConfig
from service.events.event_topic import make_event_topic
from service.events.event_v1 import Origin

#: A boot id is the second of the start since 1970, then this many random bits. It is below 2^53, so that
#: readers with floating-point numbers only keep it exactly.
_CHANCE_BITS: Final = 21

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


def make_event_log(settings: Settings, clock: Clock, random: Random) -> EventLog:
    """Returns an event log that writes to the topic and the folder of the settings."""
    origin = Origin(sidecar_id(settings), settings.service_name, new_boot_id(clock.wall_ms(), random))
    config = EventLogConfig(
        window_ms=settings.internal.events_window_ms,
        heartbeat_ms=settings.internal.events_heartbeat_ms,
        max_waiting_bytes=settings.internal.events_max_waiting_bytes,
        version=pilotfish_version(),
    )
    log = EventLog(origin, config, clock)
    if settings.events_folder:
        limits = FileLimits(
            settings.internal.events_file_max_bytes,
            settings.internal.events_file_max_age_ms,
            settings.events_files,
        )
        log.add_sink(EventFiles(settings.events_folder, origin, limits))
    if settings.events_topic:
        log.add_sink(make_event_topic(settings, origin.sidecar_id, log.call))
    return log


def sidecar_id(settings: Settings) -> str:
    """Returns the sidecar's id in its events: the setting, or the host's name (in Kubernetes the pod's)."""
    return settings.sidecar_id or _NOT_IN_NAMES.sub("-", socket.gethostname())


def new_boot_id(wall_ms: int, random: Random) -> int:
    """Returns the id of a start: greater than that of an earlier second."""
    return (wall_ms // 1000 << _CHANCE_BITS) | random.getrandbits(_CHANCE_BITS)
