"""How clients reach the brokers: each fault needs other things in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.chaos.harms import SHORT_REQUEST_TIMEOUT
from tests.chaos.stage import Client

if TYPE_CHECKING:
    from tests.chaos.stage import Stage


def by_proxies(stage: Stage) -> Client:
    """A proxy in front of each broker, which clients believe to be the broker; all settings as they come."""
    return Client(stage.cluster.bootstrap_servers)


def by_proxies_with_short_requests(stage: Stage) -> Client:
    """The same; a request is given up after two seconds instead of thirty."""
    return Client(stage.cluster.bootstrap_servers, kafka=SHORT_REQUEST_TIMEOUT)


def without_java(stage: Stage) -> Client:
    """For what is done to the sidecar's own process."""
    return Client(stage.cluster.bootstrap_servers, has_java=False)


def with_power_to_cut(stage: Stage) -> Client:
    """Records what the sidecar has fsynced, so that its disk can be reduced to that."""
    return Client(stage.cluster.bootstrap_servers, has_java=False, has_power=True)


def by_the_front_door(stage: Stage) -> Client:
    """bootstrap.servers keeps its address and leads to the brokers; the brokers name all other addresses."""
    return Client(stage.cluster.front_door.bootstrap_servers)


def by_their_own_addresses(stage: Stage) -> Client:
    """Brokers themselves, where they are when the sidecar starts."""
    return Client(stage.cluster.kafka.bootstrap_servers)


def with_a_clock_to_set(stage: Stage) -> Client:
    """The sidecar's wall clock can be moved; nothing of the kind is done to Java's."""
    return Client(stage.cluster.bootstrap_servers, environment=stage.clock.environment(), has_java=False)


def with_names_to_steer(stage: Stage) -> Client:
    """What the host name of the brokers leads to can be changed for the sidecar alone."""
    return Client(stage.cluster.bootstrap_servers, environment=stage.dns.environment(), has_java=False)


def by_name_and_password(stage: Stage) -> Client:
    """TLS and SCRAM, behind proxies too; the sidecar reads its password from a file that may change."""
    cluster = stage.cluster
    own = ("bootstrap.servers", "sasl.username", "sasl.password")
    login = f'username="{cluster.user}" password="{cluster.password}"'
    return Client(
        cluster.secured_bootstrap_servers,
        kafka={name: value for name, value in cluster.secured_settings.items() if name not in own},
        sidecar_kafka={"sasl.username": cluster.user, "sasl.password.file": str(stage.password_path)},
        java_kafka={
            "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required {login};"
        },
    )


def by_name_and_password_without_java(stage: Stage) -> Client:
    """The same, for what Java's client can't follow."""
    return replace(by_name_and_password(stage), has_java=False)
