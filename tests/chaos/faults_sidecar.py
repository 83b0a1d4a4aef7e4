"""What happens to the sidecar's own process: signals, and the limits of its machine.

Nothing of the kind is done to Java's client, which lives in the process of its caller.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx

from tests.chaos.fault import Fault
from tests.chaos.http_streams import HOST
from tests.chaos.routes import with_a_clock_to_set, with_names_to_steer, with_power_to_cut, without_java
from tests.support import power_cut
from tests.support.chaos_kraft import PROXIED_HOST
from tests.support.java_peer import now_ms
from tests.support.paused_process import pause_process
from tests.support.plain_http import NO_TLS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.chaos.fault import Injection, Route
    from tests.chaos.scene import Scene

_GROUP: Final = "the sidecar"
_VIRTUAL: Final = re.compile(r"^VmSize:\s+(\d+) kB$", re.MULTILINE)
_BODY_BYTES: Final = 8_000_000
_LARGE_BODIES: Final = 24
_LARGE_AT_ONCE: Final = 6
_ROOM_BYTES: Final = 8_000_000
_EAGER_CONNECTIONS: Final = 50
#: Of the loopback network, where nothing listens.
_NOBODYS_ADDRESS: Final = "127.9.9.9"


def _own(
    name: str,
    inject: Injection,
    *,
    route: Route = without_java,
    kills_sidecar: bool = False,
    spool: bool = False,
    short: bool = False,
) -> Fault:
    return Fault(
        name,
        _GROUP,
        inject,
        route,
        kills_sidecar=kills_sidecar,
        own_sidecar=True,
        spool=spool,
        short=short,
    )


def _terminate(scene: Scene) -> None:
    code = scene.sidecar.terminate()
    assert code == 0, f"the sidecar ended with {code}:\n{scene.sidecar.log()}"
    scene.sidecar.start()


def _kill(scene: Scene) -> None:
    scene.sidecar.process.kill()
    scene.sidecar.process.wait()
    scene.sidecar.start()


def _kill_with_a_full_spool(scene: Scene) -> None:
    """Whatever was answered 202 lies on the disk and nowhere else."""
    for proxy in scene.proxies:
        proxy.refuse()
    scene.hold(2)
    _kill(scene)
    for proxy in scene.proxies:
        proxy.heal()


def _cut_power(scene: Scene) -> None:
    """As a kill with a full spool, but for what was written and not fsynced: that is gone."""
    for proxy in scene.proxies:
        proxy.refuse()
    scene.wait_for_spooled(20)
    scene.sidecar.process.kill()
    scene.sidecar.process.wait()
    power_cut.restore(scene.sidecar.folder / "spool", scene.sidecar.folder / "fsynced")
    scene.sidecar.start()
    for proxy in scene.proxies:
        proxy.heal()


def _pause(scene: Scene) -> None:
    paused_ms = now_ms()
    pause_process(scene.sidecar.process.pid)
    scene.hold(4)
    scene.sidecar.process.send_signal(signal.SIGCONT)
    scene.load.history.lag.excuse(paused_ms, now_ms())


@contextlib.contextmanager
def _limited(pid: int, which: int, limit: int) -> Iterator[None]:
    """A soft limit of a running process, for as long as the block lasts."""
    soft, hard = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (limit, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, which, (soft, hard))


def _use_up_descriptors(scene: Scene) -> None:
    """No socket can be opened: the sidecar accepts no caller and can't connect to a broker again.

    The request of a connection that is not accepted is read late. This does not count as a missed deadline.
    """
    pid, began_ms = scene.sidecar.process.pid, now_ms()
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    with _limited(pid, resource.RLIMIT_NOFILE, highest + 1), contextlib.ExitStack() as eager:
        for _ in range(_EAGER_CONNECTIONS):
            connection = eager.enter_context(socket.socket())
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.connect((HOST, scene.sidecar.api_port))
        _cut_off(scene)
        scene.hold(4)
    # asyncio tries to accept again after a second (ACCEPT_RETRY_DELAY).
    scene.hold(1)
    scene.load.history.lag.excuse(began_ms, now_ms())


def _near_the_limit_of_memory(scene: Scene) -> None:
    """Many large bodies at once, with memory for one or two. None is written: their JSON is incomplete."""
    pid = scene.sidecar.process.pid
    found = _VIRTUAL.search(Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    body = b'{"records":[' + b'{"value":"x"},' * (_BODY_BYTES // 14)

    def post(_: int) -> int | None:
        try:
            answer = httpx.post(
                f"{scene.sidecar.api_url}/v1/topics/{scene.topic}/records",
                content=body,
                headers={"Content-Type": "application/json"},
                timeout=30,
                verify=NO_TLS,
            )
        except httpx.TransportError:
            return None
        return answer.status_code

    limited = _limited(pid, resource.RLIMIT_AS, int(found[1]) * 1024 + _ROOM_BYTES)
    with limited, ThreadPoolExecutor(_LARGE_AT_ONCE) as callers:
        statuses = list(callers.map(post, range(_LARGE_BODIES)))
    assert set(statuses) != {400}, "memory was never short"


def _full_disk(scene: Scene) -> None:
    """No file of the sidecar can grow: an EFBIG for each write, as ENOSPC on a full disk."""
    with _limited(scene.sidecar.process.pid, resource.RLIMIT_FSIZE, 1):
        scene.wait_for_failures(503, count=3)


def _clock(difference_s: float) -> Injection:
    def inject(scene: Scene) -> None:
        scene.clock.set(difference_s)
        scene.hold(3)
        scene.clock.set(0)
        scene.hold(1)

    return inject


def _clock_of_refused_records(scene: Scene) -> None:
    """Brokers take no timestamp that is more than an hour ahead (message.timestamp.after.max.ms)."""
    scene.clock.set(7_200)
    scene.wait_for_failures(422, count=5)
    scene.clock.set(0)


def _cut_off(scene: Scene) -> None:
    for proxy in scene.proxies:
        proxy.sever()


def _lose_names(scene: Scene) -> None:
    """Brokers are known by a name that nobody knows any more, and must be connected to anew."""
    scene.dns.fail(PROXIED_HOST)
    _cut_off(scene)
    scene.hold(4)
    scene.dns.forget(PROXIED_HOST)


def _mislead_names(scene: Scene) -> None:
    """The name leads to where nobody listens, and then back."""
    scene.dns.answer(PROXIED_HOST, [_NOBODYS_ADDRESS])
    _cut_off(scene)
    scene.hold(4)
    scene.dns.forget(PROXIED_HOST)


FAULTS: Final = (
    _own("SIGTERM, and started again", _terminate, kills_sidecar=True),
    _own("SIGKILL, and started again", _kill, kills_sidecar=True, short=True),
    _own(
        "SIGKILL with a spool that could not be delivered",
        _kill_with_a_full_spool,
        spool=True,
        kills_sidecar=True,
    ),
    _own(
        "the power is cut while the spool could not be delivered",
        _cut_power,
        route=with_power_to_cut,
        spool=True,
        kills_sidecar=True,
        short=True,
    ),
    _own("SIGSTOP, SIGCONT", _pause),
    _own("no descriptor left, and all connections to brokers end", _use_up_descriptors),
    _own("large bodies near the limit of memory", _near_the_limit_of_memory),
    _own("the spool's disk is full", _full_disk, spool=True),
    _own("the wall clock jumps half an hour ahead, and back", _clock(1_800), route=with_a_clock_to_set),
    _own(
        "the wall clock jumps further ahead than brokers allow, and back",
        _clock_of_refused_records,
        route=with_a_clock_to_set,
    ),
    _own("the wall clock jumps a day back, and ahead", _clock(-86_400), route=with_a_clock_to_set),
    _own("brokers' name can't be resolved, all connections end", _lose_names, route=with_names_to_steer),
    _own("brokers' name leads elsewhere, all connections end", _mislead_names, route=with_names_to_steer),
)
