"""Whatever a manifest looks like, the sidecar goes in and nothing else changes; and it comes out again."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.cli.inject.container import Sidecar
from service.cli.inject.faults import ManifestError
from service.cli.inject.manifests import Source, inject, uninject
from tests.support.random_manifests import manifests

SIDECAR = Sidecar("pilotfish:1", {"PILOTFISH_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"})
OTHER = Sidecar(
    "pilotfish:2",
    {"PILOTFISH_LOG_LEVEL": "debug"},
    secrets={"sasl": "kafka-sasl"},
    config_map="kafka",
    readiness=True,
    drain_timeout_ms=61_000,
)
PROFILE = settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))

TEMPLATES = {"Pod": (), "CronJob": ("spec", "jobTemplate", "spec", "template")}
OURS = ("pilotfish-tmp", "pilotfish-config", "pilotfish-secret-sasl")


def meaning(text: str) -> list[Any]:
    """What PyYAML reads."""
    return [document for document in yaml.safe_load_all(text) if document is not None]


def injected(text: str, sidecar: Sidecar = SIDECAR) -> str:
    return inject([Source("x.yaml", text)], sidecar).texts[0]


def objects(documents: list[Any]) -> list[Any]:
    return [item for one in documents for item in (one["items"] if one.get("kind") == "List" else [one])]


def template_of(one: Any) -> Any:
    for step in TEMPLATES.get(one["kind"], ("spec", "template")):
        one = one[step]
    return one


def without_sidecar(one: Any) -> Any:
    """An object as it was, by hand."""
    one = copy.deepcopy(one)
    if one["kind"] == "ConfigMap":
        return one
    template = template_of(one)
    spec, metadata = template["spec"], template["metadata"]
    own_grace, _, _ = metadata["annotations"]["pilotfish-injected"].rpartition("Seconds=")[2].partition("->")
    if own_grace == "unset":
        del spec["terminationGracePeriodSeconds"]
    else:
        spec["terminationGracePeriodSeconds"] = int(own_grace)
    for key in ("initContainers", "containers"):
        spec[key] = [container for container in spec.get(key, []) if container["name"] != "pilotfish"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in OURS]
    for name in ("pilotfish-injected", "kubectl.kubernetes.io/default-container"):
        metadata["annotations"].pop(name, None)
    del metadata["labels"]["pilotfish-sidecar"]
    return one


def without_empty(one: Any) -> Any:
    """An object without the lists and mappings of its pods that hold nothing."""
    one = copy.deepcopy(one)
    if one["kind"] == "ConfigMap":
        return one
    template = template_of(one)
    for value, names in (
        (template["spec"], ("initContainers", "volumes")),
        (template.get("metadata", {}), ("labels", "annotations")),
        (template, ("metadata",)),
    ):
        for name in names:
            if not value.get(name):
                value.pop(name, None)
    return one


@PROFILE
@given(manifests())
def test_all_but_the_sidecar_means_what_it_meant(text: str) -> None:
    before = meaning(text)
    after = meaning(injected(text))
    stripped = [without_empty(without_sidecar(one)) for one in objects(after)]
    assert stripped == [without_empty(one) for one in objects(before)]


@PROFILE
@given(manifests())
def test_each_pod_has_the_sidecar_first_and_once(text: str) -> None:
    meaning(text)
    for one in objects(meaning(injected(text))):
        if one["kind"] == "ConfigMap":
            continue
        spec = template_of(one)["spec"]
        names = [container["name"] for container in spec["initContainers"]]
        assert names[0] == "pilotfish"
        assert names.count("pilotfish") == 1
        assert template_of(one)["metadata"]["labels"]["pilotfish-sidecar"] == "true"


@PROFILE
@given(manifests())
def test_injecting_twice_is_injecting_once(text: str) -> None:
    once = injected(text)
    assert injected(once) == once


@PROFILE
@given(manifests())
def test_an_older_sidecar_becomes_what_a_new_one_would_be(text: str) -> None:
    anew, updated = injected(text, OTHER), injected(injected(text), OTHER)
    assert meaning(updated) == meaning(anew)


@PROFILE
@given(manifests())
def test_a_sidecar_that_is_taken_out_leaves_the_bytes_that_were_there(text: str) -> None:
    before = objects(meaning(text))
    # A list or mapping that held nothing is not there again: it says nothing.
    assume(before == [without_empty(one) for one in before])
    # Nor is a tag, where the grace period was raised.
    assume("!!int" not in text)
    assert uninject([Source("x.yaml", injected(text))]).texts == [text]


@PROFILE
@given(manifests())
def test_no_line_goes_and_none_moves(text: str) -> None:
    assume("!!int" not in text and "{" not in text.replace("{}", "") and "[" not in text.replace("[]", ""))
    lines = injected(text).splitlines()
    # Those that are written anew: the grace period, and what was empty.
    anew = ("terminationGracePeriodSeconds", "{}", "[]")
    kept = [line for line in text.splitlines() if not any(word in line for word in anew)]
    found = iter(lines)
    assert [line for line in kept if line not in found] == []


@PROFILE
@given(manifests(), st.integers(0, 1000), st.integers(1, 20))
def test_a_text_that_breaks_off_is_refused_or_read_and_never_a_bug(text: str, start: int, count: int) -> None:
    cut = text[: start % (len(text) + 1)] + text[start % (len(text) + 1) + count :]
    with contextlib.suppress(ManifestError):
        made = injected(cut)
        assert injected(made) == made
