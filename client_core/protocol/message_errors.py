"""Errors of the generated messages when a value does not fit a version.

Kept outside `messages/` so that the texts are in one place. Called by generated code only; pure.
"""

from __future__ import annotations

from client_core.errors import SerializationError, UnsupportedVersionError


def no_such_version(message: str, version: int, oldest: int, newest: int) -> UnsupportedVersionError:
    """The error for a version that this client has no schema of."""
    return UnsupportedVersionError(f"{message} v{version} is not spoken here, only v{oldest} to v{newest}")


def cannot_carry(message: str, version: int, field: str) -> UnsupportedVersionError:
    """The error for a field that is set and matters, at a version that has no room for it.

    `field` is Kafka's own name. Source: the UnsupportedVersionException of Kafka's generated messages.
    """
    return UnsupportedVersionError(f"{message} v{version} can't carry {field}, which is set")


def cannot_carry_null(message: str, version: int, field: str) -> UnsupportedVersionError:
    """The error for a field that is None, at a version that wants a value. Java: NullPointerException."""
    return UnsupportedVersionError(f"{message} v{version} can't carry {field} without a value")


def cannot_encode(message: str, version: int, problem: Exception) -> SerializationError:
    """The error for a number, text or length beyond what its field can hold."""
    return SerializationError(f"{message} v{version} can't be encoded: {problem}")
