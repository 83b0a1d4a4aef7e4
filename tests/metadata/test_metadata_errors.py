"""Errors of responses: each is raised once, and asking for one forgets all (META-19)."""

from __future__ import annotations

import pytest

from client_core.errors import AuthenticationError, InvalidTopicError, TopicAuthorizationError
from client_core.metadata.topic_answers import MetadataErrors


@pytest.fixture
def errors() -> MetadataErrors:
    errors = MetadataErrors()
    errors.answered(frozenset({"secret", "hidden"}), frozenset({"bad name"}))
    return errors


def test_nothing_went_wrong() -> None:
    assert MetadataErrors().take() is None
    assert MetadataErrors().take("t") is None


@pytest.mark.behaviour("META-19")
def test_topics_without_authorization_go_before_invalid_ones(errors: MetadataErrors) -> None:
    taken = errors.take()
    assert isinstance(taken, TopicAuthorizationError)
    assert str(taken) == "Not authorized to access topics: [hidden, secret]"
    assert errors.take() is None


def test_a_topic_gets_the_error_that_concerns_it(errors: MetadataErrors) -> None:
    taken = errors.take("bad name")
    assert isinstance(taken, InvalidTopicError)
    assert str(taken) == "Invalid topics: [bad name]"


@pytest.mark.behaviour("META-19")
def test_asking_for_another_topic_forgets_all_the_same(errors: MetadataErrors) -> None:
    assert errors.take("good") is None
    assert errors.take("secret") is None


@pytest.mark.behaviour("META-19", "META-20")
def test_the_fatal_error_goes_first_whatever_the_topic(errors: MetadataErrors) -> None:
    errors.fatal = AuthenticationError("who are you?")
    assert isinstance(errors.take("bad name"), AuthenticationError)
    assert errors.take("bad name") is None


def test_taking_the_fatal_error_leaves_the_others(errors: MetadataErrors) -> None:
    errors.fatal = AuthenticationError()
    assert isinstance(errors.take_fatal(), AuthenticationError)
    assert errors.take_fatal() is None
    assert isinstance(errors.take("secret"), TopicAuthorizationError)
