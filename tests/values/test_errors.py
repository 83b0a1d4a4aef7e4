"""The tree of errors and the table behind it."""

from __future__ import annotations

import builtins

import pytest

from client_core import errors
from client_core.error_codes import Errors


def test_every_code_of_the_table_becomes_an_exception_that_keeps_its_code_and_text() -> None:
    for row in Errors:
        if row is Errors.NONE:
            continue
        error = errors.error_for(row.code)
        assert error.code == row.code
        assert str(error) == row.message
        assert (error.retriable, error.refreshes_metadata) == (row.retriable, row.refreshes_metadata)


def test_class_and_attributes_of_an_error_never_disagree() -> None:
    for row in Errors:
        if row is Errors.NONE:
            continue
        error = errors.error_for(row.code)
        assert isinstance(error, errors.InvalidMetadataError) == row.refreshes_metadata
        assert isinstance(error, errors.RetriableError) == row.retriable


@pytest.mark.java("ErrorsTest.UniqueErrorCodes")
def test_codes_are_unique() -> None:
    assert len({row.code for row in Errors}) == len(Errors)


def test_a_code_newer_than_this_client_is_an_unknown_server_error_that_keeps_the_number() -> None:
    error = errors.error_for(9_999)
    assert type(error) is errors.UnknownServerError
    assert error.code == 9_999
    assert "9999" in str(error)


def test_the_brokers_own_text_wins() -> None:
    assert str(errors.error_for(44, "retention must be set")) == "retention must be set"


@pytest.mark.java("ErrorsTest.NoneException")
def test_success_is_no_exception() -> None:
    with pytest.raises(errors.IllegalArgumentError, match="code 0"):
        errors.error_for(0)


def test_codes_that_share_a_row_get_the_class_that_java_gives_them() -> None:
    for code, expected in (
        (3, errors.UnknownTopicOrPartitionError),
        (7, errors.TimeoutError),
        (13, errors.NetworkError),
        (17, errors.InvalidTopicError),
        (29, errors.TopicAuthorizationError),
        (58, errors.SaslAuthenticationError),
        (74, errors.FencedLeaderEpochError),
    ):
        assert type(errors.error_for(code)) is expected, code


def test_a_timeout_is_also_pythons_own() -> None:
    with pytest.raises(builtins.TimeoutError):
        raise errors.BufferExhaustedError("full")


def test_what_a_timeout_was_caused_by_has_the_words_of_its_cause() -> None:
    cause = errors.Cause(Errors.NOT_ENOUGH_REPLICAS, 2, 3, 900, "2 of 3 are in sync")
    reason = errors.TimeoutError("late").because_of(cause).__cause__
    assert (type(reason), str(reason)) == (errors.NotEnoughReplicasError, "2 of 3 are in sync")


def test_the_whole_chain_is_shown_on_one_line() -> None:
    cause = errors.UnknownTopicOrPartitionError()
    error = errors.TimeoutError("Topic t not present in metadata after 5 ms.")
    error.__cause__ = cause
    assert errors.explains(error) == (
        "TimeoutError: Topic t not present in metadata after 5 ms.; caused by "
        "UnknownTopicOrPartitionError: This server does not host this topic-partition."
    )


def test_repr_is_for_people() -> None:
    assert repr(errors.ConfigError("acks must be …", name="acks")) == "ConfigError('acks must be …')"


def test_a_client_that_never_heard_of_a_broker_may_be_asked_again() -> None:
    assert errors.NoBrokersError().retriable
