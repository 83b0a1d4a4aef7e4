"""Gets OAUTHBEARER tokens from the application's callable: sasl.oauthbearer.token.provider.

The callable takes no arguments, may block, and returns one of

    token                                   a JWT: its claims hold its lifetime and its principal
    (token, expires_at_ms)                  any other token; the time is milliseconds since 1970
    (token, expires_at_ms, principal)       without a principal, all its tokens count as one principal's

It is called on the login's own thread; several clients may call it at once. An exception is a temporary
failure; the log has its type and never its text, which may hold secrets. A callable that hangs keeps its
thread; connections end by their own timeout, and `close` waits for it for two seconds at most. Unusable
results are refused, and never shown.

A callable given by its place is imported when the client is built. No Java counterpart; Java loads a class
(sasl.login.callback.handler.class).
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError, DisconnectError, SaslAuthenticationError
from client_core.network.sasl.client_jwt_validator import OAuthBearerToken, is_sendable

if TYPE_CHECKING:
    from collections.abc import Callable

    from client_core.network.security_config import TokenProvider

TOKEN_PROVIDER: Final = "sasl.oauthbearer.token.provider"  # noqa: S105 - the name of a setting

#: Milliseconds since 1970 have reached this in 1973, seconds will in the year 5138.
_LEAST_MS: Final = 10**11
#: Java's 64 bits.
_MOST_MS: Final = 2**63 - 1

#: Modules that our own callables need, and the extras that bring them.
_EXTRAS: Final = {"aws_msk_iam_sasl_signer": "msk-iam"}

_SHAPE: Final = "return a JWT, or (token, expires_at_ms) or (token, expires_at_ms, principal)"


class ProviderJwtRetriever:
    """One callable. One thread calls `retrieve`, any `cancel`."""

    setting: Final = TOKEN_PROVIDER

    def __init__(self, provider: TokenProvider) -> None:
        """Imports the callable. Raises ConfigError if `module:attribute` names no callable."""
        self._function = _imported(provider.place) if provider.function is None else provider.function
        self._place = provider.place
        self.shown = f"{TOKEN_PROVIDER} {provider.place}"
        self._is_cancelled = False

    def retrieve(self) -> str | OAuthBearerToken:
        """Calls it. Raises DisconnectError, SaslAuthenticationError."""
        self._ensure_not_cancelled()
        raised: str | None = None
        returned: object = None
        try:
            returned = self._function()
        except BaseException as error:  # noqa: BLE001 - a user's code, which may try to end the process
            raised = type(error).__name__
        self._ensure_not_cancelled()
        if raised is not None:  # outside of the handler: an error's text and its frames may hold secrets
            raise DisconnectError(f"{self.shown} raised {raised}")
        if not isinstance(returned, str):
            return self._with_lifetime(returned)
        if not returned.strip():
            raise self._refused("an empty token")
        return returned

    def cancel(self) -> None:
        """Makes all later calls of `retrieve` fail; a running callable ends by itself."""
        self._is_cancelled = True

    def _ensure_not_cancelled(self) -> None:
        if self._is_cancelled:
            raise DisconnectError("the client is closing")

    def _with_lifetime(self, returned: object) -> OAuthBearerToken:
        token, expires_ms, principal = self._parts(returned)
        if not isinstance(token, str):
            raise self._refused(f"a {type(token).__name__} as token; it must {_SHAPE}")
        token = token.strip()
        if not token:
            raise self._refused("an empty token")
        if not is_sendable(token):
            raise self._refused("a token with characters that SASL can't carry")
        if principal is not None and (not isinstance(principal, str) or not principal.strip()):
            raise self._refused("a principal that is no text, or empty")
        name = self._place if principal is None else principal.strip()
        return OAuthBearerToken(token, frozenset(), self._time_ms(expires_ms), name, None)

    def _parts(self, returned: object) -> tuple[object, object, object]:
        if inspect.iscoroutine(returned):
            returned.close()  # else Python warns of it
        match returned:
            case (token, expires_ms):
                return token, expires_ms, None
            case (token, expires_ms, principal):
                return token, expires_ms, principal
        raise self._refused(f"a {type(returned).__name__}; it must {_SHAPE}")

    def _time_ms(self, expires_ms: object) -> int:
        # Floats are what time.time() * 1000 gives. NaN is in no range.
        if isinstance(expires_ms, bool) or not isinstance(expires_ms, int | float):
            raise self._refused(f"a {type(expires_ms).__name__} as expires_at_ms; it must be milliseconds")
        if not _LEAST_MS <= expires_ms <= _MOST_MS:
            raise self._refused("an expires_at_ms that is no time in milliseconds; is it in seconds?")
        return int(expires_ms)

    def _refused(self, what: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(f"{self.shown} returned {what}")

    def __repr__(self) -> str:
        return f"<ProviderJwtRetriever {self._place}>"


def _imported(place: str) -> Callable[[], object]:
    """Returns the callable at `module:attribute`. Raises ConfigError naming what is missing."""
    module_name, _, attribute = place.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _missing(place, module_name, error.name or module_name) from None
    except Exception as error:  # noqa: BLE001 - a user's module
        # Without a chain: the text may hold secrets.
        raise _refused(
            place,
            f"the module {module_name} can't be imported ({type(error).__name__});"
            f" python -c 'import {module_name}' shows why",
        ) from None
    for name in attribute.split("."):
        found = getattr(found, name, None)
    if found is None:
        raise _refused(place, f"the module {module_name} has no {attribute}; name one that is there")
    if not callable(found):
        raise _refused(place, f"{attribute} is a {type(found).__name__}; name a callable")
    if inspect.iscoroutinefunction(found):
        raise _refused(place, f"{attribute} is async; name a plain function, which may block")
    return found


def _missing(place: str, module_name: str, missing: str) -> ConfigError:
    if f"{module_name}.".startswith(f"{missing}."):
        return _refused(
            place,
            f"there is no module {missing}; install it, or add its folder to PYTHONPATH",
        )
    extra = _EXTRAS.get(missing)
    remedy = (
        "install it"
        if extra is None
        else f"install this package with its extra {extra}, as pip install 'dist/NAME.whl[{extra}]'"
    )
    return _refused(place, f"{module_name} needs the module {missing}, which is not installed; {remedy}")


def _refused(place: str, what: str) -> ConfigError:
    return ConfigError(f"{TOKEN_PROVIDER}={place}: {what}", name=TOKEN_PROVIDER)
