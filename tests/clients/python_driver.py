"""Makes calls with the generated Python client: JSON on stdin, and the answers as JSON on stdout.

Runs in the environment of requirements/clients.txt, with the client's package on its path.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import sys
import types
import typing
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from io import BytesIO
from typing import Any, Final

_AT_ONCE: Final = 8
_TIMEOUT_S: Final = 60
_PACKAGE: Final = "pilotfish_api"


def modules() -> dict[str, types.ModuleType]:
    """The module of each operation, by the operation's name without capitals and underscores."""
    api = importlib.import_module(f"{_PACKAGE}.api")
    found = {}
    for tag in pkgutil.iter_modules(api.__path__):
        of_tag = importlib.import_module(f"{_PACKAGE}.api.{tag.name}")
        for module in pkgutil.iter_modules(of_tag.__path__):
            name = module.name.replace("_", "")
            found[name] = importlib.import_module(f"{_PACKAGE}.api.{tag.name}.{module.name}")
    return found


def given(value: Any, annotation: Any) -> Any:
    """The value as the parameter wants it: a model, an enum, a file, or itself."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    for option in typing.get_args(annotation) if is_union else (annotation,):
        if typing.get_origin(option) is list:
            return [given(each, typing.get_args(option)[0]) for each in value]
        if hasattr(option, "from_dict"):
            return option.from_dict(value)
        if isinstance(option, type) and issubclass(option, Enum):
            return option(value)
        if getattr(option, "__name__", "") == "File":
            return option(payload=BytesIO(value.encode()))
    return value


def shown(parsed: Any) -> Any:
    if isinstance(parsed, list):
        return [shown(each) for each in parsed]
    if hasattr(parsed, "payload"):
        return parsed.payload.read().decode()
    return parsed.to_dict() if hasattr(parsed, "to_dict") else parsed


def main() -> None:
    asked = json.load(sys.stdin)
    client_of = importlib.import_module(f"{_PACKAGE}.client").AuthenticatedClient
    known = modules()

    def call(one: dict[str, Any]) -> dict[str, Any]:
        function = known[one["operation"].lower()].sync_detailed
        hints = typing.get_type_hints(function)
        names = {name.rstrip("_"): name for name in inspect.signature(function).parameters}
        arguments = {}
        asked_for = {name: value for place in one["places"].values() for name, value in place.items()}
        if "body" in one:
            asked_for["body"] = one["body"]
        for name, value in asked_for.items():
            parameter = names[name.replace("-", "_").lower()]
            arguments[parameter] = given(value, hints[parameter])
        with client_of(base_url=one["base"], token=asked["token"], timeout=_TIMEOUT_S) as client:
            answer = function(client=client, **arguments)
        parsed = answer.parsed
        return {
            "status": int(answer.status_code),
            "type": None if parsed is None else type(parsed).__name__,
            "body": None if parsed is None else shown(parsed),
        }

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        json.dump(list(pool.map(call, asked["calls"])), sys.stdout)


if __name__ == "__main__":
    main()
