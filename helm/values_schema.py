"""Writes what the charts know of the sidecar's settings, from the settings themselves.

    python helm/values_schema.py            writes both files
    python helm/values_schema.py --check    exits 1 and names the file that is out of date

`pilotfish/values.schema.json` is what Helm checks an application chart's values by: names, types and ranges,
nothing it does not know. `pilotfish-lib/templates/_names.tpl` has the names for charts of teams, whose values
no schema of ours sees. Run by `make docs`; a test runs the check.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from client_core import OPTIONS
from service.base.settings import OWN_NAMES, Settings

HERE: Final = Path(__file__).parent
SCHEMA: Final = HERE / "pilotfish" / "values.schema.json"
NAMES: Final = HERE / "pilotfish-lib" / "templates" / "_names.tpl"
GENERATED: Final = "Written by helm/values_schema.py from the sidecar's settings; not to be edited."

Schema = dict[str, Any]

#: `[0,...]`, `[0.5,...,1.0]`, `[1,...,9] or -1`: how Kafka writes what a number may be.
_RANGE: Final = re.compile(r"\[(?P<least>-?[\d.]+),\.\.\.(,(?P<most>-?[\d.]+))?\]( or (?P<other>-?\d+))?")
#: `[all, -1]`, `(case insensitive) [A, B]`: what a text may be.
_WORDS: Final = re.compile(r"(?P<any_case>\(case insensitive\) )?\[(?P<words>[^\]]+)\]")
_LIMITS: Final = {"SHORT": 2**15 - 1, "INT": 2**31 - 1, "LONG": 2**63 - 1}
#: A number that a values file may have in quotes, too: one beyond 2^53 has to be.
_DIGITS: Final = r"^[-+]?[0-9]+$"

TEXT: Final[Schema] = {"type": "string"}
SWITCH: Final[Schema] = {"type": "boolean"}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 253}
LABELS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
#: Kubernetes' own: what it may be, the API server knows.
ANYTHING: Final[Schema] = {"type": "object"}
DURATION: Final[Schema] = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}


def closed(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """A map of these names and no others."""
    made: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**made, "required": list(required)} if required else made


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


# -- the sidecar's own settings ------------------------------------------------------------------------------


def own_settings() -> Schema:
    """As pydantic checks them. A list may be a text with commas, as everywhere."""
    properties: Schema = {}
    for name, reported in Settings.model_json_schema()["properties"].items():
        if name in OWN_NAMES:
            checked = {key: value for key, value in reported.items() if key not in ("title", "default")}
            if checked.get("type") == "array":
                checked["type"] = ["array", "string"]
            properties[name] = checked
    # The container's port and its probes go by this number, so it can't be left to the system.
    properties["admin_port"]["minimum"] = 1
    return closed(properties)


# -- Kafka's -------------------------------------------------------------------------------------------------


def kafka_settings() -> Schema:
    properties: Schema = {}
    for option in OPTIONS:
        if option.kind.secret:
            # The one way to have the schema's complaint tell what to do instead.
            properties[option.name] = {"enum": [f"{_remedy(option.name)}"], "description": option.doc}
        else:
            rule = option.taken or option.valid
            shape = _kafka_value(option.kind.name, rule.text if rule else "")
            properties[option.name] = {**shape, "description": option.doc}
        if option.file_name is not None:
            properties[option.file_name] = {
                "type": "string",
                "pattern": "^/",
                "description": f"A file that holds it, and may change: {option.doc}",
            }
    return closed(properties)


def _remedy(name: str) -> str:
    return f"(nothing: it is a secret. Mount it by pilotfish.secrets and set {name}.file)"


def _kafka_value(kind: str, rule: str) -> Schema:
    if kind in _LIMITS:
        return {"type": ["integer", "string"], "pattern": _DIGITS, **_range(rule, _LIMITS[kind])}
    if kind == "DOUBLE":
        return {"type": "number", **_range(rule, None)}
    if kind == "BOOLEAN":
        return {"enum": [True, False, "true", "false"]}
    if kind == "LIST":
        return {"type": ["string", "array"], "items": {"type": "string"}}
    return _words(rule)


def _range(rule: str, largest: int | None) -> Schema:
    found = _RANGE.fullmatch(rule)
    if found is None:
        return {} if largest is None or largest > 2**53 else {"minimum": -largest - 1, "maximum": largest}
    least = min(float(found["least"]), float(found["other"] or found["least"]))
    most = float(found["most"]) if found["most"] else largest
    # JSON's numbers are exact to 2^53, and nobody waits that many milliseconds.
    return {"minimum": _plain(least)} | (
        {} if most is None or most > 2**53 else {"maximum": _plain(float(most))}
    )


def _plain(number: float) -> int | float:
    return int(number) if number.is_integer() else number


def _words(rule: str) -> Schema:
    found = _WORDS.fullmatch(rule)
    if found is None:
        return {"type": "string"}
    words: list[str | int] = ["" if word == "(empty)" else word for word in found["words"].split(", ")]
    if found["any_case"]:
        words += [str(word).lower() for word in words]
    # YAML reads acks: 1 as a number.
    words += [int(word) for word in words if re.fullmatch(r"-?\d+", str(word))]
    return {"enum": words}


# -- the values ----------------------------------------------------------------------------------------------


def sidecar() -> Schema:
    """What stands below `pilotfish:`, in this chart and in those of teams."""
    secret = closed(
        {
            "name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"},
            "secretName": NAME,
            "items": many(closed({"key": NAME, "path": NAME, "mode": {"type": "integer"}}, ("key", "path"))),
        },
        ("name", "secretName"),
    )
    return closed(
        {
            "image": closed(
                {
                    "repository": {"type": "string", "minLength": 1},
                    "tag": TEXT,
                    "digest": {"type": "string", "pattern": r"^(sha256:[0-9a-f]{64})?$"},
                    "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
                }
            ),
            "bootstrapServers": TEXT,
            "nativeSidecar": SWITCH,
            "appContainer": TEXT,
            "appGraceSeconds": {"type": "integer", "minimum": 0, "maximum": 86400},
            "settings": own_settings(),
            "kafka": kafka_settings(),
            "configMapName": TEXT,
            "fullnameOverride": {"type": "string", "maxLength": 52},
            "secrets": many(secret),
            "readiness": closed({"enabled": SWITCH}),
            "spool": closed({"enabled": SWITCH, "volume": ANYTHING}),
            "resources": ANYTHING,
            "securityContext": ANYTHING,
            "extraEnv": many(ANYTHING),
            "extraVolumeMounts": many(ANYTHING),
            "extraVolumes": many(ANYTHING),
        }
    )


def values() -> Schema:
    """The whole of chart pilotfish. `global` is Helm's own, where the chart is a dependency of another."""
    shape = closed(
        {
            "global": ANYTHING,
            "pilotfish-lib": ANYTHING,
            "pilotfish": sidecar(),
            "imagePullSecrets": many(closed({"name": NAME}, ("name",))),
            "podMonitor": closed(
                {
                    "enabled": SWITCH,
                    "labels": LABELS,
                    "namespaces": many(NAME),
                    "interval": DURATION,
                    "scrapeTimeout": DURATION,
                }
            ),
            "prometheusRule": closed({"enabled": SWITCH, "labels": LABELS}),
            "dashboard": closed({"enabled": SWITCH, "labels": LABELS, "annotations": LABELS}),
            "networkPolicy": closed(
                {"enabled": SWITCH, "monitoringNamespace": LABELS, "extraIngress": many(ANYTHING)}
            ),
            "demo": closed(
                {
                    "topic": {"type": "string", "pattern": r"^[a-zA-Z0-9._-]{1,249}$"},
                    "deployment": closed(
                        {
                            "enabled": SWITCH,
                            "replicas": {"type": "integer", "minimum": 0},
                            "intervalSeconds": {"type": "integer", "minimum": 1},
                        }
                    ),
                    "job": closed({"enabled": SWITCH}),
                }
            ),
            "tests": closed({"enabled": SWITCH}),
        }
    )
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": GENERATED,
        "title": "Values of chart pilotfish",
        **shape,
    }


# -- the files -----------------------------------------------------------------------------------------------


def schema_text() -> str:
    return json.dumps(values(), indent=2, ensure_ascii=False) + "\n"


def names_text() -> str:
    """Three lists of names as templates: own settings, Kafka's, and those of Kafka's that are secrets."""
    kafka = [name for option in OPTIONS for name in (option.name, option.file_name) if name is not None]
    lists = {
        "settingNames": list(OWN_NAMES),
        "kafkaNames": kafka,
        "secretKafkaNames": [option.name for option in OPTIONS if option.kind.secret],
    }
    parts = [f"{{{{/* {GENERATED} */}}}}"]
    for name, listed in lists.items():
        lines = "\n".join(f"- {item}" for item in listed)
        parts.append(f'{{{{- define "pilotfish.{name}" -}}}}\n{lines}\n{{{{- end -}}}}')
    return "\n\n".join(parts) + "\n"


def main() -> int:
    wanted = {SCHEMA: schema_text(), NAMES: names_text()}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(HERE.parent)} is out of date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
