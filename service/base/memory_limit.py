"""Sizes buffers for the container's memory limit: that of its cgroup, v1 or v2.

The defaults of the settings fit into ENOUGH_BYTES. A smaller limit scales them down, all by one factor:

    factor = (limit - OWN_BYTES - spool - event log)
             / (TIMES * (buffer.memory + max_waiting_bytes) + STREAM_BYTES * max_streams
                + CONNECTION_BYTES * MORE_CONNECTIONS)

OWN_BYTES is what a sidecar takes at rest, for the answers of brokers and for OWN_CONNECTIONS. The client
copies a record into a batch, and its caller waits with the parsed one: so a waiting byte takes TIMES bytes. A
setting that is given stays as it is, and is subtracted before. Below LEAST_BYTES the values are those for
LEAST_BYTES, and the log warns: the kernel may kill the process. Above ENOUGH_BYTES the rest is for
connections, until all of max_connections fit.

Source: cgroups(7), the kernel's cgroup-v1/memory and cgroup-v2. Pure, except `memory_limit`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from service.base.settings import InternalLimits, Settings

_MIB: Final = 1024 * 1024

#: Measured: 66 MiB at rest, of which the kernel can drop 18 (files); then brokers' answers and heap, and
#: OWN_CONNECTIONS.
OWN_BYTES: Final = 75 * _MIB
OWN_CONNECTIONS: Final = 100
#: Those for which there is also room in ENOUGH_BYTES.
MORE_CONNECTIONS: Final = 900
#: Measured: 9 KiB while it is idle, 22 while its request waits to be delivered, with a head of 100 bytes.
CONNECTION_BYTES: Final = 24 * 1024
#: The part of the connections whose requests may wait, so that look-ups still get one.
_WAITING_PART: Final = 0.75
TIMES: Final = 1.9
#: What a stream holds that is not counted as waiting: a read in its connection, another one that it submits,
#: and a part of that as lines and as records. Measured with _RECEIVE_BUFFER_BYTES: 340 KiB.
STREAM_BYTES: Final = 360 * 1024
#: The most that a spool and an event log add (docs/operations.md, "Memory").
SPOOL_BYTES: Final = 48 * _MIB
EVENTS_BYTES: Final = 20 * _MIB
#: The smallest limit for a sidecar, without a spool and an event log.
LEAST_BYTES: Final = 96 * _MIB
#: The limit from which the defaults fit, even if reads are as large as the kernel allows.
ENOUGH_BYTES: Final = 320 * _MIB

BUFFER_MEMORY: Final = "buffer.memory"
_BUFFER_BYTES: Final = 32 * _MIB
_WAITING_BYTES: Final = Settings.model_fields["max_waiting_bytes"].default
_STREAMS: Final = Settings.model_fields["max_streams"].default
_MORE_CONNECTIONS_BYTES: Final = CONNECTION_BYTES * MORE_CONNECTIONS
_SCALED_BYTES: Final = (
    TIMES * (_BUFFER_BYTES + _WAITING_BYTES) + STREAM_BYTES * _STREAMS + _MORE_CONNECTIONS_BYTES
)
_LEAST_FACTOR: Final = (LEAST_BYTES - OWN_BYTES) / _SCALED_BYTES
_LEAST_OWN_BYTES: Final = OWN_BYTES + int(_MORE_CONNECTIONS_BYTES * _LEAST_FACTOR)

#: Settings and internal limits that are scaled besides buffer.memory.
_OWN: Final = ("max_waiting_bytes", "max_streams", "max_watchers", "max_body_bytes", "idempotency_max_bytes")
_DEFAULTS: Final[Mapping[str, int]] = {BUFFER_MEMORY: _BUFFER_BYTES} | {
    name: Settings.model_fields[name].default for name in (*_OWN, "max_waiting_requests")
}
_INTERNAL: Final = (
    "body_threads",
    "large_heads_bytes",
    "max_records_per_request",
    "max_unsent_bytes",
    "stream_open_bytes",
    "watch_history_bytes",
)

#: The size of mapped blocks below ENOUGH_BYTES: each piece of a body that a socket gives is mapped, at the
#: price of its page faults. In the heap they leave holes: 70 MiB after a megabyte from each of 70 callers.
_MAPPED_BYTES: Final = 64 * 1024

#: The receive buffer of a connection below ENOUGH_BYTES: a read takes all that the kernel has. With cgroup v2
#: the limit counts the kernel's buffers, too.
_RECEIVE_BUFFER_BYTES: Final = 64 * 1024

#: cgroup v1 writes "no limit" as a number near 2^63; v2 writes "max".
_NO_LIMIT: Final = 2**60


class Fitted(NamedTuple):
    """Settings that fit, and the log lines that say so: `reported` what was derived, `doubt` a warning."""

    settings: Settings
    reported: str = ""
    doubt: str = ""


def memory_limit(root: Path = Path("/")) -> int | None:
    """Returns the smallest memory limit of this process's cgroup and those above it, in bytes, or None.

    `root` replaces `/` in tests. A file that can't be read counts as no limit.
    """
    try:
        # The names of files: a volume beside the cgroup's mount may have any.
        own = os.fsdecode((root / "proc/self/cgroup").read_bytes())
        mounts = os.fsdecode((root / "proc/self/mountinfo").read_bytes())
    except OSError:
        return None
    found = [_limits_of(root, own, line) for line in mounts.splitlines()]
    return min((limit for limits in found for limit in limits), default=None)


def _limits_of(root: Path, own: str, mount: str) -> list[int]:
    """Returns the limits on the way from this process's group to one mounted hierarchy's root."""
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.partition(" ")
    if kind == "cgroup2":
        controller, name = "", "memory.max"
    elif kind == "cgroup" and "memory" in options.split(" ")[-1].split(","):
        controller, name = "memory", "memory.limit_in_bytes"
    else:
        return []
    mounted_root, mount_point = fields.split(" ")[3:5]
    top = root / mount_point.lstrip("/")
    group = top
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        # In a container the path may be the host's: then the mount's root is the container's group.
        if controller in controllers.split(",") and Path(path).is_relative_to(mounted_root):
            group = top / Path(path).relative_to(mounted_root)
    limits = [_number(folder / name) for folder in (group, *group.parents) if folder.is_relative_to(top)]
    return [limit for limit in limits if limit is not None]


def _number(path: Path) -> int | None:
    try:
        number = int(path.read_bytes())
    except (OSError, ValueError):  # the root has no such file; "max"
        return None
    return number if number < _NO_LIMIT else None


def fitted(settings: Settings, limit: int | None) -> Fitted:
    """Returns the settings with sizes for a memory limit in bytes. Those that are given are not changed."""
    if limit is None:
        return Fitted(settings)
    given = settings.model_fields_set
    needed = bytes_needed(settings)
    free = float(limit - OWN_BYTES - _extra_bytes(settings))
    scaled = float(_MORE_CONNECTIONS_BYTES)
    for is_given, its, default in (
        (
            BUFFER_MEMORY in settings.kafka,
            TIMES * settings.producer_config().buffer_memory,
            _BUFFER_BYTES * TIMES,
        ),
        ("max_waiting_bytes" in given, TIMES * settings.max_waiting_bytes, TIMES * _WAITING_BYTES),
        ("max_streams" in given, STREAM_BYTES * settings.max_streams, STREAM_BYTES * _STREAMS),
    ):
        free -= its if is_given else 0
        scaled += 0 if is_given else default
    factor = min(max(free / scaled, _LEAST_FACTOR), 1.0)
    limits, usual = settings.internal, InternalLimits()
    sizes: dict[str, int] = {}
    if BUFFER_MEMORY not in settings.kafka:
        sizes[BUFFER_MEMORY] = max(int(_BUFFER_BYTES * factor), _least_buffer(settings))
    sizes |= {name: int(_DEFAULTS[name] * factor) for name in _OWN if name not in given}
    internal = {
        name: max(int(getattr(limits, name) * factor), 1)
        for name in _INTERNAL
        if getattr(limits, name) == getattr(usual, name)
    }
    connections = OWN_CONNECTIONS + int(MORE_CONNECTIONS * factor)
    connections += max(limit - ENOUGH_BYTES, 0) // CONNECTION_BYTES
    if connections < limits.max_connections:
        internal["max_connections"] = connections
        if "max_waiting_requests" not in given:
            sizes["max_waiting_requests"] = int(connections * _WAITING_PART)
    doubt = ""
    if limit < needed:
        doubt = (
            f"the memory limit of {limit // _MIB} MiB is too small for these settings: raise it to "
            f"{-(-needed // _MIB)} MiB{or_lower(settings)}; the kernel may kill the process"
        )
    shown = " ".join(f"{name}={size}" for name, size in (sizes | internal).items())
    reported = f"sized for the memory limit of {limit // _MIB} MiB: {shown}" if shown else ""
    if limit < ENOUGH_BYTES:
        internal["receive_buffer_bytes"] = _RECEIVE_BUFFER_BYTES
        internal["mapped_block_bytes"] = _MAPPED_BYTES
    changed = {name: size for name, size in sizes.items() if size != _DEFAULTS[name]}
    fit = replace(limits, **internal)
    if shown and not changed and fit == limits:
        reported += ", the defaults"
    update: dict[str, object] = {"internal": fit}
    if BUFFER_MEMORY in changed:
        update["kafka"] = {**settings.kafka, BUFFER_MEMORY: str(changed.pop(BUFFER_MEMORY))}
    return Fitted(settings.model_copy(update=update | changed), reported, doubt)


def bytes_needed(settings: Settings) -> int:
    """Returns the smallest memory limit for which the given settings leave room for the others."""
    buffers = settings.producer_config().buffer_memory
    if BUFFER_MEMORY not in settings.kafka:
        buffers = max(int(_BUFFER_BYTES * _LEAST_FACTOR), _least_buffer(settings))
    waiting = settings.max_waiting_bytes
    if "max_waiting_bytes" not in settings.model_fields_set:
        waiting = int(_WAITING_BYTES * _LEAST_FACTOR)
    streams = settings.max_streams
    if "max_streams" not in settings.model_fields_set:
        streams = int(_STREAMS * _LEAST_FACTOR)
    scaled = int(TIMES * (buffers + waiting)) + STREAM_BYTES * streams
    return max(_LEAST_OWN_BYTES + _extra_bytes(settings) + scaled, LEAST_BYTES)


def chart_figures() -> dict[str, float]:
    """Returns the figures of `bytes_needed`, for the chart's own check."""
    return {
        "own": _LEAST_OWN_BYTES,
        "times": TIMES,
        "least": LEAST_BYTES,
        "spool": SPOOL_BYTES,
        "events": EVENTS_BYTES,
        "buffer": int(_BUFFER_BYTES * _LEAST_FACTOR),
        "waiting": int(_WAITING_BYTES * _LEAST_FACTOR),
        "stream": STREAM_BYTES,
        "streams": int(_STREAMS * _LEAST_FACTOR),
    }


def _least_buffer(settings: Settings) -> int:
    """Returns the bytes of the largest record: a smaller buffer.memory would refuse it."""
    return settings.producer_config().max_request_size if "max.request.size" in settings.kafka else 0


def _extra_bytes(settings: Settings) -> int:
    events = bool(settings.events_topic or settings.events_folder)
    return SPOOL_BYTES * bool(settings.spool_folder) + EVENTS_BYTES * events


def or_lower(settings: Settings) -> str:
    """Returns the other remedy for an error message: the given settings that need memory."""
    names: list[str] = [name for name in (BUFFER_MEMORY, "max.request.size") if name in settings.kafka]
    names += [name for name in ("max_waiting_bytes", "max_streams") if name in settings.model_fields_set]
    return f", or lower {' and '.join(names)}" if names else ""
