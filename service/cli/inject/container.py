"""The sidecar as data: its container, volumes, label, and the pod's grace period.

The container equals that of the chart library (helm/pilotfish-lib); a test compares both. The code here does
not depend on the manifests' syntax. Source of the figures: docs/kubernetes.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from service.cli.inject.values import Data, Key

NAME: Final = "pilotfish"
PORT_NAME: Final = "pf-admin"
LABEL: Final = "pilotfish-sidecar"
CHECKSUM: Final = "checksum/pilotfish-config"

CONFIG_FOLDER: Final = "/etc/pilotfish"
CONFIG_KEY: Final = "pilotfish.toml"
SECRETS_FOLDER: Final = "/etc/pilotfish/secrets"
TMP_VOLUME: Final = "pilotfish-tmp"
CONFIG_VOLUME: Final = "pilotfish-config"
SECRET_VOLUME: Final = "pilotfish-secret-"  # noqa: S105 - the name of a volume

#: Kubernetes' default for terminationGracePeriodSeconds.
DEFAULT_GRACE_SECONDS: Final = 30
#: Time besides delay and drain: to close, and for kubelet to notice.
_REST_SECONDS: Final = 5
_SHORTEST_START_SECONDS: Final = 60
_START_MARGIN_SECONDS: Final = 30
_SHORTEST_LIVENESS_SECONDS: Final = 5

_UID: Final = 10001

#: The container's resources unless others are given, by Kubernetes' names.
DEFAULT_REQUESTS: Final = {"cpu": "50m", "memory": "128Mi"}
DEFAULT_LIMITS: Final = {"memory": "256Mi"}


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The checked options, from which `container` builds the container for an app's grace period.

    `environment` holds settings by variable name, in output order.
    """

    image: str
    environment: dict[str, str]
    secrets: dict[str, str] = field(default_factory=dict)
    config_map: str | None = None
    native: bool = True
    readiness: bool = False
    app_grace_seconds: int | None = None
    admin_port: int = 9464
    api_port: int = 8085
    drain_delay_ms: int | None = None
    drain_timeout_ms: int = 20_000
    startup_max_wait_ms: int = 30_000
    liveness_timeout_ms: int = 4_000
    can_be_quit: bool = False
    pull_policy: str = "IfNotPresent"
    requests: dict[str, str] = field(default_factory=DEFAULT_REQUESTS.copy)
    limits: dict[str, str] = field(default_factory=DEFAULT_LIMITS.copy)

    def delay_ms(self, app_grace_seconds: int) -> int:
        """Returns how long the sidecar serves after SIGTERM.

        A native sidecar gets SIGTERM after the app has ended. A legacy one gets it together with the app, and
        must outlast the app by itself.
        """
        if self.drain_delay_ms is not None:
            return self.drain_delay_ms
        return 0 if self.native else app_grace_seconds * 1_000

    def grace_seconds(self, app_grace_seconds: int) -> int:
        """Returns the time that app and sidecar need together, from the first SIGTERM."""
        own_ms = self.delay_ms(app_grace_seconds) + self.drain_timeout_ms
        return app_grace_seconds + math.ceil(own_ms / 1_000) + _REST_SECONDS


