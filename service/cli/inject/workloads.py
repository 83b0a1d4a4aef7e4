"""Finds a manifest's objects that have pods, and the path to their pod template.

Recognizes kind and API group together: other groups have kinds with the same names. An object of an unknown
kind with a pod template is left unchanged, and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from service.cli.inject.faults import EditError, ManifestError, Place
from service.cli.inject.plain_data import DEEPEST
from service.cli.inject.tree import Document, Mapping, Node, Scalar, Sequence, child, nodes, target, text_of

Path = tuple[str | int, ...]

_TEMPLATE: Final[Path] = ("spec", "template")

#: Known kinds, their groups ("" is the core's), and the path to their pods' metadata and spec.
_KINDS: Final[dict[str, tuple[tuple[str, ...], Path]]] = {
    "Pod": (("",), ()),
    "ReplicationController": (("",), _TEMPLATE),
    "Deployment": (("apps", "extensions"), _TEMPLATE),
    "ReplicaSet": (("apps", "extensions"), _TEMPLATE),
    "DaemonSet": (("apps", "extensions"), _TEMPLATE),
    "StatefulSet": (("apps",), _TEMPLATE),
    "Job": (("batch",), _TEMPLATE),
    "CronJob": (("batch",), ("spec", "jobTemplate", "spec", "template")),
}
KINDS: Final = tuple(_KINDS)

#: Kinds whose pods end by themselves, and whose sidecar must end with them.
THAT_END: Final = ("Job", "CronJob")


@dataclass(frozen=True, slots=True)
class Workload:
    """An object with pods. `path` leads from the document to the pod template: its metadata and spec."""

    kind: str
    name: str
    namespace: str | None
    place: Place
    path: Path

    @property
    def title(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Left:
    """An object left unchanged. `is_doubtful`: the user may have expected otherwise."""

    title: str
    place: Place
    why: str
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap of the input, which the sidecar may use."""

    name: str
    namespace: str | None
    place: Place
    path: Path


Found = Workload | Left | ConfigMap


def objects(file: str, document: Document) -> Iterator[Found]:
    """Yields the objects of a document; none if it is empty. Raises ManifestError for a non-object."""
    root = target(document.root)
    if isinstance(root, Scalar) and root.plain and not root.text:
        return
    if not isinstance(root, Mapping):
        place = Place(file, document.number, line=root.line + 1)
        what = "a list" if isinstance(root, Sequence) else "a text"
        raise ManifestError(
            [f"{place}: is not a Kubernetes object but {what}; give manifests, with apiVersion and kind"]
        )
    yield from _objects(file, document.number, root, ())


def _objects(file: str, number: int, node: Node, path: Path) -> Iterator[Found]:
    if len(path) > DEEPEST:
        raise EditError(node.line, f"its Lists nest deeper than {DEEPEST // 2} levels, or contain themselves")
    kind = text_of(child(node, "kind"))
    if kind == "List" and _group(node) == "":
        items = child(node, "items")
        listed = None if items is None else target(items)
        for index, item in enumerate(listed.items if isinstance(listed, Sequence) else ()):
            yield from _objects(file, number, item, (*path, "items", index))
        return
    metadata = child(node, "metadata")
    generated = text_of(child(metadata, "generateName"))
    name = text_of(child(metadata, "name")) or (f"{generated}…" if generated else "(no name)")
    title = f"{kind}/{name}" if kind else "an object without a kind"
    place = Place(file, number, title, node.line + 1)
    groups, template = _KINDS.get(kind or "", ((), ()))
    namespace = text_of(child(metadata, "namespace"))
    if kind is not None and _group(node) in groups:
        yield Workload(kind, name, namespace, place, (*path, *template))
    elif kind == "ConfigMap" and _group(node) == "":
        yield ConfigMap(name, namespace, place, path)
    else:
        yield _left(title, place, kind, node)


def _group(node: Node) -> str | None:
    """Returns the API group: "apps" of apps/v1, "" of v1; None if there is no apiVersion."""
    version = text_of(child(node, "apiVersion"))
    if version is None:
        return None
    group, slash, _ = version.partition("/")
    return group if slash else ""


def _left(title: str, place: Place, kind: str | None, node: Node) -> Left:
    if kind is None:
        return Left(title, place, "it has no kind", is_doubtful=True)
    if kind in _KINDS:
        known = " or ".join(f"{group or 'v1'}{'/…' if group else ''}" for group in _KINDS[kind][0])
        group = text_of(child(node, "apiVersion")) or "none"
        return Left(title, place, f"its apiVersion is {group}; supported: {known}", is_doubtful=True)
    if _has_containers(node):
        why = f"it holds containers, but {kind} is no kind that inject knows; those are {', '.join(KINDS)}"
        return Left(title, place, why, is_doubtful=True)
    return Left(title, place, "it has no pods")


def _has_containers(node: Node) -> bool:
    """Returns whether the object has, anywhere, a list `containers` of mappings with images."""
    for of in nodes(node):
        if not isinstance(of, Mapping):
            continue
        for key, value in of.pairs:
            listed = target(value)
            if isinstance(key, Scalar) and key.text == "containers" and isinstance(listed, Sequence):
                return any(child(item, "image") is not None for item in listed.items)
    return False
