"""Names of the environment variables that are read."""

from __future__ import annotations

from typing import Final

#: The prefix of the sidecar's own settings: PILOTFISH_API_PORT.
PREFIX: Final = "PILOTFISH_"

#: The prefix of Kafka's settings, with dots as underscores: PILOTFISH_KAFKA_LINGER_MS.
KAFKA_PREFIX: Final = "PILOTFISH_KAFKA_"

#: The path of the settings file.
CONFIG_VARIABLE: Final = "PILOTFISH_CONFIG"

#: A caller's token, for commands that call a sidecar. It is not a setting of the sidecar.
TOKEN_VARIABLE: Final = "PILOTFISH_TOKEN"  # noqa: S105 - the name of a variable
