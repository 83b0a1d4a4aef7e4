"""Values that are legal and odd, in charts of teams too: names that look like numbers, nulls, wrong kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.deploy.chart_tools import (
    ChartRefusedError,
    of_kind,
    pod_of,
    render,
    sidecar_of,
)

if TYPE_CHECKING:
    from tests.deploy.chart_tools import Manifest

_BROKERS = {"bootstrapServers": "kafka-bootstrap.kafka:9092"}


def own(**pilotfish: Any) -> list[Manifest]:
    """A team's own chart with these values for the library."""
    return render("own-chart", values={"pilotfish": {**_BROKERS, **pilotfish}})


def refusal(name: str, values: dict[str, Any]) -> str:
    with pytest.raises(ChartRefusedError) as refused:
        render(name, values=values)
    return str(refused.value)


# -- names that look like something else ---------------------------------------------------------------------


def test_names_of_secrets_config_maps_and_the_app_that_look_like_other_kinds_are_texts() -> None:
    manifests = own(appContainer="123", secrets=[{"name": "a", "secretName": "true"}], configMapName="123")
    pod = pod_of(manifests)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["pilotfish-secret-a"]["secret"]["secretName"] == "true"
    assert volumes["pilotfish-config"]["configMap"]["name"] == "123"
    assert pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] == "123"


# -- nulls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nothing",
    [
        {"settings": None},
        {"settings": {"drain_timeout_ms": None}},
        {"kafka": None},
        {"image": None},
        {"image": {"repository": None, "tag": None, "pullPolicy": None}},
        {"readiness": None},
        {"nativeSidecar": None},
        {"appGraceSeconds": None},
        {"secrets": None},
    ],
)
def test_null_is_as_if_it_were_not_there(nothing: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"appContainer": "", "appGraceSeconds": 30}
    plain = pod_of(own(**usual, settings={}, kafka={}, secrets=[]))
    odd = pod_of(own(**{**usual, **nothing}))
    assert odd["spec"]["terminationGracePeriodSeconds"] == plain["spec"]["terminationGracePeriodSeconds"]
    for part in ("image", "imagePullPolicy", "startupProbe", "livenessProbe", "restartPolicy"):
        assert sidecar_of(odd)[part] == sidecar_of(plain)[part], part


def test_a_setting_that_is_null_is_in_no_file_and_the_grace_period_is_that_of_its_default() -> None:
    manifests = own(appGraceSeconds=30, settings={"drain_timeout_ms": None, "log_format": "json"})
    assert "drain" not in of_kind(manifests, "ConfigMap")["data"]["pilotfish.toml"]
    assert pod_of(manifests)["spec"]["terminationGracePeriodSeconds"] == 55


@pytest.mark.parametrize(
    "part", ["podMonitor", "networkPolicy", "prometheusRule", "dashboard", "demo", "tests"]
)
def test_a_part_of_the_chart_that_is_null_is_not_there(part: str) -> None:
    assert isinstance(render("pilotfish", values={"pilotfish": _BROKERS, part: None}), list)


def test_kafka_that_is_null_is_none() -> None:
    assert render("pilotfish", values={"pilotfish": {"configMapName": "x", "kafka": None}})


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"appGraceSeconds": "abc"}, 'pilotfish.appGraceSeconds: must be a whole number, got "abc"'),
        (
            {"settings": {"drain_delay_ms": "abc"}},
            "pilotfish.settings.drain_delay_ms: must be a whole number",
        ),
        ({"settings": {"admin_port": "abc"}}, "pilotfish.settings.admin_port: must be a whole number"),
        (
            {"settings": {"admin_host": "127.0.0.1"}},  # the variable would beat it, and open the port
            "pilotfish.settings.admin_host: probes use the pod's address; remove it, or give :: for IPv6",
        ),
        (
            {"settings": {"admin_port": 8085}},
            "pilotfish.settings.admin_port: 8085 is the API's port; give another",
        ),
        (
            {"settings": {"api_port": 9464}},
            "pilotfish.settings.admin_port: 9464 is the API's port; give another",
        ),
        ({"image": {"digest": "abc"}}, 'pilotfish.image.digest: "abc" is not a digest; give it as sha256:'),
        ({"image": {"tagg": "1"}}, "pilotfish.image.tagg: there is no such value; there are digest"),
        ({"image": "x"}, "pilotfish.image: must be a map of names and values, got string"),
        ({"readiness": True}, "pilotfish.readiness: must be a map of names and values, got bool"),
        ({"readiness": {"enabled": "abc"}}, "pilotfish.readiness.enabled: must be true or false"),
        ({"nativeSidecar": "maybe"}, "pilotfish.nativeSidecar: must be true or false, got string"),
        ({"resources": "abc"}, "pilotfish.resources: must be a map of names and values"),
        ({"securityContext": "abc"}, "pilotfish.securityContext: must be a map of names and values"),
        ({"secrets": "abc"}, "pilotfish.secrets: must be a list, got string"),
        ({"extraEnv": "abc"}, "pilotfish.extraEnv: must be a list, got string"),
        ({"bootstrapServers": 5}, "pilotfish.bootstrapServers: must be a text"),
        # None of these is TOML as JSON writes them.
        ({"settings": {"allowed_hosts": {"a": "b"}}}, "pilotfish.settings: allowed_hosts must be a text"),
        ({"settings": {"allowed_hosts": [{"a": "b"}]}}, "pilotfish.settings: allowed_hosts must be a text"),
        ({"settings": {"warm_topics": ["a", None]}}, "pilotfish.settings: warm_topics must be a text"),
        ({"kafka": {"sasl.mechanism": [None]}}, "pilotfish.kafka: sasl.mechanism must be a text"),
    ],
)
def test_a_wrong_kind_is_refused_by_its_place_in_a_teams_chart(values: dict[str, Any], said: str) -> None:
    assert said in refusal("own-chart", {"pilotfish": {**_BROKERS, **values}})


def test_probes_may_come_to_an_address_of_ipv6() -> None:
    for given, host in (
        ({}, "0.0.0.0"),
        ({"admin_host": "0.0.0.0"}, "0.0.0.0"),
        ({"admin_host": "::"}, "::"),
    ):
        variables = {item["name"]: item["value"] for item in sidecar_of(pod_of(own(settings=given)))["env"]}
        assert variables["PILOTFISH_ADMIN_HOST"] == host


def test_without_a_port_of_the_api_its_number_is_free() -> None:
    pod = pod_of(own(settings={"api_port": 0, "api_socket": "/run/api.sock", "admin_port": 8085}))
    assert {"name": "PILOTFISH_ADMIN_PORT", "value": "8085"} in sidecar_of(pod)["env"]


@pytest.mark.parametrize("nobody", [None, {"kubernetes.io/metadata.name": None}])
def test_a_policy_that_would_let_every_namespace_scrape_is_refused(nobody: object) -> None:
    policy = {"enabled": True, "monitoringNamespace": nobody}
    said = refusal("pilotfish", {"pilotfish": _BROKERS, "networkPolicy": policy})
    assert "networkPolicy.monitoringNamespace: without labels every namespace could scrape" in said
