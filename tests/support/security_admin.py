"""The rights and passwords of a cluster: ACLs, SCRAM users, listeners' stores, set with librdkafka.

Asks over a listener that needs no credentials, where everyone is a super user. An ACL that is made is in
force when the call returns, or within `wait_until`'s patience: brokers learn of it from the metadata log.
Blocking, bounded by deadlines. Used with `secured_kraft.py`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.support.kafka_admin import QUIET, SOON

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REQUEST_TIMEOUT_S: Final = 10.0
_ITERATIONS: Final = 4_096
_MECHANISMS: Final[Mapping[str, Any]] = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_ANY_HOST: Final = "*"


class SecurityAdmin:
    """One thread at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._client = AdminClient({"bootstrap.servers": bootstrap_servers, **QUIET, **SOON})

    def allow(self, user: str, operation: str, *, topic: str) -> None:
        """Lets a user WRITE, DESCRIBE, ... a topic; users without such a right are denied from then on."""
        self._create(_binding(user, operation, topic, AclPermissionType.ALLOW))

    def deny(self, user: str, operation: str, *, topic: str) -> None:
        """Forbids it, whatever allows it."""
        self._create(_binding(user, operation, topic, AclPermissionType.DENY))

    def forget_acls(self, *, topic: str | None = None, user: str | None = None) -> int:
        """Takes away every ACL of a topic or a user, or of both together; how many there were."""
        anything: Any = None
        wanted = AclBindingFilter(
            ResourceType.ANY if topic is None else ResourceType.TOPIC,
            anything if topic is None else topic,
            ResourcePatternType.ANY,
            anything if user is None else f"User:{user}",
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        (future,) = self._client.delete_acls([wanted], request_timeout=_REQUEST_TIMEOUT_S).values()
        return len(future.result(_REQUEST_TIMEOUT_S * 2))

    def set_password(self, user: str, mechanism: str, password: str) -> None:
        """Makes a SCRAM user, or changes its password: the old one is of no use from then on."""
        self._alter(
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(_MECHANISMS[mechanism], _ITERATIONS), password.encode()
            )
        )

    def remove_user(self, user: str, mechanism: str) -> None:
        """Removes a SCRAM user."""
        self._alter(UserScramCredentialDeletion(user, _MECHANISMS[mechanism]))

    def set_broker_config(self, broker_id: int, settings: Mapping[str, str]) -> None:
        """Changes a running broker's settings, such as a listener's keystore; the same path is read again."""
        resource = ConfigResource(
            ConfigResource.Type.BROKER,
            str(broker_id),
            incremental_configs=[
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in settings.items()
            ],
        )
        (future,) = self._client.incremental_alter_configs(
            [resource], request_timeout=_REQUEST_TIMEOUT_S
        ).values()
        future.result(_REQUEST_TIMEOUT_S * 2)

    @contextmanager
    def denied(self, user: str, operation: str, *, topic: str) -> Iterator[None]:
        """Forbids it for the time of the block."""
        self.deny(user, operation, topic=topic)
        try:
            yield
        finally:
            self.forget_acls(topic=topic, user=user)

    def _create(self, binding: AclBinding) -> None:
        (future,) = self._client.create_acls([binding], request_timeout=_REQUEST_TIMEOUT_S).values()
        future.result(_REQUEST_TIMEOUT_S * 2)

    def _alter(self, alteration: UserScramCredentialUpsertion | UserScramCredentialDeletion) -> None:
        (future,) = self._client.alter_user_scram_credentials(
            [alteration], request_timeout=_REQUEST_TIMEOUT_S
        ).values()
        future.result(_REQUEST_TIMEOUT_S * 2)


def _binding(user: str, operation: str, topic: str, permission: AclPermissionType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        _ANY_HOST,
        AclOperation[operation],
        permission,
    )
