"""The text of `client_core/broker_errors.py`: a class for each error code that `errors.py` has none for.

Names are Java's, with Error for Exception: mostly the code's name, else from the table here. Pure. Source:
Errors, Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client_core import errors
from client_core.error_codes import Errors

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where Java's class isn't named like its code.
_NAMES: Final = {
    Errors.STALE_CONTROLLER_EPOCH: "ControllerMovedError",
    Errors.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationError",
    Errors.INVALID_CONFIG: "InvalidConfigurationError",
    Errors.INVALID_PRODUCER_ID_MAPPING: "InvalidPidMappingError",
    Errors.INVALID_TRANSACTION_TIMEOUT: "InvalidTxnTimeoutError",
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationError",
    Errors.DELEGATION_TOKEN_AUTH_DISABLED: "DelegationTokenDisabledError",
    Errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "UnsupportedByAuthenticationError",
    Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationError",
    Errors.NON_EMPTY_GROUP: "GroupNotEmptyError",
    Errors.PRINCIPAL_DESERIALIZATION_FAILURE: "PrincipalDeserializationError",
    Errors.FETCH_SESSION_TOPIC_ID_ERROR: "FetchSessionTopicIdError",
}
_DENIED: Final = "AUTHORIZATION_FAILED"

_HEAD: Final = '''"""The classes of Kafka's error codes that a producer rarely meets. Generated: do not edit.

By `python -m client_core.protocol.generate`, from the table in `error_codes.py`. `errors.py` has the others,
and `error_for`, which finds the class of a code.
"""

from __future__ import annotations

from client_core.error_codes import Errors
from client_core.errors import ApiError, AuthorizationError, InvalidMetadataError, RetriableError
'''


def broker_errors_text() -> str:
    """Returns the module's text."""
    classes = sorted((name, base, row) for row, name, base in _rows())
    names = "".join(f'    "{name}",\n' for name, _, _ in classes)
    code = "".join(f"\n\nclass {name}({base}):\n    error = Errors.{row}\n" for name, base, row in classes)
    return f"{_HEAD}\n__all__ = [\n{names}]\n{code}"


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yields the code's name, the class's name and its base."""
    for row in Errors:
        if row is Errors.NONE or errors.class_of(row).__module__ == errors.__name__:
            continue
        name = _NAMES.get(row)
        if name is None:
            words = row.name.removesuffix("_EXCEPTION").split("_")
            name = "".join(word.capitalize() for word in words) + "Error"
        if row.name.endswith(_DENIED):
            base = "AuthorizationError"
        elif row.refreshes_metadata:
            base = "InvalidMetadataError"
        else:
            base = "RetriableError" if row.retriable else "ApiError"
        yield row.name, name, base
