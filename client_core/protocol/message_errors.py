"""Errors of values that do not fit a message's version.

Kept outside `messages/` so that the texts are in one place. Called by generated code only; pure.
"""

from __future__ import annotations

from client_core.errors import SerializationError, UnsupportedVersionError


def no_such_version(message: str, version: int, oldest: int, newest: int) -> UnsupportedVersionError:
    """Returns the error for a version without a schema in this client."""
    return UnsupportedVersionError(f"{message} v{version} is not supported, only v{oldest} to v{newest}")


def cannot_carry(message: str, version: int, field: str) -> UnsupportedVersionError:
    """Returns the error for a set field that is not ignorable, at a version without it.

    `field` is Kafka's own name. Source: the UnsupportedVersionException of Kafka's generated messages.
    """
    return UnsupportedVersionError(f"{message} v{version} can't carry {field}, which is set")


def cannot_carry_null(message: str, version: int, field: str) -> UnsupportedVersionError:
    """Returns the error for a None, at a version that requires a value. Java: NullPointerException."""
    return UnsupportedVersionError(f"{message} v{version} can't carry {field} without a value")


def cannot_encode(message: str, version: int, problem: Exception) -> SerializationError:
    """Returns the error for a number, text or length too large for its field."""
    return SerializationError(f"{message} v{version} can't be encoded: {problem}")
