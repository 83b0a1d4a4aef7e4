"""Defines a setting: its type, its valid values, and how to parse them.

Values are text, from an environment or a properties file, or Python values. The settings themselves are in
`config_options.py` and `security_options.py`. Pure. Source: ConfigDef, its parseType and validators,
Kafka 4.3.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from client_core.errors import ConfigError
from client_core.network.secret import HIDDEN
from client_core.network.security_config import TokenProvider

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_N = TypeVar("_N", int, float)

#: Covariant, because an option only returns values: an Option[int] is an Option[object], too.
_V = TypeVar("_V", covariant=True)

SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_MOST_DIGITS: Final = len(str(LONG_MAX))

#: What Java's trim() removes. str.strip() also removes spaces that a password may end with, such as U+3000.
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))


def invalid_value(name: str, value: object, why: str) -> ConfigError:
    """Java's ConfigException(name, value, message)."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {why}", name=name)


# -- types ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind(Generic[_T]):
    """A type of ConfigDef: its name there, its parser, and what hides the secrets in its values (`mask`)."""

    name: str
    parse: Callable[[str, object], _T]
    secret: bool = False
    mask: Callable[[str], str] = str


def _parse_integer(name: str, value: object, kind: str, bits: int, largest: int) -> int:
    if isinstance(value, str):
        text = value.strip(_TRIMMED)
        digits = text[1:] if text[:1] in ("-", "+") else text
        # int() would take underscores, which Java's parseInt doesn't. parseInt takes digits beyond ASCII,
        # which this does not.
        if not (digits.isascii() and digits.isdigit()):
            raise invalid_value(name, value, f"Not a number of type {kind}")
        # int() raises its own ValueError for thousands of digits, even for leading zeros.
        digits = digits.lstrip("0") or "0"
        number = int(digits) if len(digits) <= _MOST_DIGITS else largest + 2
        number = -number if text[0] == "-" else number
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        article = f"{bits}-bit integer" + ("" if kind == "INT" else f" ({kind.lower()})")
        raise invalid_value(
            name, value, f"Expected value to be a {article}, but it was a {type(value).__name__}"
        )
    if not -largest - 1 <= number <= largest:
        raise invalid_value(name, value, f"Not a number of type {kind}")
    return number


def _parse_short(name: str, value: object) -> int:
    return _parse_integer(name, value, "SHORT", 16, SHORT_MAX)


def _parse_int(name: str, value: object) -> int:
    return _parse_integer(name, value, "INT", 32, INT_MAX)


def _parse_long(name: str, value: object) -> int:
    return _parse_integer(name, value, "LONG", 64, LONG_MAX)


