"""Faults of the network between clients and brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.chaos import harms
from tests.chaos.fault import Fault
from tests.chaos.routes import by_proxies, by_proxies_with_short_requests

if TYPE_CHECKING:
    from tests.chaos.fault import Route
    from tests.chaos.harms import Harm
    from tests.chaos.scene import Scene

_GROUP: Final = "network"
_FLAPS: Final = 15


def _held(harm: Harm, seconds: float, *, route: Route = by_proxies, short: bool = False) -> Fault:
    return Fault(harm.name, _GROUP, harm.held(seconds), route, short=short)


def _sever_all(scene: Scene) -> None:
    for proxy in scene.proxies:
        proxy.sever()


def _reset_all(scene: Scene) -> None:
    for proxy in scene.proxies:
        proxy.reset()


def _flap(scene: Scene) -> None:
    for _ in range(_FLAPS):
        scene.random.choice(scene.proxies).sever()
        scene.hold(0.2)


def _one_broker_in_sight(scene: Scene) -> None:
    hidden = [proxy for proxy in scene.proxies if proxy is not scene.proxy]
    for proxy in hidden:
        proxy.refuse()
    scene.hold(3)
    for proxy in hidden:
        proxy.heal()


FAULTS: Final = (
    _held(harms.DELAY, 4),
    _held(harms.SLOW_LEADER, 5),
    _held(harms.NARROW, 4),
    _held(harms.DRIBBLE, 4),
    _held(harms.STALL, 4),
    _held(harms.STALLED_LEADER, 4),
    _held(harms.REQUESTS_VANISH, 5, route=by_proxies_with_short_requests),
    _held(harms.ANSWERS_VANISH, 5, route=by_proxies_with_short_requests),
    _held(harms.ALL_VANISHES, 5, route=by_proxies_with_short_requests),
    _held(harms.RESET_ANSWERS, 4, short=True),
    _held(harms.RESET_REQUESTS, 4),
    _held(harms.REFUSING_LEADER, 4),
    _held(harms.ALL_REFUSE, 4),
    _held(harms.UNANSWERED_CONNECTS, 4),
    Fault("all connections end", _GROUP, _sever_all, by_proxies),
    Fault("all connections are reset", _GROUP, _reset_all, by_proxies),
    Fault("connections to a random broker end, five times a second", _GROUP, _flap, by_proxies),
    Fault("two of three brokers out of sight", _GROUP, _one_broker_in_sight, by_proxies),
)
