"""The caller's settings over the defaults, as typed values, with notes to log.

One object per config, discarded afterwards. `config.py` and `security_settings.py` read from it and add notes
to it. Nothing is logged here, because a config may be built more than once; the producer logs the notes.
Pure: files are named, not read. Any thread. Source: AbstractConfig, Kafka 4.3.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from client_core.errors import ConfigError
from client_core.network.secret import SecretSource
from client_core.producer.settings.config_refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from client_core.producer.settings.config_def import Option

_T = TypeVar("_T")


class Remark(NamedTuple):
    """A note about a config that is not an error."""

    level: int  # logging.INFO or WARNING
    text: str


class GivenSettings:
    """Kafka's settings as given."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Raises ConfigError for a refused name. Values are checked when they are read."""
        for name in settings:
            if not isinstance(name, str):
                raise ConfigError("One or more keys is not a string.", name=str(name))
            refused = refusal(name)
            if refused is not None:
                raise refused
        self._settings: Final = settings
        self.remarks: Final[list[Remark]] = []
        self.unused: Final[list[str]] = []

    def __contains__(self, option: Option[object]) -> bool:
        """Returns whether it is given, itself or as a file."""
        return option.name in self._settings or option.file_name in self._settings

    def value(self, option: Option[_T]) -> _T:
        """Returns the given value, or else the default. Raises ConfigError."""
        value = self.optional(option)
        if value is None:
            raise ConfigError(
                f'Missing required configuration "{option.name}" which has no default value.',
                name=option.name,
            )
        return value

    def optional(self, option: Option[_T]) -> _T | None:
        """Returns the same for an option that may be left out and has no default. Raises ConfigError."""
        if option.name in self._settings:
            return option.read(self._settings[option.name])
        return None if option.default is None else option.read(option.default)

    def secret(self, option: Option[str]) -> SecretSource | None:
        """Returns the given text or file path. Raises ConfigError if both are given."""
        path = self._path(option)
        if path is not None:
            return SecretSource(path[0], path=path[1])
        if option.name not in self._settings:
            return None
        return SecretSource(option.name, text=self.value(option))

    def file(self, option: Option[str]) -> SecretSource | None:
        """Returns the file that an option names, such as ssl.keystore.location. Raises ConfigError."""
        path = self.optional(option)
        if path == "":
            raise ConfigError(f"{option.name} is empty; it must name a file", name=option.name)
        return None if path is None else SecretSource(option.name, path=path)

    def check(self, options: Iterable[Option[object]]) -> None:
        """Parses the given ones and drops the values. Raises ConfigError for an invalid one."""
        for option in options:
            if option.name in self._settings:
                option.read(self._settings[option.name])
            self._path(option)

    def shown(self, option: Option[object]) -> str | None:
        """Returns `name=value` for logs; None if it is neither given nor has a default."""
        path = self._path(option)
        if path is not None:
            return "=".join(path)
        value = self._settings.get(option.name, option.default)
        return None if value is None else f"{option.name}={option.show(option.read(value))}"

    def names(self, options: Iterable[Option[object]]) -> list[str]:
        """Returns the names by which these options are given, in their order."""
        pairs = ((option.name, option.file_name) for option in options)
        return [name for pair in pairs for name in pair if name is not None and name in self._settings]

    def note(self, text: str) -> None:
        """Adds a note for the log at INFO."""
        self.remarks.append(Remark(logging.INFO, text))

    def warn(self, text: str) -> None:
        """Adds a note for the log at WARNING."""
        self.remarks.append(Remark(logging.WARNING, text))

    def _path(self, option: Option[object]) -> tuple[str, str] | None:
        name = option.file_name
        if name is None or name not in self._settings:
            return None
        if option.name in self._settings:
            raise ConfigError(f"{option.name} and {name} are both given; choose one", name=option.name)
        path = self._settings[name]
        if not isinstance(path, str) or not path.strip():
            raise ConfigError(f"{name} must be the path of a file", name=name)
        return name, path.strip()