def _parse_double(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise invalid_value(
            name, value, f"Expected value to be a double, but it was a {type(value).__name__}"
        )
    try:
        # float() would take underscores too, parseDouble doesn't.
        number = math.nan if isinstance(value, str) and "_" in value else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise invalid_value(name, value, "Not a number of type DOUBLE")
    return number


def _parse_boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip(_TRIMMED).lower() if isinstance(value, str) else ""
    if word not in ("true", "false"):
        raise invalid_value(name, value, "Expected value to be either true or false")
    return word == "true"


def _parse_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid_value(
            name, value, f"Expected value to be a string, but it was a {type(value).__name__}"
        )
    return value.strip(_TRIMMED)


def _parse_list(name: str, value: object) -> tuple[str, ...]:
    """Returns each value once, as Java does."""
    if isinstance(value, str):
        text = value.strip(_TRIMMED)
        value = [part.strip(_TRIMMED) for part in text.split(",")] if text else ()
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return tuple(dict.fromkeys(str(part) for part in value))
    raise invalid_value(name, value, "Expected a comma separated list.")


def _parse_url(name: str, value: object) -> str:
    """Returns a URL. Raises ConfigError if it has a user or password, which logs would show."""
    url = _parse_string(name, value)
    try:
        has_user = urlsplit(url).username is not None
    except ValueError as error:
        raise invalid_value(name, HIDDEN, "Not a URL") from error
    if has_user:
        raise invalid_value(name, HIDDEN, "Must not contain user and password: they have their own settings")
    return url


def _without_query(url: str) -> str:
    """Hides what may be secret: a URL's query, or the whole text if it has an @."""
    if "@" in url:
        return HIDDEN
    address, question_mark, _ = url.partition("?")
    return f"{address}?{HIDDEN}" if question_mark else address


def _parse_password(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid_value(
            name, HIDDEN, f"Expected value to be a string, but it was a {type(value).__name__}"
        )
    return value.strip(_TRIMMED)


def _parse_provider(name: str, value: object) -> TokenProvider:
    """Returns a provider of module:attribute, or of a callable. Nothing is imported or called here."""
    if isinstance(value, str):
        place = value.strip()
        parts = place.split(":")
        if len(parts) != 2 or not all(word.isidentifier() for part in parts for word in part.split(".")):
            raise invalid_value(name, HIDDEN, "Must be module:attribute, such as billing.tokens:kafka_token")
        return TokenProvider(place)
    if not callable(value):
        raise invalid_value(
            name,
            HIDDEN,
            f"Expected value to be a callable or module:attribute, but it was a {type(value).__name__}",
        )
    if inspect.iscoroutinefunction(value):
        raise invalid_value(name, HIDDEN, "Must be a plain function, which may block; this one is async")
    return TokenProvider.of(value)


SHORT: Final = Kind("SHORT", _parse_short)
INT: Final = Kind("INT", _parse_int)
LONG: Final = Kind("LONG", _parse_long)
DOUBLE: Final = Kind("DOUBLE", _parse_double)
BOOLEAN: Final = Kind("BOOLEAN", _parse_boolean)
STRING: Final = Kind("STRING", _parse_string)
URL: Final = Kind("STRING", _parse_url, mask=_without_query)
CLASS: Final = Kind("CLASS", _parse_string)
LIST: Final = Kind("LIST", _parse_list)
PASSWORD: Final = Kind("PASSWORD", _parse_password, secret=True)
PROVIDER: Final = Kind("STRING", _parse_provider)


# -- valid values --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule(Generic[_T]):
    """The valid values of a type: in Kafka's notation, and as a check that returns the error, or None."""

    text: str
    complaint: Callable[[_T], str | None]


def at_least(smallest: int) -> Rule[int]:
    def complaint(value: int) -> str | None:
        return f"Value must be at least {smallest}" if value < smallest else None

    return Rule(f"[{smallest},...]", complaint)


def between(smallest: _N, largest: _N) -> Rule[_N]:
    def complaint(value: _N) -> str | None:
        if value > largest:
            return f"Value must be no more than {largest}"
        return f"Value must be at least {smallest}" if value < smallest else None

    return Rule(f"[{smallest},...,{largest}]", complaint)


def between_or(smallest: int, largest: int, other: int) -> Rule[int]:
    def complaint(value: int) -> str | None:
        if smallest <= value <= largest or value == other:
            return None
        return f"Value must be between {smallest} and {largest} or equal to {other}"

    return Rule(f"[{smallest},...,{largest}] or {other}", complaint)


def one_of(*words: str) -> Rule[str]:
    def complaint(value: str) -> str | None:
        return None if value in words else f"String must be one of: {', '.join(words)}"

    return Rule(f"[{', '.join(words)}]", complaint)


def one_of_any_case(*words: str) -> Rule[str]:
    def complaint(value: str) -> str | None:
        if value.upper() in words:
            return None
        return f"String must be one of (case insensitive): {', '.join(words)}"

    return Rule(f"(case insensitive) [{', '.join(words)}]", complaint)


def _blank(values: tuple[str, ...]) -> str | None:
    return None if all(values) else "values must not be empty."


def _filled(values: tuple[str, ...]) -> str | None:
    if not values:
        return "must not be empty. Valid values include: any non-empty value"
    return _blank(values)


ANY_LIST: Final = Rule("", _blank)
FILLED_LIST: Final = Rule("", _filled)


# -- settings ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option(Generic[_V]):
    """One setting of Kafka's, or of ours where `is_ours`.

    `default` is in Kafka's spelling, or None. `kafka_default` is Kafka's own default if ours differs. `valid`
    are Kafka's valid values, `taken` those of them that this client takes.

    An option that `may_be_file` has a companion, `file_name`: the path of a file that holds its value, and
    that may change while the client runs.
    """

    name: str
    kind: Kind[_V]
    default: str | None
    valid: Rule[_V] | None
    doc: str
    taken: Rule[_V] | None = None
    required: bool = False
    kafka_default: str | None = None
    is_ours: bool = False
    may_be_file: bool = False

    @property
    def file_name(self) -> str | None:
        """The name of the companion, if there is one."""
        return f"{self.name}.file" if self.may_be_file else None

    def read(self, value: object) -> _V:
        """Returns the typed value; raises ConfigError with Kafka's text."""
        parsed = self.kind.parse(self.name, value)
        for rule in (self.valid, self.taken):
            complaint = rule.complaint(parsed) if rule is not None else None
            if complaint is not None:
                raise self._refused(parsed, complaint)
        return parsed

    def _refused(self, parsed: _T, complaint: str) -> ConfigError:
        if self.kind.name == "LIST":
            return ConfigError(f"Configuration '{self.name}' {complaint}", name=self.name)
        return invalid_value(self.name, self.show(parsed), complaint)

    def show(self, value: object) -> str:
        """Returns the value as logs, reprs and status answers may show it."""
        if self.kind.secret:
            return HIDDEN
        return self.kind.mask(",".join(map(str, value)) if isinstance(value, tuple) else str(value))
