"""Checks inject's options by the sidecar's own checks, and builds a Sidecar.

A typo is refused here, with the nearest name, before a pod fails to start. Only the pod can check some
things, such as a Secret's keys. But each path into a Secret is checked against the mounted ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from client_core import OPTIONS, ConfigError, parse_and_validate_addresses
from service.base.environment import KAFKA_PREFIX, PREFIX
from service.base.memory_limit import bytes_needed, or_lower
from service.base.settings import OWN_NAMES, Settings
from service.base.settings_sources import SettingsError, check_settings
from service.base.version import pilotfish_version
from service.cli.inject.container import (
    CONFIG_FOLDER,
    DEFAULT_LIMITS,
    DEFAULT_REQUESTS,
    SECRETS_FOLDER,
    Sidecar,
)
from service.cli.inject.faults import AskedError

_BOOTSTRAP: Final = "bootstrap.servers"
#: Placeholder for brokers in a ConfigMap, which this command can't read.
_BROKERS_OF_CONFIG_MAP: Final = "brokers-of-the-config-map:9092"

#: All addresses of the pod: probes and Prometheus connect from outside.
_EVERY_ADDRESS: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104 - kubelet comes by the pod's address
_LOOPBACK: Final = ("localhost", "127.", "::1")

#: A Secret's NAME, as in the chart: a folder, and the end of a volume's name.
_SECRET_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
#: DNS-1123 subdomain: names of Secrets and ConfigMaps.
_OBJECT_NAME: Final = re.compile(
    r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
#: Source: the grammar in distribution/reference.
_IMAGE: Final = re.compile(
    r"([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?/)?"
    r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"
)
#: Kubernetes' quantities, without exponents.
_UNITS: Final[Mapping[str, float]] = {
    "": 1,
    "m": 1e-3,
    "k": 1e3,
    **{unit: 1000.0**power for power, unit in enumerate("MGTPE", 2)},
    **{f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?)({'|'.join(_UNITS)})")
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_FILE: Final = re.compile(rf"{SECRETS_FOLDER}/([^/,]*)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

#: Kafka's secret settings; each can come from a file.
_SECRETS: Final[Mapping[str, str]] = {
    option.name: option.file_name for option in OPTIONS if option.kind.secret and option.file_name is not None
}


@dataclass(frozen=True, slots=True)
class Options:
    """The options as given."""

    bootstrap_servers: str | None = None
    image: str | None = None
    own: Sequence[str] = ()
    kafka: Sequence[str] = ()
    secrets: Sequence[str] = ()
    config_map: str | None = None
    native: bool = True
    readiness: bool = False
    app_grace_seconds: int | None = None
    image_pull_policy: str = "IfNotPresent"
    requests: str = ""
    limits: str = ""
    env: Sequence[str] = ()


def sidecar_of(options: Options) -> Sidecar:
    """Returns the options' Sidecar. Raises AskedError with a line for each fault; none shows a secret."""
    faults: list[str] = []
    own = _pairs("--set", options.own, faults)
    kafka = _pairs("--kafka", options.kafka, faults)
    secrets = _pairs("--secret", options.secrets, faults)
    requests = DEFAULT_REQUESTS | _quantities("--requests", options.requests, faults)
    limits = DEFAULT_LIMITS | _quantities("--limits", options.limits, faults)
    _check_resources(requests, limits, faults)
    variables = _variables(options.env, faults)
    _check_names(options, secrets, faults)
    _check_inline_secrets(kafka, faults)
    _take_bootstrap_servers(options, kafka, faults)
    for option, given in (("--set", own), ("--kafka", kafka)):
        _check_values(option, given, secrets, options.config_map, faults)
    if faults:
        raise AskedError(faults)
    settings = _checked_own(own, faults)
    _check_kafka(kafka, options.config_map is not None, faults)
    if not faults:
        _check_memory(own, kafka, limits["memory"], faults)
    if settings is None or faults:
        raise AskedError(faults)
    _check_ports_and_hosts(own, settings)
    return Sidecar(
        image=options.image or f"pilotfish:{pilotfish_version()}",
        environment=_environment(own, kafka) | variables,
        secrets=secrets,
        config_map=options.config_map,
        native=options.native,
        readiness=options.readiness,
        app_grace_seconds=options.app_grace_seconds,
        admin_port=settings.admin_port,
        api_port=settings.api_port,
        drain_delay_ms=settings.drain_delay_ms if "drain_delay_ms" in own else None,
        drain_timeout_ms=settings.drain_timeout_ms,
        startup_max_wait_ms=settings.startup_max_wait_ms,
        liveness_timeout_ms=settings.liveness_timeout_ms,
        can_be_quit=bool(own.get("quit_token_file")) or options.config_map is not None,
        pull_policy=options.image_pull_policy,
        requests=requests,
        limits=limits,
    )


