"""One exchange of SCRAM: what the golden exchanges (tests/golden/test_scram.py) do not show."""

from __future__ import annotations

import pytest

from client_core.errors import IllegalSaslStateError, SaslAuthenticationError
from client_core.network.sasl.scram_sasl_client import MAX_ITERATIONS, ScramMechanism, ScramSaslClient
from client_core.testing.sasl import Refused, ScramServer


def client(password: str = "pencil", username: str = "user") -> ScramSaslClient:
    return ScramSaslClient(ScramMechanism.SCRAM_SHA_512, username, password, {})


def server(*, forges_signature: bool = False) -> ScramServer:
    return ScramServer("SCRAM-SHA-512", {"user": "pencil"}, forges_signature=forges_signature)


def converse(ours: ScramSaslClient, theirs: ScramServer) -> None:
    answer: bytes | None = ours.evaluate_challenge(b"")
    while answer is not None:
        answer = ours.evaluate_challenge(theirs.evaluate(answer))


@pytest.mark.behaviour("SASL-04")
def test_both_sides_are_convinced() -> None:
    ours, theirs = client(), server()
    converse(ours, theirs)
    assert ours.complete
    assert theirs.principal == "user"


def test_a_server_that_speaks_first_is_refused() -> None:
    ours = client()
    with pytest.raises(SaslAuthenticationError, match="Expected empty challenge"):
        ours.evaluate_challenge(b"r=nonce")
    with pytest.raises(IllegalSaslStateError, match="FAILED"):
        ours.evaluate_challenge(b"")


@pytest.mark.behaviour("SASL-04")
def test_a_server_that_does_not_know_the_password_is_not_believed() -> None:
    ours = client()
    with pytest.raises(SaslAuthenticationError, match="Invalid server signature in server final message"):
        converse(ours, server(forges_signature=True))
    assert not ours.complete


def test_the_wrong_password_is_refused_by_the_server() -> None:
    with pytest.raises(Refused):
        converse(client("paper"), server())


@pytest.mark.behaviour("SASL-04")
def test_passwords_are_hashed_as_the_utf_8_that_they_are() -> None:
    """SASLprep would make of the soft hyphen nothing, and of the ligature two letters."""
    theirs = ScramServer("SCRAM-SHA-512", {"user": "I\u00adX \ufb01"})
    converse(client("I\u00adX \ufb01"), theirs)
    assert theirs.principal == "user"


def test_a_server_that_wants_to_keep_us_busy_is_refused() -> None:
    ours = client()
    nonce = (ours.evaluate_challenge(b"") or b"").partition(b",r=")[2].decode()
    with pytest.raises(SaslAuthenticationError, match="iterations 2147483647 is more than the maximum"):
        ours.evaluate_challenge(f"r={nonce}x,s=AAE=,i=2147483647".encode())
    assert MAX_ITERATIONS < 1_000_000


def test_nothing_is_said_after_a_failure() -> None:
    ours = client()
    ours.evaluate_challenge(b"")
    with pytest.raises(SaslAuthenticationError):
        ours.evaluate_challenge(b"nonsense")
    with pytest.raises(IllegalSaslStateError, match="Unexpected challenge in Sasl client state FAILED"):
        ours.evaluate_challenge(b"")


def test_repr_says_how_far_it_is_and_nothing_else() -> None:
    ours = client("hunter2", "alice")
    assert repr(ours) == "<ScramSaslClient SCRAM-SHA-512 SEND_CLIENT_FIRST_MESSAGE>"


@pytest.mark.behaviour("SASL-04")
def test_a_server_that_wants_a_weak_hash_is_refused() -> None:
    ours = client()
    nonce = (ours.evaluate_challenge(b"") or b"").partition(b",r=")[2].decode()
    with pytest.raises(SaslAuthenticationError, match="iterations 4095 is less than the minimum 4096"):
        ours.evaluate_challenge(f"r={nonce}x,s=AAE=,i=4095".encode())
    ours = client()
    nonce = (ours.evaluate_challenge(b"") or b"").partition(b",r=")[2].decode()
    assert ours.evaluate_challenge(f"r={nonce}x,s=AAE=,i=4096".encode())
