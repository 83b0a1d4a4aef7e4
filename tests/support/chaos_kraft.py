"""Three real brokers that clients reach through faulty proxies only, plainly and by name and password.

    with ChaosCluster(home, folder) as chaos:
        Sidecar(..., bootstrap_servers=chaos.bootstrap_servers)
        chaos.proxies[1].delay(500)
        chaos.kafka.kill(2)
        chaos.heal()

    PLAINTEXT   for brokers, admins and consumers of the tests: no proxy, no name, everything allowed
    PROXIED     the same behind `proxies`, one for each broker; brokers advertise them by host name
    SECURED     SASL_SSL with SCRAM-SHA-256 for `user`, behind `secured_proxies`, one for each broker

Brokers advertise the proxies' addresses, so a client that begins at one of them never sees a broker itself.
`front_door` is one more way to PROXIED of broker 1, at an address that stays when all brokers move; brokers
don't advertise it. An anonymous client is a super user; `user` may do everything on resources without ACLs,
and what the ACLs allow on the rest. Blocking; one thread steers.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from client_core.testing.free_ports import free_ports
from tests.support.certificates import Authority, write_pem
from tests.support.faulty_proxy import FaultyProxy
from tests.support.kraft import PROXIED, KraftCluster
from tests.support.kraft_server import HOST, ProxiedListener
from tests.support.secured_kraft import wait_until_shown
from tests.support.security_admin import SecurityAdmin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.support.faulty_proxy import Tap
    from tests.support.kafka_home import KafkaHome

#: A name, so that what it leads to can be steered (steered_dns).
PROXIED_HOST: Final = "localhost"
_SECURED: Final = "SECURED"
_MECHANISM: Final = "SCRAM-SHA-256"
_USER: Final = "carol"
_IDS: Final = (1, 2, 3)


class ChaosCluster:
    """A KraftCluster of three, its proxies, and what its user needs to get in."""

    def __init__(self, home: KafkaHome, folder: Path, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are broker properties on top of the cluster's own. The folder is removed at the end."""
        self.user: Final = _USER
        self.password = secrets.token_urlsafe(16)
        self.authority = Authority()
        self._folder = folder.resolve()
        self._stores = self._folder / "stores"
        self.trust_path = self._stores / "authority.pem"
        self._keystore = self._stores / "brokers.pem"
        self._ports = _new_ports()
        self._secured_ports = _new_ports()
        self.kafka = KraftCluster(
            home.java,
            home.jars,
            self._folder,
            brokers=len(_IDS),
            settings={**self._settings(), **(settings or {})},
            java_options=home.java_options,
            proxied_listeners=[
                ProxiedListener(PROXIED, self._ports, advertised_host=PROXIED_HOST),
                ProxiedListener(_SECURED, self._secured_ports, "SASL_SSL"),
            ],
            format_arguments=["--add-scram", f"{_MECHANISM}=[name={self.user},password={self.password}]"],
        )
        self.proxies: dict[int, FaultyProxy] = {}
        self.secured_proxies: dict[int, FaultyProxy] = {}
        #: Gives a listener for each connection to a broker by `proxies`, from their creation on.
        self.tap: Callable[[int], Tap] | None = None
        self._security: SecurityAdmin | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._stores.mkdir(parents=True)
            self.authority.write_trust(self.trust_path)
            self.authority.issue(HOST, "localhost").write(self._keystore)
            starting.enter_context(self.kafka)
            self.front_door = starting.enter_context(FaultyProxy(self.kafka.proxied_target(1)))
            starting.callback(self._close_proxies)
            self._open_proxies()
            self._stack = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _open_proxies(self) -> None:
        for broker_id in self.kafka.broker_ids:
            plain = self.kafka.proxied_target(broker_id, PROXIED)
            secured = self.kafka.proxied_target(broker_id, _SECURED)
            self.proxies[broker_id] = FaultyProxy(plain, port=self._ports[broker_id])
            self.secured_proxies[broker_id] = FaultyProxy(secured, port=self._secured_ports[broker_id])
        if self.tap is not None:
            self.listen_in(self.tap)

    def listen_in(self, tap: Callable[[int], Tap]) -> None:
        """Has `tap` give a listener for each new connection to a broker by `proxies`, those to come too."""
        self.tap = tap
        for broker_id, proxy in self.proxies.items():
            proxy.tap = partial(tap, broker_id)

    def _close_proxies(self) -> None:
        for proxy in self._all_proxies():
            proxy.close()

    def _all_proxies(self) -> list[FaultyProxy]:
        return [*self.proxies.values(), *self.secured_proxies.values()]

    # -- where, and how to get in ----------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the proxies."""
        return _joined(PROXIED_HOST, self._ports)

    @property
    def secured_bootstrap_servers(self) -> str:
        """host:port of the proxies in front of SECURED."""
        return _joined(HOST, self._secured_ports)

    @property
    def secured_settings(self) -> dict[str, str]:
        """What a client of SECURED sets, by Kafka's names, with the password of now."""
        return {
            "bootstrap.servers": self.secured_bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_path),
            "sasl.mechanism": _MECHANISM,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    @property
    def security(self) -> SecurityAdmin:
        """ACLs and passwords, asked over the plain listener; made anew when brokers have moved."""
        if self._security is None or self._security.bootstrap_servers != self.kafka.bootstrap_servers:
            self._security = SecurityAdmin(self.kafka.bootstrap_servers)
        return self._security

    # -- controls for tests ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """Every proxy passes plainly, every server serves, and nothing forbids the user anything.

        Passwords and certificates stay as they were rotated, quotas as they were set. At once when nothing
        is wrong.
        """
        for proxy in (self.front_door, *self._all_proxies()):
            proxy.heal()
        self.kafka.heal()
        self.security.forget_acls(user=self.user)

    def move_all_brokers(self) -> None:
        """Every broker comes back on other ports, behind new proxies at other addresses.

        No address that brokers ever advertised still answers; `front_door` does. From now on the attributes
        of this object, such as `bootstrap_servers` and `proxies`, have the new addresses.
        """
        self._close_proxies()
        self._ports, self._secured_ports = _new_ports(), _new_ports()
        self.kafka.advertise(PROXIED, self._ports)
        self.kafka.advertise(_SECURED, self._secured_ports)
        self._open_proxies()
        self.kafka.move_all_brokers()

    def take_write(self, topic: str) -> None:
        """The user may no longer write to a topic."""
        self.security.deny(self.user, "WRITE", topic=topic)

    def give_write(self, topic: str) -> None:
        """The user may write again."""
        self.security.forget_acls(topic=topic, user=self.user)

    def rotate_password(self) -> str:
        """Changes the user's password and returns the new one; existing connections are not touched."""
        self.password = secrets.token_urlsafe(16)
        self.security.set_password(self.user, _MECHANISM, self.password)
        return self.password

    def rotate_certificates(self, authority: Authority | None = None) -> None:
        """Brokers show a new certificate from their next connections on, of another authority where given.

        `trust_path` then holds both authorities. Waits until every running broker does so. Existing
        connections are not touched.
        """
        issuer = authority or self.authority
        if issuer is not self.authority:
            write_pem(self.trust_path, self.authority.certificate + issuer.certificate)
            self.authority = issuer
        identity = issuer.issue(HOST, "localhost")
        identity.write(self._keystore)
        name = f"listener.name.{_SECURED.lower()}.ssl.keystore.location"
        for broker_id in filter(self.kafka.is_running, self.kafka.broker_ids):
            self.security.set_broker_config(broker_id, {name: str(self._keystore)})
            wait_until_shown(self.kafka.proxied_target(broker_id, _SECURED), identity)

    def _settings(self) -> dict[str, str]:
        prefix = f"listener.name.{_SECURED.lower()}."
        return {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.client.auth": "none",
            # Two, so that a broker outlives one of them; by their paths in a broker's folder.
            "log.dirs": "data,more-data",
            "metadata.log.dir": "metadata",
            "sasl.enabled.mechanisms": _MECHANISM,
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(self._keystore),
            f"{prefix}{_MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }


def _new_ports() -> dict[int, int]:
    return dict(zip(_IDS, free_ports(len(_IDS)), strict=True))


def _joined(host: str, ports: Mapping[int, int]) -> str:
    return ",".join(f"{host}:{port}" for port in ports.values())
