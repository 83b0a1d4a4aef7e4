"""Adds the sidecar to a pod template, or removes it. Works on values, not text.

`put_in` and `take_out` are inverses. Other changes (grace period, default container) are recorded in an
annotation, so that they can be undone. Injecting means taking out and putting in: it is idempotent, and it
updates an older sidecar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from service.cli.inject.container import (
    CHECKSUM,
    DEFAULT_GRACE_SECONDS,
    LABEL,
    NAME,
    Sidecar,
    container,
    is_own_volume,
    volumes,
)
from service.cli.inject.values import Data, Key

Object = dict[Key, Data]

#: Records inject's other changes: `default-container=web terminationGracePeriodSeconds=30->55`.
NOTE: Final = "pilotfish-injected"
DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
GRACE: Final = "terminationGracePeriodSeconds"
CONTAINER_LISTS: Final = ("initContainers", "containers")

_DEFAULT_WORD: Final = "default-container"
_UNSET: Final = "unset"
_GRACE_WORD: Final = re.compile(rf"{GRACE}=({_UNSET}|[0-9]+)->([0-9]+)")


class Taken(NamedTuple):
    """A template without the sidecar. `grace_is_shared`: its grace period may already include a sidecar."""

    template: Object
    had_sidecar: bool
    grace_is_shared: bool


def take_out(template: Object) -> Taken:
    """Returns the template without the sidecar; the same template if it has none."""
    metadata, spec = _object(template.get("metadata")), _object(template.get("spec"))
    labels, annotations = _object(metadata.get("labels")), _object(metadata.get("annotations"))
    if labels.get(LABEL) not in ("true", True) or not _has_sidecar(spec):
        return Taken(template, False, False)
    note = annotations.get(NOTE)
    words = note.split() if isinstance(note, str) else []
    default = annotations.get(DEFAULT_CONTAINER)
    noted = f"{_DEFAULT_WORD}={default}" in words
    annotations = {
        name: value
        for name, value in annotations.items()
        if name not in (NOTE, CHECKSUM) and not (noted and name == DEFAULT_CONTAINER)
    }
    spec, restored = _with_grace_restored(spec, words)
    for key in CONTAINER_LISTS:
        spec = _without(spec, key, lambda name: name == NAME)
    # The app may mount one too: for the token with which it ends the sidecar.
    shared = mounted_volumes(spec)
    spec = _without(spec, "volumes", lambda name: is_own_volume(name) and name not in shared)
    metadata = _with(metadata, "labels", {name: value for name, value in labels.items() if name != LABEL})
    metadata = _with(metadata, "annotations", annotations)
    without = _with(template, "metadata", metadata)
    return Taken({**without, "spec": spec}, True, not restored)


def _has_sidecar(spec: Object) -> bool:
    return any(_name(item) == NAME for key in CONTAINER_LISTS for item in _list(spec.get(key)))


def _with_grace_restored(spec: Object, words: list[str]) -> tuple[Object, bool]:
    """Returns the original grace period, and whether it is known: not if it was changed since."""
    for word in words:
        found = _GRACE_WORD.fullmatch(word)
        if found is not None and spec.get(GRACE) == int(found[2]):
            if found[1] == _UNSET:
                return {key: value for key, value in spec.items() if key != GRACE}, True
            return {**spec, GRACE: int(found[1])}, True
    return spec, False


def put_in(taken: Taken, sidecar: Sidecar, checksum: str | None) -> Object:
    """Returns the template with the sidecar. `checksum` is its ConfigMap's, if known."""
    template = taken.template
    metadata, spec = _object(template.get("metadata")), _object(template["spec"])
    own_grace = spec.get(GRACE)
    app_seconds = _app_seconds(own_grace, sidecar, taken.grace_is_shared)
    needed = sidecar.grace_seconds(app_seconds)
    grace = max(needed, own_grace if isinstance(own_grace, int) else 0)

    new: Object = {}
    if GRACE not in spec:
        new[GRACE] = grace
    made = container(sidecar, app_seconds)
    if "initContainers" not in spec and sidecar.native:
        new["initContainers"] = [made]
    if "volumes" not in spec:
        new["volumes"] = all_volumes(spec, sidecar)
    spec = _before("containers", spec, new)
    spec[GRACE] = grace
    if sidecar.native and "initContainers" not in new:
        spec["initContainers"] = [made, *_list(spec["initContainers"])]
    elif not sidecar.native:
        spec["containers"] = [made, *_list(spec["containers"])]
    if "volumes" not in new:
        spec["volumes"] = all_volumes(spec, sidecar)

    words = (
        [] if taken.grace_is_shared else [f"{GRACE}={_UNSET if own_grace is None else own_grace}->{grace}"]
    )
    annotations = _object(metadata.get("annotations"))
    if DEFAULT_CONTAINER not in annotations:
        app = app_container(_object(template["spec"]))
        annotations = {**annotations, DEFAULT_CONTAINER: app}
        words.insert(0, f"{_DEFAULT_WORD}={app}")
    if checksum is not None:
        annotations = {**annotations, CHECKSUM: checksum}
    if words:
        annotations = {**annotations, NOTE: " ".join(words)}
    labels = {**_object(metadata.get("labels")), LABEL: "true"}
    metadata = {**metadata, "labels": labels, "annotations": annotations}
    with_metadata = template if "metadata" in template else _before("spec", template, {"metadata": {}})
    return {**with_metadata, "metadata": metadata, "spec": spec}


