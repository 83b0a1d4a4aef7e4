"""Runs `pilotfish inject` as a user does, and checks its output against Kubernetes' own schemas."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]
from click.testing import CliRunner

from service.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

BROKERS: Final = ("--bootstrap-servers", "kafka-bootstrap.kafka:9092")
#: The first with native sidecars, and one of today.
KUBERNETES: Final = ("1.29.0", "1.34.0")

#: The path to the pod's spec, by kind.
_TEMPLATES: Final = {"Pod": (), "CronJob": ("spec", "jobTemplate", "spec", "template")}

DEPLOYMENT: Final = """\
# What sells.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web   # as in DNS
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels:
        app: web
    spec:
      # The app.
      containers:
        - name: web
          image: 'registry.example.com/web:1.0'   # pinned
          ports:
            - containerPort: 8080
"""


def run(*words: str, stdin: str | bytes | None = None) -> Result:
    """The command's end, whatever it is."""
    return CliRunner().invoke(main, ["inject", *words], input=stdin)


def injected(text: str, *words: str) -> str:
    """What is printed for a manifest on standard input; it went well, and Kubernetes would take it."""
    given = () if "--uninject" in words or "--bootstrap-servers" in words else BROKERS
    done = run("-f", "-", *given, *words, stdin=text)
    assert done.exit_code == 0, done.stderr
    assert_valid(done.stdout)
    return done.stdout


def refused(text: str, *words: str) -> str:
    """What is said of a manifest that is refused; nothing is printed then."""
    done = run("-f", "-", *BROKERS, *words, stdin=text)
    assert (done.exit_code, done.stdout) == (1, ""), done.stderr
    return done.stderr


def documents(text: str) -> list[Any]:
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document is not None]


def objects(text: str) -> Iterator[Any]:
    """Every object, those of a List one by one."""
    for document in documents(text):
        yield from document["items"] if document["kind"] == "List" else [document]


def assert_known(one: Any, *versions: str) -> None:
    """Holds an object against the schemas of these versions of Kubernetes."""
    for version in versions:
        _schemas().validate(one, version, strict=True)


@cache
def _schemas() -> Any:
    """The module that holds them, which reads its files of megabytes once, not for each object."""
    # Here, as it compiles a grammar for more than a second: every process of pytest would, to collect tests.
    from kubernetes_validate import utils  # type: ignore[import-untyped]

    utils.schema_contents, utils.all_versions = cache(utils.schema_contents), cache(utils.all_versions)
    return utils


@cache
def assert_valid(text: str) -> None:
    for one in objects(text):
        if not one["apiVersion"].startswith("serving."):
            assert_known(one, *KUBERNETES)


def template_of(one: Any) -> Any:
    """The pod template of an object: its metadata and its spec."""
    for step in _TEMPLATES.get(one["kind"], ("spec", "template")):
        one = one[step]
    return one


def pod(text: str) -> Any:
    """The pod template of the first object."""
    return template_of(next(objects(text)))


def sidecar_in(text: str) -> Any:
    """The sidecar's container in the first object."""
    spec = pod(text)["spec"]
    found = [
        item
        for key in ("initContainers", "containers")
        for item in spec.get(key, [])
        if item["name"] == "pilotfish"
    ]
    assert len(found) == 1
    return found[0]


def environment(text: str) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in sidecar_in(text)["env"]}
