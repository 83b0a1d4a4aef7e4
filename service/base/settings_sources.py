"""Reads settings from flags, the environment and a TOML file.

    flag                      environment                    file (TOML)
    --api-port 8085           PILOTFISH_API_PORT=8085        api_port = 8085
    --kafka linger.ms=0       PILOTFISH_KAFKA_LINGER_MS=0    [kafka]
                                                             linger.ms = 0

A flag takes precedence over the environment, the environment over the file. A Kafka setting may also come
from its own file, named by `PILOTFISH_KAFKA_…_FILE`. If the setting is a password, key or certificate
(`….file`), the client watches that file itself. Any other file is read here, once. An unknown name is
rejected, with the nearest known one. Called once by `cli/serve.py`, before any thread starts.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from client_core import OPTIONS, ConfigError
from service.base.environment import CONFIG_VARIABLE, KAFKA_PREFIX, PREFIX, TOKEN_VARIABLE
from service.base.settings import OWN_NAMES, REMOVED, Settings, removed

#: The variables that the kubelet sets for a Service whose name begins with "pilotfish". They are no settings.
_SERVICE_LINK: Final = re.compile(
    r"(.*_)?SERVICE_(HOST|PORT(_\w+)?)|(.*_)?PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?"
)


_NAME: Final = re.compile(r"[\w.-]*")

#: The longest number that an error message shows: no setting needs a longer one.
_SHOWN_BITS: Final = 128

#: Settings whose file the client itself reads and watches: `sasl.password` and `sasl.password.file`.
_WATCHED_FILES: Final[Mapping[str, str]] = {
    option.name: option.file_name for option in OPTIONS if option.file_name is not None
}
_KAFKA_NAMES: Final = frozenset(option.name for option in OPTIONS)

#: The remedy if no broker is named.
_NO_BROKERS: Final = " Say --kafka bootstrap.servers=HOST:9092, or --embedded to try it out."


class SettingsError(Exception):
    """Settings are invalid. The message has one line for each, with its name and the reason."""


def load_settings(
    flags: Mapping[str, object], kafka_flags: Sequence[str] = (), config_file: str | None = None
) -> Settings:
    """Returns the settings: flags over environment over file. Raises SettingsError, one line per fault."""
    file = _from_file(config_file or os.environ.get(CONFIG_VARIABLE) or None)
    environment, kafka_environment = _from_environment(os.environ)
    try:
        kafka_of_file = _flattened(file.pop("kafka", {}))
    except RecursionError as e:  # each part of a.a.a.a... is a nested table
        raise SettingsError("kafka: its tables are nested too deeply") from e
    kafka = _over(_over(kafka_of_file, kafka_environment), _from_kafka_flags(kafka_flags))
    return check_settings({**file, **environment, **flags}, kafka)


def check_settings(own: Mapping[str, object], kafka: Mapping[str, str]) -> Settings:
    """Returns the settings made of these values alone. Raises SettingsError, one line per fault."""
    _refuse_broken_text({**own, **{f"kafka: {name}": value for name, value in kafka.items()}})
    try:
        settings = Settings.model_validate({**own, "kafka": dict(kafka)})
        settings.producer_config()
    except ValidationError as e:
        raise SettingsError("\n".join(_explained(error) for error in e.errors())) from e
    except ConfigError as e:
        # The message names the setting already.
        remedy = _NO_BROKERS if "bootstrap.servers" not in kafka and e.name == "bootstrap.servers" else ""
        raise SettingsError(f"kafka: {e.message}{remedy}") from e
    return settings


def _refuse_broken_text(values: Mapping[str, object]) -> None:
    """Raises SettingsError for a value that is not UTF-8 or has a zero byte.

    Python turns bytes that are not UTF-8 into surrogates, which no request, event or file can hold.

    A zero byte can't be part of a path or a host, and most system calls would raise ValueError.
    """
    for name, value in values.items():
        texts = value if isinstance(value, list | tuple) else (value,)
        text = "".join(text for text in texts if isinstance(text, str))
        try:
            text.encode()
        except UnicodeEncodeError as e:
            raise SettingsError(f"{name.encode('ascii', 'replace').decode()}: the value is not UTF-8") from e
        if "\0" in text:
            raise SettingsError(f"{name}: the value contains a zero byte; remove it")


def _over(lower: Mapping[str, str], upper: Mapping[str, str]) -> dict[str, str]:
    """Merges two sources. A secret in `upper` also overrides the file for it in `lower`, and vice versa."""
    beaten = {file for name, file in _WATCHED_FILES.items() if name in upper}
    beaten |= {name for name, file in _WATCHED_FILES.items() if file in upper}
    return {**{name: value for name, value in lower.items() if name not in beaten}, **upper}


# -- the file ------------------------------------------------------------------------------------------------


def _from_file(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        # Editors on Windows begin a file with a byte order mark.
        read = tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as e:
        raise SettingsError(f"config: can't read {path}: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        raise SettingsError(f"config: {path} is not TOML: {e}") from e
    for name in read:
        if name not in (*OWN_NAMES, "kafka"):
            raise SettingsError(f"{name} (in {path}): {_unknown(name)}")
    return read


def _flattened(table: object, prefix: str = "") -> dict[str, str]:
    """Joins nested tables: to TOML, `linger.ms = 0` is a table in a table, and `"linger.ms" = 0` is not."""
    if not isinstance(table, Mapping):
        raise SettingsError("kafka: must be a table of Kafka's settings")
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found = _flattened(value, f"{name}.")
        else:
            try:
                found = {name: _kafka_text(value)}
            except ValueError as e:  # a number of thousands of digits, which TOML may write in hexadecimal
                raise SettingsError(f"kafka: {name}: {e}") from e
        for twice in found.keys() & flat.keys():  # with quotes and without, which TOML takes for two names
            raise SettingsError(f"kafka: {twice} is given twice in the file; remove one")
        flat.update(found)
    return flat


def _kafka_text(value: object) -> str:
    """Returns a value as Kafka's properties files write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(_kafka_text(item) for item in value)
    return str(value)