def _quantities(option: str, given: str, faults: list[str]) -> dict[str, str]:
    """Returns `cpu=50m,memory=128Mi` as a dict."""
    found: dict[str, str] = {}
    for pair in filter(None, given.split(",")):
        name, _, quantity = pair.partition("=")
        if name not in _RESOURCES:
            faults.append(
                f"{option} {pair!r}: must be one of {', '.join(_RESOURCES)}, as in cpu=50m,memory=128Mi"
            )
        elif name in found:
            faults.append(f"{option}: {name} is given twice")
        elif not _QUANTITY.fullmatch(quantity):
            faults.append(f"{option} {pair!r}: is not a quantity; write it as 50m, 0.5 or 128Mi")
        else:
            found[name] = quantity
    return found


def _check_resources(requests: Mapping[str, str], limits: Mapping[str, str], faults: list[str]) -> None:
    """Kubernetes refuses a request above its limit."""
    for name, limit in limits.items():
        request = requests.get(name)
        if request is not None and _amount(request) > _amount(limit):
            faults.append(
                f"--limits {name}={limit}: is less than the request of {request}; give --requests too"
            )


def _amount(quantity: str) -> float:
    read = _QUANTITY.fullmatch(quantity)
    assert read is not None
    return float(read[1]) * _UNITS[read[2]]


def _variables(given: Sequence[str], faults: list[str]) -> dict[str, str]:
    """Returns the variables of `--env`. Settings have options of their own, which check them."""
    found = _pairs("--env", given, faults)
    for name in found:
        if name.upper().startswith(PREFIX):
            faults.append(f"--env {name}: is a setting; use --set or --kafka")
        elif not _VARIABLE.fullmatch(name):
            faults.append(f"--env {name!r}: is no name of an environment variable")
    return found


def doubts(options: Options) -> list[str]:
    """Warnings about unusual but valid options."""
    faults: list[str] = []
    own = _pairs("--set", options.own, faults)
    kafka = _pairs("--kafka", options.kafka, faults)
    found: list[str] = []
    brokers = (options.bootstrap_servers or kafka.get(_BOOTSTRAP, "")).split(",")
    if any(broker.strip(" [").startswith(_LOOPBACK) for broker in brokers):
        found.append("in a pod, localhost is the pod itself; name the broker as the pod can reach it")
    if own.get("api_host", "127.0.0.1") not in ("127.0.0.1", "localhost", "::1"):
        found.append("with api_host the API can be reached from outside of the pod; see docs/security.md")
    folder = own.get("events_folder", "")
    if folder and not PurePosixPath(folder).is_relative_to("/tmp"):  # noqa: S108 - in the container
        found.append(
            f"events_folder {folder} must be a volume that you add: the sidecar can write to /tmp only"
        )
    if own.get("api_socket"):
        found.append(
            f"api_socket {own['api_socket']} must be in a volume that you add to the sidecar and to the app: "
            "they share no folder"
        )
    return found


def _pairs(option: str, texts: Iterable[str], faults: list[str]) -> dict[str, str]:
    """Parses NAME=VALUE pairs. A fault shows only the name: the rest may be a secret."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name:
            faults.append(f"{option} {_shown(name)}: must be NAME=VALUE")
        elif name in pairs:
            faults.append(f"{option} {_shown(name)}: is given twice; give it once")
        else:
            pairs[name] = value
    return pairs


_NAME_CHARACTERS: Final = re.compile(r"[\w.-]{0,64}")


def _shown(name: str) -> str:
    """Returns the text's prefix that can be a name."""
    found = _NAME_CHARACTERS.match(name)
    assert found is not None
    return found[0]


def _check_names(options: Options, secrets: Mapping[str, str], faults: list[str]) -> None:
    if options.image is not None and not _IMAGE.fullmatch(options.image):
        faults.append(
            f"--image {options.image!r}: is not an image; write it as registry.example/pilotfish:0.1.0"
        )
    if options.image is None and pilotfish_version() == "unknown":
        faults.append("--image: must be given: this Pilotfish is not installed, so its version is unknown")
    if options.config_map is not None and not _OBJECT_NAME.fullmatch(options.config_map):
        faults.append(f"--config-map {options.config_map!r}: is not a valid name of a ConfigMap")
    for name, secret in secrets.items():
        if not _SECRET_NAME.fullmatch(name):
            faults.append(
                f"--secret {_shown(name)}: NAME becomes a folder: at most 40 lower-case letters, digits "
                "and hyphens"
            )
        if not _OBJECT_NAME.fullmatch(secret):
            faults.append(f"--secret {_shown(name)}: the part after = is not a valid name of a Secret")


def _check_inline_secrets(kafka: Mapping[str, str], faults: list[str]) -> None:
    for name in kafka:
        file_name = _SECRETS.get(name)
        if file_name is not None:
            folder = name.partition(".")[0]
            faults.append(
                f"--kafka {name}: is a secret, and everyone who may read the pod would see it; "
                f"mount a Secret: --secret {folder}=NAME-OF-SECRET "
                f"--kafka {file_name}={SECRETS_FOLDER}/{folder}/KEY-IN-IT"
            )


