"""Manifests as people and programs write them, at random: kinds, layouts, comments, quotes, line ends.

Each is text. Tests read its values with PyYAML, not with the code under test.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

_PATHS: Final = {
    "Pod": ("v1", ()),
    "Deployment": ("apps/v1", ("spec", "template")),
    "StatefulSet": ("apps/v1", ("spec", "template")),
    "DaemonSet": ("apps/v1", ("spec", "template")),
    "ReplicaSet": ("apps/v1", ("spec", "template")),
    "Job": ("batch/v1", ("spec", "template")),
    "CronJob": ("batch/v1", ("spec", "jobTemplate", "spec", "template")),
}

#: Without those that some versions of YAML read as truth values when they are not quoted.
_names = st.from_regex(r"[a-z]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True).filter(
    lambda name: name not in ("pilotfish", "y", "n", "yes", "no", "on", "off", "true", "false", "null")
)
#: Texts that YAML may take for something else, or that need quotes; and any other.
_texts = st.one_of(
    st.sampled_from(
        [
            "yes",
            "no",
            "8080",
            "0644",
            "1e3",
            "",
            "~",
            "null",
            "a: b",
            "# no",
            "- x",
            "&a",
            "*a",
            "{x}",
            "a\nb\n",
        ]
    ),
    st.text(
        st.characters(min_codepoint=32, max_codepoint=0x1F600, exclude_categories=("Cs", "Cc")), max_size=12
    ),
)
_labels = st.dictionaries(_names, _texts, max_size=3)


def _some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping that has some of the fields, in any order."""
    return st.fixed_dictionaries({}, optional=fields).flatmap(
        lambda value: st.permutations(list(value)).map(lambda keys: {key: value[key] for key in keys})
    )


def _named(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda name, rest: {"name": name, **rest}, _names, _some(**fields))


def _unique(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({item["name"]: item for item in items}.values())


_ports = st.lists(st.builds(lambda port: {"containerPort": port}, st.integers(1, 8000)), max_size=2)
_env = st.lists(_named(value=_texts), max_size=3).map(_unique)
_containers = st.lists(
    _named(image=_texts, args=st.lists(_texts, max_size=3), env=_env, ports=_ports), min_size=1, max_size=3
).map(_unique)
_volumes = st.lists(_named(emptyDir=st.just({})), max_size=2).map(_unique)


@st.composite
def _templates(draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, Any]:
    spec = draw(
        _some(
            volumes=_volumes,
            terminationGracePeriodSeconds=st.integers(0, 300),
            nodeSelector=_labels,
            hostNetwork=st.booleans(),
        )
    )
    containers = draw(_containers)
    taken = {container["name"] for container in containers}
    if draw(st.booleans()):
        spec["initContainers"] = [c for c in draw(_containers) if c["name"] not in taken]
    keys = draw(st.permutations([*spec, "containers"]))
    template: dict[str, Any] = {"spec": {key: spec.get(key, containers) for key in keys}}
    metadata = draw(_some(labels=_labels, annotations=_labels))
    if metadata or draw(st.booleans()):
        template = {"metadata": metadata, **template}
    return template


@st.composite
def workloads(draw: Callable[[st.SearchStrategy[Any]], Any]) -> dict[str, Any]:
    """An object with a pod template, as values."""
    kind = draw(st.sampled_from(sorted(_PATHS)))
    version, path = _PATHS[kind]
    template = draw(_templates())
    metadata = {"name": draw(_names), **draw(_some(labels=_labels))}
    if not path:
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": {**template.get("metadata", {}), **metadata},
            "spec": template["spec"],
        }
    inside: Any = template
    for step in reversed(path):
        inside = {step: inside}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **inside}


_others = st.builds(
    lambda name, data: {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data},
    _names,
    _labels,
)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Without aliases: equal values would become some."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _IndentedDumper(_Dumper):
    """With dashes further in than their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


@st.composite
def _written(draw: Callable[[st.SearchStrategy[Any]], Any], value: Any) -> str:
    """A value as text, in one of many layouts."""
    layout = draw(st.sampled_from(["block", "indented", "mixed", "json", "pretty json"]))
    if layout == "json":
        return json.dumps(value, ensure_ascii=False) + "\n"
    if layout == "pretty json":
        return (
            json.dumps(value, indent=draw(st.sampled_from([1, 2, 4])), ensure_ascii=draw(st.booleans()))
            + "\n"
        )
    text: str = yaml.dump(
        value,
        Dumper=_IndentedDumper if layout == "indented" else _Dumper,
        indent=draw(st.sampled_from([2, 4])),
        width=draw(st.sampled_from([20, 80, 10_000])),
        default_flow_style=None if layout == "mixed" else False,
        default_style=draw(st.sampled_from([None, None, "'", '"', "|"])),
        allow_unicode=draw(st.booleans()),
        sort_keys=draw(st.booleans()),
    )
    commented = draw(_commented(text))
    # Within a text in quotes a comment is text, and in some places it is no YAML.
    value = yaml.safe_load(text)
    return str(commented if _means(commented, value) else text)


def _means(text: str, value: Any) -> bool:
    try:
        return bool(yaml.safe_load(text) == value)
    except (yaml.YAMLError, KeyError, ValueError):
        return False


@st.composite
def _commented(draw: Callable[[st.SearchStrategy[Any]], Any], text: str) -> str:
    """A text with comments and empty lines between its lines, and behind some."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        doing = draw(st.integers(0, 11))
        indent = " " * (len(line) - len(line.lstrip(" ")))
        if doing == 0:
            lines.append(f"{indent}# above\n")
        elif doing == 1:
            lines.append(
                draw(st.sampled_from(["\n", "  \n", "# at the left\n", f"{indent}    # further in\n"]))
            )
        lines.append(f"{line[:-1]}  # behind\n" if doing == 2 and line.endswith("\n") else line)
    return "".join(lines)


@st.composite
def manifests(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A file of one to three documents, or a List of them."""
    objects = draw(st.lists(st.one_of(workloads(), workloads(), _others), min_size=1, max_size=3))
    if draw(st.integers(0, 3)) == 0:
        text = draw(_written({"apiVersion": "v1", "kind": "List", "items": objects}))
    else:
        text = "---\n".join(draw(_written(value)) for value in objects)
    text = draw(st.sampled_from(["", "", "---\n", "# first\n", "---\n---\n"])) + text
    if draw(st.integers(0, 4)) == 0:
        text = text.rstrip("\n")
    return str(text.replace("\n", "\r\n") if draw(st.integers(0, 4)) == 0 else text)
