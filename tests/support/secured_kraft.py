"""A real Kafka broker with every kind of security at once: one listener per kind, on one process.

    with SecuredKraft(java, jars, folder) as kafka:
        kafka.bootstrap("SASL_SSL")                     # host:port of a listener
        kafka.trust_path                                # PEM of the authority behind its certificate
        kafka.security.deny(ALICE, "WRITE", topic="t")  # ACLs, passwords, stores: security_admin.py

    PLAINTEXT         for the admin: an anonymous client is a super user here
    SSL               TLS 1.2 and 1.3; a client's certificate is asked for, and none will do
    SSL_REQUIRED      TLS, and a client's certificate that our authority issued
    SSL_PROXIED       as SSL_REQUIRED, behind a proxy that can sever its connections (`kafka.ssl_proxy`)
    SSL_12, SSL_13    one version of TLS only
    SSL_EXPIRED       the broker's certificate ran out yesterday
    SSL_ELSEWHERE     the broker's certificate is for another host
    SASL_PLAINTEXT    PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER without TLS
    SASL_SSL          the same with TLS
    SASL_REAUTH       the same as SASL_PLAINTEXT; a session lives for 2 s (KIP-368)
    SASL_PLAIN_ONLY   PLAIN and no other mechanism

Missing topics are made, with three partitions, where a producer's metadata request allows it.

Users are ALICE and BOB with their passwords of PASSWORDS, for PLAIN and both kinds of SCRAM; tokens are those
of `oauth_endpoint.py`, for AUDIENCE. The user of a certificate is its distinguished name. Everyone may do
everything on resources without ACLs. Ends with the test process. Blocking; one thread steers.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Final

from client_core.testing.free_ports import free_ports
from tests.support.certificates import YESTERYEAR, Authority
from tests.support.faulty_proxy import FaultyProxy
from tests.support.kraft import KraftCluster
from tests.support.oauth_endpoint import AUDIENCE, write_jwks
from tests.support.security_admin import SecurityAdmin
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.support.certificates import Identity

HOST: Final = "127.0.0.1"
ALICE: Final = "alice"
BOB: Final = "bob"
#: Words that occur nowhere else, so that a log that holds one has leaked it.
PASSWORDS: Final[Mapping[str, str]] = {ALICE: "wonderland-7Qx", BOB: "construction-4Zt"}
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
#: How long a session on SASL_REAUTH lives; clients renew it after 85 to 95 % of that.
REAUTH_MS: Final = 2_000

_SSL: Final = ("SSL", "SSL_REQUIRED", "SSL_PROXIED", "SSL_12", "SSL_13", "SSL_EXPIRED", "SSL_ELSEWHERE")
_SASL_PLAINTEXT: Final = ("SASL_PLAINTEXT", "SASL_REAUTH", "SASL_PLAIN_ONLY")
_PROTOCOLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_SSL, "SSL"),
    **dict.fromkeys(_SASL_PLAINTEXT, "SASL_PLAINTEXT"),
    "SASL_SSL": "SASL_SSL",
}
_OAUTH_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"


def protocol_of(listener: str) -> str:
    """security.protocol of a listener."""
    return _PROTOCOLS.get(listener, "PLAINTEXT")


class SecuredKraft:
    """The broker and what belongs to it: certificates, a proxy, an admin."""

    def __init__(
        self, java: Path, jars: Sequence[Path], folder: Path, java_options: Sequence[str] = ()
    ) -> None:
        """The folder is removed at the end."""
        self.authority = Authority()
        self.folder = folder.resolve()
        self._stores = self.folder / "stores"
        self.trust_path = self._stores / "authority.pem"
        self._jwks_path = self._stores / "jwks.json"
        self._ports = dict(zip(_PROTOCOLS, free_ports(len(_PROTOCOLS)), strict=True))
        self.ssl_proxy = FaultyProxy((HOST, self._ports["SSL_PROXIED"]))
        self.cluster = KraftCluster(
            java,
            jars,
            self.folder,
            brokers=1,
            auto_create=True,
            settings=self._settings(),
            listeners=self._ports,
            advertised_ports={"SSL_PROXIED": self.ssl_proxy.address[1]},
            java_options=[
                *java_options,
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self._jwks_path.as_uri()}",
                f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={self._jwks_path}",
            ],
            format_arguments=[
                word
                for user, password in PASSWORDS.items()
                for mechanism in SCRAM_MECHANISMS
                for word in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
            ],
        )

    def __enter__(self) -> SecuredKraft:
        self._stores.mkdir(parents=True)
        self.authority.write_trust(self.trust_path)
        here = self.authority.issue(HOST, "localhost")
        here.write(self._keystore("broker"))
        # A file of its own: a test puts another certificate into it, and the broker reads it again.
        here.write(self._keystore("proxied"))
        self.authority.issue(HOST, expires=YESTERYEAR).write(self._keystore("expired"))
        self.authority.issue("elsewhere.test").write(self._keystore("elsewhere"))
        write_jwks(self._jwks_path)
        self.cluster.start()
        self.security = SecurityAdmin(self.cluster.bootstrap_servers)
        return self

    def __exit__(self, *_: object) -> None:
        self.ssl_proxy.close()
        self.cluster.close()

    def bootstrap(self, listener: str) -> str:
        """host:port of a listener; for one behind a proxy the proxy's."""
        if listener == "PLAINTEXT":
            return self.cluster.bootstrap_servers
        if listener == "SSL_PROXIED":
            return self.ssl_proxy.bootstrap_servers
        return f"{HOST}:{self._ports[listener]}"

    def replace_certificate(self, authority: Authority, *, trust: str) -> None:
        """SSL_PROXIED shows a certificate of another authority from its next connection on.

        `trust` is what it believes its clients by then. Existing connections are not touched; `ssl_proxy`
        severs them. Waits until the broker does so.
        """
        identity = authority.issue(HOST, "localhost")
        identity.write(self._keystore("proxied"))
        (self._stores / "proxied-trust.pem").write_text(trust, encoding="ascii")
        prefix = "listener.name.ssl_proxied."
        self.security.set_broker_config(
            1,
            {
                f"{prefix}ssl.keystore.location": str(self._keystore("proxied")),
                f"{prefix}ssl.truststore.location": str(self._stores / "proxied-trust.pem"),
            },
        )
        wait_until_shown((HOST, self._ports["SSL_PROXIED"]), identity)

    # -- inside ----------------------------------------------------------------------------------------------

    def _keystore(self, name: str) -> Path:
        return self._stores / f"{name}.pem"

    def _settings(self) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_PROTOCOLS}
        settings = {
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore("broker")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_path),
            "ssl.client.auth": "none",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "num.partitions": "3",
            # Of each listener.
            "num.network.threads": "1",
        }
        for listener, kind in _PROTOCOLS.items():
            prefix = f"listener.name.{listener.lower()}."
            own = _LISTENERS.get(listener, {})
            if kind != "SSL":
                own = {**_sasl(own.get("sasl.enabled.mechanisms"), self._jwks_path.as_uri()), **own}
            settings |= {f"{prefix}{name}": value for name, value in own.items()}
        for listener, store in (
            ("ssl_expired", "expired"),
            ("ssl_elsewhere", "elsewhere"),
            ("ssl_proxied", "proxied"),
        ):
            settings[f"listener.name.{listener}.ssl.keystore.location"] = str(self._keystore(store))
            settings[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        return settings


def wait_until_shown(address: tuple[str, int], identity: Identity) -> None:
    """Waits until a listener shows this certificate, and no other, to new connections."""
    # Its network threads change one after the other, and take connections in turn.
    wait_until(
        lambda: all(_shown_certificate(address) == identity.der for _ in range(8)),
        what="the new certificate",
        every_s=0.02,
    )


def _shown_certificate(address: tuple[str, int]) -> bytes | None:
    """The certificate that a listener shows to new connections, in DER."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # TLS 1.3 shows it before it asks for ours.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        socket.create_connection(address, timeout=10) as connection,
        context.wrap_socket(connection, server_hostname=HOST) as tls,
    ):
        return tls.getpeercert(binary_form=True)


#: The differences of a listener from the others.
_LISTENERS: Final[Mapping[str, Mapping[str, str]]] = {
    "SSL": {"ssl.client.auth": "requested"},
    "SSL_REQUIRED": {"ssl.client.auth": "required"},
    "SSL_PROXIED": {"ssl.client.auth": "required"},
    "SSL_12": {"ssl.enabled.protocols": "TLSv1.2", "ssl.protocol": "TLSv1.2"},
    "SSL_13": {"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.3"},
    "SASL_REAUTH": {"connections.max.reauth.ms": str(REAUTH_MS)},
    "SASL_PLAIN_ONLY": {"sasl.enabled.mechanisms": "PLAIN"},
}


def _sasl(only: str | None, jwks_url: str) -> dict[str, str]:
    """Who may come, and by which mechanism."""
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    plain = {
        "plain.sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    }
    if only is not None:
        return plain
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        **plain,
        **{f"{mechanism.lower()}.sasl.jaas.config": scram for mechanism in SCRAM_MECHANISMS},
        "oauthbearer.sasl.jaas.config": f"{_OAUTH_PACKAGE}.OAuthBearerLoginModule required;",
        "oauthbearer.sasl.server.callback.handler.class": (
            f"{_OAUTH_PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": jwks_url,
        "oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        # A token that has run out is refused at once.
        "oauthbearer.sasl.oauthbearer.clock.skew.seconds": "0",
    }
