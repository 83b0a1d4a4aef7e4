"""SCRAM as Java's client speaks it with Java's server, message by message, and what Java's client refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from client_core.network.sasl.sasl_client import in_one_line
from tests.golden.adapters_sasl import ERRORS, challenges_before_the_failure, scram_client

if TYPE_CHECKING:
    from tests.golden.conftest import Cases


@pytest.mark.behaviour("SASL-04")
@pytest.mark.golden("scram_exchanges.json")
def test_an_exchange_is_javas_byte_for_byte(cases: Cases) -> None:
    for case in cases:
        client = scram_client(case)
        assert client.evaluate_challenge(b"") == case["client_first"].encode()
        assert client.evaluate_challenge(case["server_first"].encode()) == case["client_final"].encode()
        assert client.evaluate_challenge(case["server_final"].encode()) is None
        assert client.complete


@pytest.mark.behaviour("SASL-04")
@pytest.mark.golden("scram_client_errors.json")
def test_a_challenge_that_java_refuses_is_refused_in_its_words(cases: Cases) -> None:
    for case in cases:
        client = scram_client(case)
        for challenge in challenges_before_the_failure(case):
            client.evaluate_challenge(challenge)
        with pytest.raises(ERRORS[case["java_exception"]]) as caught:
            client.evaluate_challenge(case["failing_challenge"].encode())
        assert str(caught.value) == in_one_line(case["java_message"])
        assert client.complete is (case["failing_step"] == "after_complete")
