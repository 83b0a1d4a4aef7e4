"""Faults of access: rights, passwords, certificates, quotas.

Clients connect by TLS and SCRAM. Java's client reads its password and authorities only once, so these can't
be changed while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.chaos.fault import Fault
from tests.chaos.routes import by_name_and_password, by_name_and_password_without_java, by_proxies
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from tests.chaos.fault import Injection, Route
    from tests.chaos.scene import Scene

_GROUP: Final = "access and quotas"
_QUOTA_BYTES_PER_SECOND: Final = 2_000
#: Of one request thread's time.
_QUOTA_PERCENT: Final = 0.2


def _access(
    name: str,
    inject: Injection,
    route: Route = by_name_and_password_without_java,
    *,
    judges_gap: bool = True,
) -> Fault:
    return Fault(name, _GROUP, inject, route, judges_gap=judges_gap)


def _take_and_give_the_right_to_write(scene: Scene) -> None:
    scene.cluster.take_write(scene.topic)
    scene.wait_for_failures(403, count=5)
    scene.cluster.give_write(scene.topic)


def _cut_off(scene: Scene) -> None:
    for proxy in scene.cluster.secured_proxies.values():
        proxy.sever()


def _rotate_password(scene: Scene) -> None:
    scene.cluster.rotate_password()
    scene.write_password()
    _cut_off(scene)


def _rotate_password_and_be_late(scene: Scene) -> None:
    """As with Java's client, records wait for their deadline while brokers refuse the client."""
    scene.cluster.rotate_password()
    _cut_off(scene)
    scene.hold(4)
    scene.write_password()


def _rotate_certificates(scene: Scene) -> None:
    scene.cluster.rotate_certificates()
    _cut_off(scene)


def _change_authority(scene: Scene) -> None:
    scene.cluster.rotate_certificates(Authority())
    _cut_off(scene)


def _throttle_bytes(scene: Scene) -> None:
    scene.admin.set_client_quota(producer_byte_rate=_QUOTA_BYTES_PER_SECOND)
    scene.hold(5)
    scene.admin.remove_client_quotas()


def _throttle_requests(scene: Scene) -> None:
    scene.admin.set_client_quota(request_percentage=_QUOTA_PERCENT)
    scene.hold(5)
    scene.admin.remove_client_quotas()


FAULTS: Final = (
    _access(
        "the right to write taken and given again", _take_and_give_the_right_to_write, by_name_and_password
    ),
    _access("password changed, and the sidecar's file with it", _rotate_password),
    _access("password changed, the sidecar's file later", _rotate_password_and_be_late),
    _access("brokers' certificates changed", _rotate_certificates, by_name_and_password),
    _access("brokers' certificates of another authority", _change_authority),
    _access("a quota of bytes", _throttle_bytes, by_proxies, judges_gap=False),
    _access("a quota of request time", _throttle_requests, by_proxies, judges_gap=False),
)