# -- the environment -----------------------------------------------------------------------------------------


def _from_environment(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    own: dict[str, Any] = {}
    kafka: dict[str, str] = {}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in (CONFIG_VARIABLE, TOKEN_VARIABLE):
            continue
        if variable != variable.upper():
            raise SettingsError(f"{variable}: unknown setting; variables are in capitals: {variable.upper()}")
        name = variable.removeprefix(PREFIX).lower()
        if name in OWN_NAMES:
            _refuse_service_link(variable, value)
            own[name] = value
        elif _SERVICE_LINK.fullmatch(variable.removeprefix(PREFIX)):
            continue
        elif variable.startswith(KAFKA_PREFIX):
            _take_kafka_variable(variable, value, kafka)
        else:
            raise SettingsError(f"{variable}: {_unknown(name, PREFIX)}")
    return own, kafka


def _take_kafka_variable(variable: str, value: str, kafka: dict[str, str]) -> None:
    name = variable.removeprefix(KAFKA_PREFIX).lower().replace("_", ".")
    of_file = name.removesuffix(".file")
    if of_file != name and of_file in _KAFKA_NAMES and of_file not in _WATCHED_FILES:
        name = of_file
        try:
            value = Path(value).read_text(encoding="utf-8-sig").rstrip("\r\n")
        except (OSError, ValueError) as e:
            raise SettingsError(f"{variable}: can't read the file: {e}") from e
    if name in kafka:
        raise SettingsError(f"{variable}: kafka {name} is given both plainly and as a file; choose one")
    kafka[name] = value


def _refuse_service_link(variable: str, value: str) -> None:
    if value.startswith(("tcp://", "udp://")):
        raise SettingsError(
            f"{variable}: Kubernetes set it to {value} for a Service of that name; set "
            "enableServiceLinks: false on the pod, or rename the Service"
        )


# -- flags, errors -------------------------------------------------------------------------------------------


def _from_kafka_flags(flags: Sequence[str]) -> dict[str, str]:
    kafka: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals or not name:
            shown = _NAME.match(flag)
            assert shown is not None
            # The rest may be a secret.
            raise SettingsError(f"--kafka {shown[0]}: must be name=value, such as linger.ms=0")
        kafka[name.strip()] = value
    return kafka


def _explained(error: Any) -> str:
    """Returns one of pydantic's errors as `name: reason, got value`."""
    name = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{name}: {_unknown(name)}"
    value = error["input"]
    got = f", got {value!r}" if isinstance(value, str | float) or _is_short(value) else ""
    return f"{name}: {error['msg']}{got}"


def _unknown(name: str, prefix: str = "") -> str:
    """Returns why a name is rejected. Names of environment variables have a prefix."""
    if name in REMOVED:
        return removed(name)
    near = difflib.get_close_matches(name, OWN_NAMES, n=1)
    if not near:
        return "unknown setting"
    return f"unknown setting; did you mean {prefix}{near[0].upper() if prefix else near[0]}?"


def _is_short(value: object) -> bool:
    """Returns whether a value is an integer short enough to show. TOML allows any length in hexadecimal."""
    return isinstance(value, int) and value.bit_length() <= _SHOWN_BITS
