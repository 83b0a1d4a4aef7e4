"""Settings that are not taken, and why: Kafka has them and this client does not (yet), or nobody has them.

Pure. `config.py` asks; the table is there for docs too.
"""

from __future__ import annotations

import difflib
from typing import Final

from client_core.errors import ConfigError
from client_core.producer.config_options import NAMES

_NOT_YET: Final = "is a setting of Kafka's producer that is not supported yet"
_JAVA_ONLY: Final = "names a Java class, which this client can't load"
_NO_TRANSACTIONS: Final = "is about transactions, which this client does not offer"
_OWN_METRICS: Final = "is about Java's metrics; this client tells its events to an EventSink instead"

#: Kafka's producer settings that this client does not take, and why.
UNSUPPORTED: Final = {
    "key.serializer": "is not needed: keys and values are bytes here",
    "value.serializer": "is not needed: keys and values are bytes here",
    "partitioner.class": _JAVA_ONLY,
    "interceptor.classes": _JAVA_ONLY,
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
    "compression.gzip.level": _NOT_YET,
    "compression.lz4.level": _NOT_YET,
    "compression.zstd.level": _NOT_YET,
}

#: Families of settings that are refused whole.
_UNSUPPORTED_PREFIXES: Final = ("ssl.", "sasl.")

#: How alike a name must be to be offered instead (difflib's ratio).
_ALIKE: Final = 0.7


def refusal(name: str) -> ConfigError | None:
    """Why a name is not taken; None if it is. Never shows the value: it may be a secret."""
    if name in NAMES:
        return None
    reason = UNSUPPORTED.get(name)
    if reason is None and name.startswith(_UNSUPPORTED_PREFIXES):
        reason = _NOT_YET
    if reason is not None:
        return ConfigError(f"{name} {reason}", name=name)
    alike = difflib.get_close_matches(name.lower().replace("_", "."), sorted(NAMES), n=1, cutoff=_ALIKE)
    hint = f"; did you mean {alike[0]}?" if alike else ""
    return ConfigError(f"{name} is not a setting of Kafka's producer{hint}", name=name)
