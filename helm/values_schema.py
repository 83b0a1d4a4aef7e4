"""Generates the charts' copies of the sidecar's settings, from the settings themselves.

    python helm/values_schema.py            writes both files
    python helm/values_schema.py --check    exits 1 and names the file that is out of date

Helm checks an application chart's values with `pilotfish/values.schema.json`: names, types and ranges; it
rejects unknown names. `pilotfish-lib/templates/_names.tpl` has the names for charts of teams, whose values
have no schema of ours. `make docs` runs it; a test runs the check.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from service.base.memory_limit import chart_figures
from service.base.settings import OWN_NAMES, SIDECAR_OPTIONS, Settings

HERE: Final = Path(__file__).parent
SCHEMA: Final = HERE / "pilotfish" / "values.schema.json"
NAMES: Final = HERE / "pilotfish-lib" / "templates" / "_names.tpl"
GENERATED: Final = "Written by helm/values_schema.py from the sidecar's settings; not to be edited."

Schema = dict[str, Any]

#: Kafka's notation for a number's range: `[0,...]`, `[0.5,...,1.0]`, `[1,...,9] or -1`.
_RANGE: Final = re.compile(r"\[(?P<least>-?[\d.]+),\.\.\.(,(?P<most>-?[\d.]+))?\]( or (?P<other>-?\d+))?")
#: Kafka's notation for a text's values: `[all, -1]`, `(case insensitive) [A, B]`.
_WORDS: Final = re.compile(r"(?P<any_case>\(case insensitive\) )?\[(?P<words>[^\]]+)\]")
_LIMITS: Final = {"SHORT": 2**15 - 1, "INT": 2**31 - 1, "LONG": 2**63 - 1}
#: A number that may be quoted in a values file; beyond 2^53 it must be.
_DIGITS: Final = r"^[-+]?[0-9]+$"

TEXT: Final[Schema] = {"type": "string"}
SWITCH: Final[Schema] = {"type": "boolean"}
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 253}
LABELS: Final[Schema] = {"type": "object", "additionalProperties": {"type": "string"}}
#: A Kubernetes object, which the API server checks.
ANYTHING: Final[Schema] = {"type": "object"}
DURATION: Final[Schema] = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h))+$"}


def closed(properties: Schema, required: tuple[str, ...] = ()) -> Schema:
    """Returns the schema of a map with only these names."""
    made: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**made, "required": list(required)} if required else made


def many(items: Schema) -> Schema:
    return {"type": "array", "items": items}


# -- the sidecar's own settings ------------------------------------------------------------------------------


def own_settings() -> Schema:
    """Returns the types and ranges that pydantic checks. A list may be a text with commas, as everywhere."""
    properties: Schema = {}
    for name, reported in Settings.model_json_schema()["properties"].items():
        if name in OWN_NAMES:
            checked = {key: value for key, value in reported.items() if key not in ("title", "default")}
            if checked.get("type") == "array":
                checked["type"] = ["array", "string"]
            properties[name] = checked
    # The container's port and its probes use this number, so the system can't choose it.
    properties["admin_port"]["minimum"] = 1
    return closed(properties)


# -- Kafka's -------------------------------------------------------------------------------------------------


def kafka_settings() -> Schema:
    properties: Schema = {}
    for option in SIDECAR_OPTIONS:
        if option.kind.secret:
            # An enum of one text is the only way to put the remedy into the schema's error.
            properties[option.name] = {"enum": [f"{_remedy(option.name)}"], "description": option.doc}
        else:
            rule = option.taken or option.valid
            shape = _kafka_value(option.kind.name, rule.text if rule else "")
            properties[option.name] = {**shape, "description": option.doc}
        if option.file_name is not None:
            properties[option.file_name] = {
                "type": "string",
                "pattern": "^/",
                "description": f"A file that holds the value, and may change: {option.doc}",
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
    # JSON's numbers are exact to 2^53; no wait is that many milliseconds.
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
    """Returns the schema of `pilotfish:`, in this chart and in those of teams."""
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
    """Returns the schema of chart pilotfish. `global` is Helm's own, for a chart that is a dependency."""
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
            "prometheusRule": closed(
                {
                    "enabled": SWITCH,
                    "labels": LABELS,
                    "runbookUrl": {"type": "string", "pattern": '^(https?://[^ #"]+)?$'},
                }
            ),
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
    """Returns three lists of names as templates, own settings, Kafka's, and Kafka's secrets, and figures."""
    kafka = [
        name for option in SIDECAR_OPTIONS for name in (option.name, option.file_name) if name is not None
    ]
    lists = {
        "settingNames": list(OWN_NAMES),
        "kafkaNames": kafka,
        "secretKafkaNames": [option.name for option in SIDECAR_OPTIONS if option.kind.secret],
    }
    parts = [f"{{{{/* {GENERATED} */}}}}"]
    for name, listed in lists.items():
        lines = "\n".join(f"- {item}" for item in listed)
        parts.append(f'{{{{- define "pilotfish.{name}" -}}}}\n{lines}\n{{{{- end -}}}}')
    figures = "\n".join(f"{name}: {figure}" for name, figure in chart_figures().items())
    parts.append(f'{{{{- define "pilotfish.memoryFigures" -}}}}\n{figures}\n{{{{- end -}}}}')
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