def mounted_volumes(spec: Object) -> set[Data]:
    """Returns the names of the volumes that containers mount."""
    containers = [item for key in CONTAINER_LISTS for item in _list(spec.get(key))]
    return {
        _name(mount)
        for item in containers
        if isinstance(item, dict)
        for mount in _list(item.get("volumeMounts"))
        if isinstance(_name(mount), str)
    }


def all_volumes(spec: Object, sidecar: Sidecar) -> list[Data]:
    """Returns the pod's volumes: the app's, the sidecar's, and older sidecar volumes that the app mounts."""
    own = volumes(sidecar)
    names = [_name(volume) for volume in own]
    there = _list(spec.get("volumes"))
    left = [volume for volume in there if is_own_volume(_name(volume)) and _name(volume) not in names]
    return [*(volume for volume in there if not is_own_volume(_name(volume))), *own, *left]


def app_container(spec: Object) -> str:
    """Returns the name of the first container: the app's."""
    name = _name(_list(spec.get("containers"))[0])
    return name if isinstance(name, str) else ""


def _app_seconds(own_grace: Data, sidecar: Sidecar, is_shared: bool) -> int:
    """Returns the app's own time to end: the option, else the pod's, else Kubernetes' default."""
    if sidecar.app_grace_seconds is not None:
        return sidecar.app_grace_seconds
    if isinstance(own_grace, int) and not is_shared:
        return own_grace
    return DEFAULT_GRACE_SECONDS


# -- parts ---------------------------------------------------------------------------------------------------


def _object(value: Data) -> Object:
    return value if isinstance(value, dict) else {}


def _list(value: Data) -> list[Data]:
    return value if isinstance(value, list) else []


def _name(item: Data) -> Data:
    return item.get("name") if isinstance(item, dict) else None


def _without(spec: Object, key: str, is_own: Callable[[Data], bool]) -> Object:
    """Returns the spec without the sidecar's items in a list, and without the list if it is then empty."""
    items = _list(spec.get(key))
    left: list[Data] = [item for item in items if not is_own(_name(item))]
    return spec if len(left) == len(items) else _with(spec, key, left)


def _with(value: Object, key: str, part: Object | list[Data]) -> Object:
    """Returns the value with this part; without the part if it became empty."""
    if part:
        return {**value, key: part}
    if key in value and not value[key]:
        return value
    return {name: of for name, of in value.items() if name != key}


def _before(key: str, value: Object, new: Object) -> Object:
    """Returns the value with new parts before a key."""
    placed: Object = {}
    for name, part in value.items():
        if name == key:
            placed.update(new)
        placed[name] = part
    return placed
