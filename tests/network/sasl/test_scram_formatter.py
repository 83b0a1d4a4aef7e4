"""SCRAM's arithmetic. Twins of ScramFormatterTest (Kafka 4.3)."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_core.errors import IllegalArgumentError
from client_core.network.sasl import scram_sasl_client
from client_core.network.sasl.scram_messages import (
    ClientFinalMessage,
    ClientFirstMessage,
    ServerFinalMessage,
    ServerFirstMessage,
    auth_message,
)
from client_core.network.sasl.scram_sasl_client import MIN_ITERATIONS, ScramMechanism


@pytest.mark.behaviour("SASL-04")
@pytest.mark.java("ScramFormatterTest.rfc7677Example")
def test_rfc_7677_example() -> None:
    nonce = "rOprNGfwEbeRWgbNEkqO"
    whole_nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    client_first = ClientFirstMessage("user", nonce, {})
    assert str(client_first) == "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = ServerFirstMessage.parse(f"r={whole_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert server_first.nonce.removeprefix(nonce) == "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert server_first.salt == base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    assert server_first.iterations == 4096
    server_final = ServerFinalMessage.parse(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    mechanism = ScramMechanism.SCRAM_SHA_256
    client_final = ClientFinalMessage(whole_nonce)
    exchange = auth_message(client_first, server_first, client_final)
    salted = scram_sasl_client.salted_password(
        mechanism, "pencil", server_first.salt, server_first.iterations
    )
    proof = scram_sasl_client.client_proof(mechanism, salted, exchange)
    assert client_final.with_proof(proof) == (
        f"c=biws,r={whole_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert scram_sasl_client.server_signature(mechanism, salted, exchange) == server_final.server_signature
    assert MIN_ITERATIONS == 4096


@pytest.mark.behaviour("SASL-04")
@pytest.mark.java("ScramFormatterTest.saslName")
@pytest.mark.parametrize(
    "username", ["user1", "123", "1,2", "user=A", "user==B", "user,1", "user 1", ",", "=", ",=", "=="]
)
def test_sasl_name(username: str) -> None:
    name = scram_sasl_client.sasl_name(username)
    assert "," not in name
    assert "=" not in name.replace("=2C", "").replace("=3D", "")
    assert scram_sasl_client.username_of(name) == username


@given(st.text())
def test_any_user_name_survives_its_escaping(username: str) -> None:
    assert scram_sasl_client.username_of(scram_sasl_client.sasl_name(username)) == username


def test_an_equals_sign_of_its_own_is_no_user_name() -> None:
    with pytest.raises(IllegalArgumentError, match="Invalid username: a=b"):
        scram_sasl_client.username_of("a=b")


def test_xor_wants_two_of_a_length() -> None:
    assert scram_sasl_client.xor(b"\x0f\xff", b"\xff\xff") == b"\xf0\x00"
    with pytest.raises(IllegalArgumentError, match="Argument arrays must be of the same length"):
        scram_sasl_client.xor(b"\x00", b"")


def test_nonces_differ_and_are_printable_without_a_comma() -> None:
    nonces = {scram_sasl_client.secure_random_string() for _ in range(100)}
    assert len(nonces) == 100
    assert all(nonce.isalnum() and nonce.isascii() and len(nonce) > 15 for nonce in nonces)
