"""Names of the variables that are read from the environment."""

from __future__ import annotations

from typing import Final

#: Before the name of each of the sidecar's own settings: PILOTFISH_API_PORT.
PREFIX: Final = "PILOTFISH_"

#: Before the name of each of Kafka's, dots as underscores: PILOTFISH_KAFKA_LINGER_MS.
KAFKA_PREFIX: Final = "PILOTFISH_KAFKA_"

#: The file with settings.
CONFIG_VARIABLE: Final = "PILOTFISH_CONFIG"

#: A caller's token, for the commands that ask a sidecar; no setting of one.
TOKEN_VARIABLE: Final = "PILOTFISH_TOKEN"  # noqa: S105 - the name of a variable
