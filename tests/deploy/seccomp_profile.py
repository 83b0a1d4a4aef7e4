"""The system calls that a container may make: the default profile of container engines.

Kubernetes calls it RuntimeDefault. Debian's packages of buildah bring it as a file in Docker's form, which
names conditions (this call if the container has that capability); a runtime takes a list without any. Here it
is for a container without capabilities on this machine's processor.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any, Final

PROFILE: Final = Path("/usr/share/containers/seccomp.json")

_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def without_capabilities(profile: dict[str, Any], architecture: str) -> dict[str, Any]:
    """`linux.seccomp` of an OCI bundle. `architecture` by Go's name, such as amd64."""
    rules = []
    for rule in profile["syscalls"]:
        wanted = rule.get("includes") or {}
        if wanted.get("caps") or architecture not in wanted.get("arches", [architecture]):
            continue  # the exceptions that a rule names (`excludes`) are capabilities all, and there are none
        kept = {name: rule[name] for name in ("names", "action") if name in rule}
        if rule.get("args"):
            kept["args"] = rule["args"]
        if rule.get("errnoRet") is not None:
            kept["errnoRet"] = rule["errnoRet"]
        rules.append(kept)
    made: dict[str, Any] = {"defaultAction": profile["defaultAction"], "syscalls": rules}
    if "defaultErrnoRet" in profile:
        made["defaultErrnoRet"] = profile["defaultErrnoRet"]
    return made


def runtime_default(path: Path = PROFILE) -> dict[str, Any] | None:
    """For this machine; None where there is no profile, or none for its processor."""
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None or not path.is_file():
        return None
    return without_capabilities(json.loads(path.read_text()), architecture)