def container(sidecar: Sidecar, app_grace_seconds: int) -> dict[Key, Data]:
    """Returns the container, its keys in the usual reading order."""
    start_seconds = _start_seconds(sidecar.startup_max_wait_ms)
    made: dict[Key, Data] = {
        "name": NAME,
        "image": sidecar.image,
        "imagePullPolicy": sidecar.pull_policy,
        "args": ["serve"],
    }
    if sidecar.native:
        made["restartPolicy"] = "Always"
    made["env"] = _env(sidecar, app_grace_seconds)
    made["ports"] = [{"name": PORT_NAME, "containerPort": sidecar.admin_port, "protocol": "TCP"}]
    if not sidecar.native:
        # Kubelet starts the next container when this has ended: undocumented, but widely relied on.
        wait: list[Data] = [NAME, "wait", "--timeout", str(start_seconds)]
        made["lifecycle"] = {"postStart": {"exec": {"command": wait}}}
    made["startupProbe"] = {
        "httpGet": _asks("/startupz"),
        "periodSeconds": 1,
        "failureThreshold": start_seconds,
    }
    made["livenessProbe"] = {
        "httpGet": _asks("/livez"),
        "periodSeconds": 10,
        "timeoutSeconds": _liveness_seconds(sidecar.liveness_timeout_ms),
        "failureThreshold": 3,
    }
    if sidecar.readiness:
        made["readinessProbe"] = {
            "httpGet": _asks("/readyz"),
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 3,
        }
    resources = {"requests": sidecar.requests, "limits": sidecar.limits}
    made["resources"] = {kind: {name: of[name] for name in of} for kind, of in resources.items()}
    made["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsGroup": _UID,
        "runAsNonRoot": True,
        "runAsUser": _UID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    made["volumeMounts"] = _mounts(sidecar)
    return made


def volumes(sidecar: Sidecar) -> list[Data]:
    """Returns the volumes that the container mounts: directories, so that kubelet updates them."""
    made: list[Data] = [{"name": TMP_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}]
    if sidecar.config_map is not None:
        made.append({"name": CONFIG_VOLUME, "configMap": {"name": sidecar.config_map}})
    for name, secret in sidecar.secrets.items():
        made.append({"name": f"{SECRET_VOLUME}{name}", "secret": {"secretName": secret}})
    return made


def is_own_volume(name: object) -> bool:
    return isinstance(name, str) and (
        name in (TMP_VOLUME, CONFIG_VOLUME) or (name.startswith(SECRET_VOLUME) and name != SECRET_VOLUME)
    )


def _mounts(sidecar: Sidecar) -> list[Data]:
    made: list[Data] = [{"name": TMP_VOLUME, "mountPath": "/tmp"}]  # noqa: S108 - in the container
    if sidecar.config_map is not None:
        made.append({"name": CONFIG_VOLUME, "mountPath": CONFIG_FOLDER, "readOnly": True})
    for name in sidecar.secrets:
        path = f"{SECRETS_FOLDER}/{name}"
        made.append({"name": f"{SECRET_VOLUME}{name}", "mountPath": path, "readOnly": True})
    return made


def _env(sidecar: Sidecar, app_grace_seconds: int) -> list[Data]:
    variables = {"PILOTFISH_ADMIN_HOST": "0.0.0.0"}  # noqa: S104 - kubelet comes by the pod's address
    if sidecar.config_map is not None:
        variables["PILOTFISH_CONFIG"] = f"{CONFIG_FOLDER}/{CONFIG_KEY}"
    variables |= sidecar.environment
    if not sidecar.native:
        variables["PILOTFISH_DRAIN_DELAY_MS"] = str(sidecar.delay_ms(app_grace_seconds))
    # Kubernetes expands $(NAME) to another variable's value, and $$ to a dollar.
    return [{"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()]


def _asks(path: str) -> dict[Key, Data]:
    """Returns an httpGet without host: kubelet uses the pod's address; 127.0.0.1 would be the node."""
    return {"path": path, "port": PORT_NAME}


def _start_seconds(startup_max_wait_ms: int) -> int:
    """Returns the time limit of the start: more than the sidecar's own wait for metadata."""
    return max(_SHORTEST_START_SECONDS, _START_MARGIN_SECONDS + math.ceil(startup_max_wait_ms / 1_000))


def _liveness_seconds(liveness_timeout_ms: int) -> int:
    """Kubelet's timeout for /livez: more than the sidecar's own wait for its loops."""
    return max(_SHORTEST_LIVENESS_SECONDS, 1 + math.ceil(liveness_timeout_ms / 1_000))
