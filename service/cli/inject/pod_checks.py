"""Faults and warnings for a pod template.

Checks the template without the sidecar. Each fault has a path, which gives its line. The path names
containers and volumes, since the sidecar may come before them in the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from service.cli.inject.container import CONFIG_KEY, LABEL, NAME, PORT_NAME, Sidecar, is_own_volume, volumes
from service.cli.inject.pod import GRACE, Object, Taken, all_volumes, mounted_volumes
from service.cli.inject.tree import ByName
from service.cli.inject.values import Data, same
from service.cli.inject.workloads import THAT_END

Path = tuple[str | int | ByName, ...]

_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")


class Fault(NamedTuple):
    """A fault and its path below the template."""

    path: Path
    text: str


def is_for_windows(template: Object) -> bool:
    """Returns whether its pods run on Windows: the sidecar's image is for Linux."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        return False
    system, selector = spec.get("os"), spec.get("nodeSelector")
    name = system.get("name") if isinstance(system, dict) else None
    return name == "windows" or (isinstance(selector, dict) and selector.get("kubernetes.io/os") == "windows")


def shape_faults(template: Data) -> Iterator[Fault]:
    """Faults in the template's shape. Checked first: the other checks rely on it."""
    if not isinstance(template, dict):
        yield Fault((), "has no pod template, which must be a mapping with a spec")
        return
    spec = template.get("spec")
    if not isinstance(spec, dict):
        yield Fault(("spec",), "its pods have no spec, which must be a mapping with containers")
        return
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        yield Fault(("spec",), "its pods have no containers; the sidecar goes beside one")
        return
    for key in (*_LISTS, "volumes"):
        yield from _list_faults(spec, key)
    for path, parent in (((), template), (("metadata",), template.get("metadata"))):
        for key in ("metadata",) if not path else ("labels", "annotations"):
            value = parent.get(key) if isinstance(parent, dict) else None
            if value is not None and not isinstance(value, dict):
                yield Fault((*path, key), f"{key} must be a mapping")


def _list_faults(spec: Object, key: str) -> Iterator[Fault]:
    items = spec.get(key)
    if items is not None and not isinstance(items, list):
        yield Fault(("spec", key), f"{key} must be a list")
        return
    for index, item in enumerate(items or ()):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str) or not item["name"]:
            yield Fault(("spec", key, index), f"{key}[{index}] has no string as its name; give it one")


def faults(kind: str, taken: Taken, sidecar: Sidecar) -> Iterator[Fault]:
    """Faults that prevent the injection."""
    spec = taken.template["spec"]
    assert isinstance(spec, dict)
    yield from _name_faults(taken, sidecar)
    yield from _port_faults(spec, sidecar)
    grace = spec.get(GRACE)
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool) or grace < 0):
        yield Fault(("spec", GRACE), f"{GRACE} must be a whole number of seconds, 0 or more")
    if kind in THAT_END and not sidecar.native and not sidecar.can_be_quit:
        yield Fault(
            (),
            f"a {kind} with --legacy never completes, because its sidecar does not end; use --native, or "
            "give it a token by which the job ends it: --secret quit=NAME-OF-SECRET "
            "--set quit_token_file=/etc/pilotfish/secrets/quit/token",
        )


def _name_faults(taken: Taken, sidecar: Sidecar) -> Iterator[Fault]:
    spec = taken.template["spec"]
    assert isinstance(spec, dict)
    there = [volume["name"] for volume in all_volumes(spec, sidecar) if isinstance(volume, dict)]
    for key, item in _containers(spec):
        path: Path = ("spec", key, ByName(str(item["name"])))
        if item["name"] == NAME:
            yield Fault(
                path,
                f"a container is named {NAME} already, and inject did not put it there; rename it, or, if it "
                f'is the sidecar, label the pod {LABEL}: "true" and it will be replaced',
            )
        for name in sorted(map(str, mounted_volumes({"containers": [item]}))):
            if is_own_volume(name) and name not in there:
                yield Fault(
                    (*path, "volumeMounts"),
                    f"container {item['name']} mounts {name}, which this call does not add; add "
                    "--secret, or --config-map, or give the app a volume of its own",
                )
    if not taken.had_sidecar:
        yield from _volume_faults(spec, sidecar)


def _volume_faults(spec: Object, sidecar: Sidecar) -> Iterator[Fault]:
    own = {volume["name"]: volume for volume in volumes(sidecar) if isinstance(volume, dict)}
    listed = spec.get("volumes")
    for volume in listed if isinstance(listed, list) else ():
        if isinstance(volume, dict) and not same(own.get(volume["name"], volume), volume):
            yield Fault(
                ("spec", "volumes", ByName(str(volume["name"]))),
                f"a volume is named {volume['name']} already, as one of the sidecar's is; rename it",
            )


def _port_faults(spec: Object, sidecar: Sidecar) -> Iterator[Fault]:
    taken = {sidecar.admin_port: ("probes", "admin_port"), sidecar.api_port: ("API", "api_port")}
    for key, item in _containers(spec):
        ports = item.get("ports")
        for place, port in enumerate(ports if isinstance(ports, list) else ()):
            if not isinstance(port, dict):
                continue
            path: Path = ("spec", key, ByName(str(item["name"])), "ports", place)
            number = port.get("containerPort")
            if (port.get("protocol") or "TCP") == "TCP" and isinstance(number, int) and number in taken:
                what, setting = taken[number]
                yield Fault(
                    path,
                    f"container {item['name']} uses port {number}, that of the sidecar's {what}; "
                    f"a pod's containers share ports: give the sidecar another by --set {setting}=PORT",
                )
            if port.get("name") == PORT_NAME:
                yield Fault(
                    path,
                    f"container {item['name']} names a port {PORT_NAME}, as the sidecar does; rename it",
                )


def warnings(kind: str, template: Object, sidecar: Sidecar) -> Iterator[Fault]:
    """Warnings that do not prevent the injection."""
    spec = template["spec"]
    assert isinstance(spec, dict)
    if spec.get("hostNetwork") is True:
        yield Fault(
            ("spec", "hostNetwork"),
            f"with hostNetwork the ports {sidecar.admin_port} and {sidecar.api_port} are the node's: a "
            "node can run one such pod, and any process there can call the API; consider tokens_file",
        )
    if _is_guaranteed(spec):
        yield Fault(
            ("spec", "containers"),
            "its pods are of QoS class Guaranteed and become Burstable, because the sidecar has no CPU limit",
        )
    if kind in THAT_END and not sidecar.native:
        yield Fault(
            (), "the job must end its sidecar by POST /quitquitquit with the token, or it never completes"
        )


def _is_guaranteed(spec: Object) -> bool:
    """Returns whether each container limits CPU and memory, with requests equal to the limits."""
    for _, item in _containers(spec):
        resources = item.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        requests = resources.get("requests") if isinstance(resources, dict) else None
        if not isinstance(limits, dict) or not limits.get("cpu") or not limits.get("memory"):
            return False
        if isinstance(requests, dict) and any(limits.get(name) != value for name, value in requests.items()):
            return False
    return True


def _containers(spec: Object) -> Iterator[tuple[str, Object]]:
    for key in _LISTS:
        items = spec.get(key)
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                yield key, item


def config_map_faults(config_map: Data) -> Iterator[Fault]:
    """Yields the reasons why the sidecar would not start with a ConfigMap of the input."""
    content = config_map.get("data") if isinstance(config_map, dict) else None
    if not isinstance(content, dict) or CONFIG_KEY not in content:
        yield Fault((), f"has no key {CONFIG_KEY} in its data, which is the file that the sidecar reads")
