"""Between Java's SCRAM vectors and `client_core.network.sasl`: names only."""

from __future__ import annotations

from typing import Any, Final

from client_core.errors import IllegalSaslStateError, SaslAuthenticationError
from client_core.network.sasl.scram_sasl_client import ScramMechanism, ScramSaslClient

#: Our errors by Java's names.
ERRORS: Final = {
    "javax.security.sasl.SaslException": SaslAuthenticationError,
    "org.apache.kafka.common.errors.IllegalSaslStateException": IllegalSaslStateError,
}

#: What the broker says, in its order, up to the step that fails.
STEPS: Final = ("initial", "server_first", "server_final", "after_complete")


def scram_client(case: dict[str, Any]) -> ScramSaslClient:
    """The client of a case, with its nonce."""
    nonce = case["client_first"].partition(",r=")[2].partition(",")[0] if "client_first" in case else None
    mechanism = ScramMechanism(case["mechanism"])
    return ScramSaslClient(mechanism, case["username"], case["password"], {}, nonce)


def challenges_before_the_failure(case: dict[str, Any]) -> list[bytes]:
    """What the broker says and the client takes."""
    said = {
        "initial": "",
        "server_first": case.get("server_first"),
        "server_final": case.get("server_final", case["failing_challenge"]),
    }
    return [said[step].encode() for step in STEPS[: STEPS.index(case["failing_step"])]]
