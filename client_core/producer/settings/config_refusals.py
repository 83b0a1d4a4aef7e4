"""Settings that are refused, and why: unsupported here, or unknown to Kafka.

Pure. Used by `config.py` and by the docs.
"""

from __future__ import annotations

import difflib
from typing import Final

from client_core.errors import ConfigError
from client_core.producer.settings.config_options import NAMES

_NO_STORE_PASSWORD: Final = (
    "is for JKS and PKCS12 stores; this client reads PEM stores, which have none: ssl.key.password is for an "  # noqa: S105 - a sentence
    "encrypted private key"
)
_NO_KERBEROS: Final = (
    "is for GSSAPI (Kerberos), which is not supported by this client; PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 "
    "and OAUTHBEARER are"
)
_JAVA_SECURITY: Final = "chooses among Java's own implementations of TLS; this client uses OpenSSL"
_BROKERS_SIDE: Final = "is for brokers, which check tokens; a client only passes its token on"
_JAVA_ONLY: Final = "names a Java class, which this client can't load"
_SERIALIZER: Final = (
    f"{_JAVA_ONLY}; keys and values are bytes here, and the library takes a callable as key_serializer and "
    "value_serializer of KafkaProducer"
)
_NO_TRANSACTIONS: Final = "is about transactions, which this client does not offer"
_OWN_METRICS: Final = "is about Java's metrics; see KafkaProducer.metrics() and EventSink"

#: Kafka's producer settings that this client rejects, and why.
UNSUPPORTED: Final = {
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
    "partitioner.class": _JAVA_ONLY,
    "interceptor.classes": f"{_JAVA_ONLY}; the library takes KafkaProducer(interceptors=...)",
    "security.providers": _JAVA_ONLY,
    "config.providers": _JAVA_ONLY,
    "metric.reporters": _OWN_METRICS,
    "metrics.num.samples": _OWN_METRICS,
    "metrics.recording.level": _OWN_METRICS,
    "metrics.sample.window.ms": _OWN_METRICS,
    "enable.metrics.push": _OWN_METRICS,
    "transactional.id": _NO_TRANSACTIONS,
    "transaction.timeout.ms": _NO_TRANSACTIONS,
    "transaction.two.phase.commit.enable": _NO_TRANSACTIONS,
    "ssl.truststore.password": _NO_STORE_PASSWORD,
    "ssl.keystore.password": _NO_STORE_PASSWORD,
    "ssl.engine.factory.class": _JAVA_ONLY,
    "ssl.provider": _JAVA_SECURITY,
    "ssl.keymanager.algorithm": _JAVA_SECURITY,
    "ssl.trustmanager.algorithm": _JAVA_SECURITY,
    "ssl.secure.random.implementation": _JAVA_SECURITY,
    "sasl.client.callback.handler.class": _JAVA_ONLY,
    "sasl.login.callback.handler.class": (
        f"{_JAVA_ONLY}; sasl.oauthbearer.token.provider takes a Python callable"
    ),
    "sasl.login.class": _JAVA_ONLY,
    "sasl.oauthbearer.jwt.validator.class": _JAVA_ONLY,
    "sasl.oauthbearer.clock.skew.seconds": _BROKERS_SIDE,
    "sasl.oauthbearer.expected.audience": _BROKERS_SIDE,
    "sasl.oauthbearer.expected.issuer": _BROKERS_SIDE,
}

#: Families of settings that are rejected as a whole, and why.
UNSUPPORTED_FAMILIES: Final = {
    "sasl.kerberos.": _NO_KERBEROS,
    "sasl.oauthbearer.jwks.": _BROKERS_SIDE,
}

#: librdkafka's names for Kafka's settings.
_LIBRDKAFKA: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain.file",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key.file",
    "ssl.key.pem": "ssl.keystore.key",
    "queue.buffering.max.ms": "linger.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "compression.codec": "compression.type",
    "metadata.broker.list": "bootstrap.servers",
}

#: How similar a name must be to be suggested (difflib's ratio).
_ALIKE: Final = 0.7


def refusal(name: str) -> ConfigError | None:
    """Returns why a name is rejected; None if it is valid. Never shows the value: it may be a secret."""
    if name in NAMES:
        return None
    of_file = name.removesuffix(".file")
    reason = UNSUPPORTED.get(of_file)
    if reason is None:
        reason = next((why for family, why in UNSUPPORTED_FAMILIES.items() if name.startswith(family)), None)
    if reason is None and name in _LIBRDKAFKA:
        reason = f"is librdkafka's name; Kafka's is {_LIBRDKAFKA[name]}"
    if reason is None and of_file in NAMES:
        reason = f"is not supported: {of_file} is not a secret; give its value directly"
    if reason is not None:
        return ConfigError(f"{name} {reason}", name=name)
    alike = difflib.get_close_matches(name.lower().replace("_", "."), sorted(NAMES), n=1, cutoff=_ALIKE)
    hint = f"; did you mean {alike[0]}?" if alike else ""
    return ConfigError(f"{name} is not a setting of Kafka's producer{hint}", name=name)
