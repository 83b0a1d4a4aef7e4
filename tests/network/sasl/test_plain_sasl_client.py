"""PLAIN on literal bytes."""

from __future__ import annotations

import pytest

from client_core.errors import IllegalSaslStateError
from client_core.network.sasl.sasl_client import PlainSaslClient


@pytest.mark.behaviour("SASL-05")
def test_the_token_is_nothing_the_name_and_the_password() -> None:
    client = PlainSaslClient("alice", "päss wörd")
    assert not client.complete
    assert client.evaluate_challenge(b"") == b"\x00alice\x00p\xc3\xa4ss w\xc3\xb6rd"
    assert client.complete


def test_there_is_only_one_token() -> None:
    client = PlainSaslClient("alice", "secret")
    client.evaluate_challenge(b"")
    with pytest.raises(IllegalSaslStateError, match="already completed"):
        client.evaluate_challenge(b"more")


def test_repr_shows_no_credentials() -> None:
    client = PlainSaslClient("alice", "secret")
    assert repr(client) == "<PlainSaslClient INITIAL>"
    client.evaluate_challenge(b"")
    assert repr(client) == "<PlainSaslClient COMPLETE>"