def _take_bootstrap_servers(options: Options, kafka: dict[str, str], faults: list[str]) -> None:
    given = options.bootstrap_servers
    if given is not None and _BOOTSTRAP in kafka:
        faults.append(f"--bootstrap-servers: --kafka {_BOOTSTRAP} is given, too; give one of them")
    elif given is not None:
        kafka[_BOOTSTRAP] = given.strip()
    if _BOOTSTRAP not in kafka:
        if options.config_map is None:
            faults.append("--bootstrap-servers: give the brokers as HOST:PORT, separated by commas")
        return
    try:
        parse_and_validate_addresses([part.strip() for part in kafka[_BOOTSTRAP].split(",")])
    except ConfigError as error:
        faults.append(f"--bootstrap-servers: {error.message}; write HOST:PORT, separated by commas")


def _check_values(
    option: str,
    given: Mapping[str, str],
    secrets: Mapping[str, str],
    config_map: str | None,
    faults: list[str],
) -> None:
    for name, value in given.items():
        if _UNPRINTABLE.search(value):
            faults.append(
                f"{option} {_shown(name)}: has a line break or another unprintable character; remove it"
            )
        for folder in _SECRET_FILE.findall(value):
            if folder not in secrets:
                near = difflib.get_close_matches(folder, list(secrets), n=1)
                hint = (
                    f"did you mean {near[0]}?" if near else f"add --secret {folder or 'NAME'}=NAME-OF-SECRET"
                )
                faults.append(
                    f"{option} {_shown(name)}: nothing is mounted at {SECRETS_FOLDER}/{folder}; {hint}"
                )
        if value.startswith(f"{CONFIG_FOLDER}/") and not _SECRET_FILE.match(value) and config_map is None:
            faults.append(
                f"{option} {_shown(name)}: nothing is mounted at {CONFIG_FOLDER}; add --config-map NAME for "
                "a file of a ConfigMap, or --secret NAME=NAME-OF-SECRET for one of a Secret"
            )


def _checked_own(own: Mapping[str, str], faults: list[str]) -> Settings | None:
    """Returns the sidecar's own settings; None, with faults added, if the sidecar would refuse them."""
    for name in own:
        if name in ("kafka", "config"):
            faults.append(f"--set {name}: give Kafka's settings by --kafka, and a file by --config-map")
            return None
    try:
        return check_settings(own, {_BOOTSTRAP: _BROKERS_OF_CONFIG_MAP})
    except SettingsError as error:
        faults += [f"--set {line}" for line in str(error).splitlines()]
        return None


def _check_kafka(kafka: Mapping[str, str], has_config_map: bool, faults: list[str]) -> None:
    """Checks Kafka's settings and the rules between them. Ignores what a ConfigMap may still supply."""
    try:
        check_settings({}, {_BOOTSTRAP: _BROKERS_OF_CONFIG_MAP, **kafka})
    except SettingsError as error:
        cause = error.__cause__
        if has_config_map and isinstance(cause, ConfigError) and cause.name not in kafka:
            return
        faults += [f"--kafka {line.removeprefix('kafka: ')}" for line in str(error).splitlines()]


def _check_memory(own: Mapping[str, str], kafka: Mapping[str, str], limit: str, faults: list[str]) -> None:
    """The kernel kills a sidecar whose limit is smaller than its buffers."""
    try:
        settings = check_settings(own, {_BOOTSTRAP: _BROKERS_OF_CONFIG_MAP, **kafka})
    except SettingsError:  # the rest is in the ConfigMap
        return
    needed = bytes_needed(settings)
    if _amount(limit) < needed:
        faults.append(
            f"--limits memory={limit}: is too small for these settings: give "
            f"memory={-(-needed // (1024 * 1024))}Mi{or_lower(settings)}"
        )


def _check_ports_and_hosts(own: Mapping[str, str], settings: Settings) -> None:
    faults = []
    if "admin_host" in own and settings.admin_host not in _EVERY_ADDRESS:
        faults.append("--set admin_host: probes use the pod's address; keep 0.0.0.0")
    faults += [
        f"--set {name}: 0 chooses a free port, which the app can't know; give a port number"
        for name, port in (("admin_port", settings.admin_port), ("api_port", settings.api_port))
        if port == 0
    ]
    if settings.admin_port == settings.api_port:
        faults.append(f"--set admin_port: {settings.admin_port} is the API's port; give another")
    if faults:
        raise AskedError(faults)


def _environment(own: Mapping[str, str], kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables: brokers, the sidecar's settings in the order of docs/settings.md, Kafka's."""
    variables = {}
    if _BOOTSTRAP in kafka:
        variables[_kafka_variable(_BOOTSTRAP)] = kafka[_BOOTSTRAP]
    variables |= {f"{PREFIX}{name.upper()}": own[name] for name in OWN_NAMES if name in own}
    variables |= {_kafka_variable(name): kafka[name] for name in sorted(kafka)}
    return variables


def _kafka_variable(name: str) -> str:
    return f"{KAFKA_PREFIX}{name.upper().replace('.', '_')}"
