"""Asks a Kafka cluster whether it has a topic, by the Java client that Spark's connector brings.

Spark itself would ask three times for a minute each and end with a stack trace; this asks once, and says in a
sentence what the matter is. Blocks for up to 15 s.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

#: A broker that is there answers within milliseconds; an address that nobody has takes TCP 10 s to give up.
_PATIENCE: Final[Mapping[str, str]] = {"default.api.timeout.ms": "15000", "request.timeout.ms": "5000"}
#: By the simple name of Kafka's exception.
_SENTENCES: Final[Mapping[str, str]] = {
    "UnknownTopicOrPartitionException": "There is no topic {topic} at {servers}: create it, or name another.",
    "InvalidTopicException": "{topic} can't be a topic's name: it takes letters, digits, dots, dashes and"
    " underscores.",
    "TopicAuthorizationException": "The brokers at {servers} don't let this user see the topic {topic}.",
    "ClusterAuthorizationException": "The brokers at {servers} don't let this user see the cluster.",
    "SaslAuthenticationException": "The brokers at {servers} refused the login: look at sasl.mechanism and"
    " sasl.jaas.config.",
    "SslAuthenticationException": "No TLS with the brokers at {servers}: look at ssl.truststore.* and"
    " ssl.keystore.*. Java says: {said}",
    "TimeoutException": "No broker at {servers} answered within {waited_ms} ms: look at the addresses, and"
    " whether they can be reached from here. A listener with TLS or a login is silent towards a client"
    " without: look at security.protocol.",
}
_SECRET: Final = re.compile(r"password|secret|jaas|key|token", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""["']([^"']+)["']""")


class KafkaCheckError(PipelineError):
    """The topic isn't there or can't be asked for. Names topic and brokers, what to look at; no secret."""


def cluster_of(spark: SparkSession, client: Mapping[str, str], topic: str) -> str:
    """The id of the cluster that has the topic. `client` are a Kafka client's settings, with its servers.

    Raises KafkaCheckError. A session on Spark Connect has no Java here to ask with: then the servers stand
    for the cluster, and nothing is checked.
    """
    servers = client["bootstrap.servers"]
    java = getattr(spark, "_jvm", None)
    if java is None:
        return servers
    factory = java.org.apache.kafka.clients.admin.AdminClient
    if isinstance(factory, JavaPackage):
        raise KafkaCheckError(
            "Spark lacks its Kafka connector: fetch it with `pilotfish-pipeline jars`, or give spark-submit"
            " --jars."
        )
    properties = java.java.util.Properties()
    for name, value in {**_PATIENCE, **client}.items():
        properties.put(name, value)
    try:
        admin = factory.create(properties)
        try:
            admin.describeTopics([topic]).allTopicNames().get()
            return str(admin.describeCluster().clusterId().get())
        finally:
            admin.close(java.java.time.Duration.ZERO)
    except Py4JJavaError as e:  # whose text may hold a secret, as may that of the other
        raise KafkaCheckError(_sentence(e.java_exception, client, topic)) from None
    except PySparkException as e:
        raise KafkaCheckError(_unknown(str(e), client)) from None


def _sentence(raised: Any, client: Mapping[str, str], topic: str) -> str:
    """What the innermost exception that we know means; else what the outermost says, without the values."""
    servers = client["bootstrap.servers"]
    chain = []
    while raised is not None:
        chain.append(raised)
        raised = raised.getCause()
    said = _without_secrets(str(chain[-1].getMessage()), client)
    for each in reversed(chain):
        known = _SENTENCES.get(each.getClass().getSimpleName())
        if known is not None:
            waited_ms = {**_PATIENCE, **client}["default.api.timeout.ms"]
            return known.format(topic=topic, servers=servers, waited_ms=waited_ms, said=said)
    return _unknown(said, client)


def _unknown(said: str, client: Mapping[str, str]) -> str:
    servers = client["bootstrap.servers"]
    return f"The Kafka client for {servers} can't be made or used: {_without_secrets(said, client)}"


def _without_secrets(said: str, client: Mapping[str, str]) -> str:
    """What Java said, without values of settings that may be secret, or what stands in quotes in them."""
    for value in (value for name, value in client.items() if _SECRET.search(name)):
        for secret in (value, *_QUOTED.findall(value)):
            said = said.replace(secret, "(hidden)")
    return said
