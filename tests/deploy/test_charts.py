"""The charts: Helm and Kubernetes accept the output of each values example, and it is as documented."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from service.base.settings_sources import load_settings
from tests.deploy.chart_tools import (
    CHARTS,
    EXAMPLES,
    HELM_FOLDER,
    NEWEST,
    OLDEST,
    ROOT,
    ChartRefusedError,
    Manifest,
    chart,
    charts,
    containers,
    environment,
    example,
    of_kind,
    parsed,
    pod_of,
    pod_template,
    render,
    run_helm,
    sidecar_of,
    template,
)
from tests.support.injecting import assert_known

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Of the Prometheus operator: check_charts.py has their schemas.
CUSTOM = ("PodMonitor", "PrometheusRule")
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def pods(name: str) -> Iterator[Manifest]:
    """The pods of an example that have a sidecar: all of them."""
    for manifest in render("pilotfish", name):
        pod = pod_template(manifest)
        if pod is not None:
            yield pod


def workload(**pilotfish: Any) -> Manifest:
    """The demo's pod with these values of the sidecar."""
    values = {"pilotfish": pilotfish, "demo": {"deployment": {"enabled": True}}}
    return pod_of(render("pilotfish", "minimal", values=values))


def toml_of(manifests: list[Manifest]) -> str:
    text: str = of_kind(manifests, "ConfigMap")["data"]["pilotfish.toml"]
    return text


# -- Helm and Kubernetes -------------------------------------------------------------------------------------


def test_helm_lint_is_content_with_every_example() -> None:
    for name in EXAMPLES:
        run_helm("lint", "--strict", chart("pilotfish"), "--values", example(name))


def test_helm_lint_is_content_with_the_defaults() -> None:
    run_helm("lint", "--strict", *(charts() / place for place in ("pilotfish-lib", *CHARTS.values())))


def test_every_manifest_of_every_example_is_one_that_kubernetes_knows() -> None:
    for name in EXAMPLES:
        for version in (OLDEST, NEWEST):
            manifests = render("pilotfish", name, kube_version=version)
            assert manifests, (name, version)
            for manifest in manifests:
                if manifest["kind"] not in CUSTOM:
                    assert_known(manifest, version)


def test_the_plain_examples_are_manifests_that_kubernetes_knows() -> None:
    for path in sorted((HELM_FOLDER / "examples").glob("*.yaml")):
        for manifest in parsed(path.read_text()):
            assert_known(manifest, OLDEST, NEWEST)


def test_every_object_bears_the_release_and_its_namespace() -> None:
    for manifest in render("pilotfish", "everything"):
        assert manifest["metadata"]["namespace"] == "billing"
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "shop"
        assert len(manifest["metadata"]["name"]) <= 63


def test_by_default_nothing_is_made() -> None:
    assert render("pilotfish") == []


def test_two_releases_in_a_namespace_share_no_name() -> None:
    names = [
        (manifest["kind"], manifest["metadata"]["name"])
        for release in ("shop", "pilotfish-of-billing")
        for manifest in parsed(template(chart("pilotfish"), "everything", release=release))
    ]
    assert len(set(names)) == len(names)


def test_a_cluster_without_native_sidecars_is_refused() -> None:
    with pytest.raises(ChartRefusedError, match=r"chart requires kubeVersion: >=1\.29\.0-0"):
        render("pilotfish", "minimal", kube_version="1.28.0")


def test_the_chart_may_be_a_dependency_of_another(tmp_path: Path) -> None:
    """Helm hands every dependency the parent's globals; a strict schema has to take them."""
    (tmp_path / "templates").mkdir()
    dependency = {
        "name": "pilotfish",
        "version": "0.1.0",
        "repository": f"file://{chart('pilotfish')}",
    }
    metadata = {"apiVersion": "v2", "name": "parent", "version": "0.1.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(metadata))
    values = {"global": {"team": "billing"}, "pilotfish": yaml.safe_load(example("native").read_text())}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    run_helm("dependency", "update", "--skip-refresh", tmp_path)
    kinds = sorted(manifest["kind"] for manifest in parsed(template(tmp_path)))
    assert kinds == ["ConfigMap", "Deployment", "Pod"]


def test_the_package_has_the_library_and_no_tests_of_rules(tmp_path: Path) -> None:
    run_helm("package", chart("pilotfish"), "--destination", tmp_path)
    (package,) = tmp_path.glob("*.tgz")
    listed = subprocess.run(["tar", "-tzf", package], capture_output=True, text=True, check=True).stdout
    assert "pilotfish/charts/pilotfish-lib/templates/_container.tpl" in listed
    assert "pilotfish/values.schema.json" in listed
    assert "rules_test" not in listed
    assert "/ci/" not in listed


def test_schema_and_names_are_those_of_the_settings() -> None:
    command = [sys.executable, str(HELM_FOLDER / "values_schema.py"), "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_charts_and_defaults_have_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for place in ("pilotfish", "pilotfish-lib"):
        metadata = yaml.safe_load((HELM_FOLDER / place / "Chart.yaml").read_text())
        assert (metadata["version"], metadata["appVersion"]) == (version, version)
        for dependency in metadata.get("dependencies", ()):
            assert dependency["version"] == version
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    assert values["pilotfish"]["image"]["tag"] == version


def test_every_value_is_explained_by_the_schema_and_the_other_way_round() -> None:
    """A value that the schema does not know is refused; one without a default would be unknown to readers."""
    schema = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.schema.json").read_text())
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    helms_own = {"global", "pilotfish-lib"}
    assert set(schema["properties"]) - helms_own == set(values)
    for name, known in schema["properties"].items():
        if name not in helms_own and "properties" in known and name != "imagePullSecrets":
            assert set(known["properties"]) == set(values[name]), name


def blocks(page: str, language: str) -> list[str]:
    """The pieces of code in a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def test_values_in_the_documentation_are_taken() -> None:
    shown = [yaml.safe_load(block) for block in blocks("docs/kubernetes.md", "yaml")]
    assert len(shown) >= 4
    for values in shown:
        values["pilotfish"] = {"bootstrapServers": "kafka:9092", **values.get("pilotfish", {})}
        assert render("pilotfish", values=values)


def test_the_quick_start_of_the_documentation_makes_what_it_says() -> None:
    start = blocks("docs/kubernetes.md", "sh")[0]
    assert len(start.splitlines()) <= 10
    manifests = render("pilotfish", flags=flags_of(start))
    assert sorted(manifest["kind"] for manifest in manifests) == ["Deployment", "Pod"]


def flags_of(command: str) -> list[str]:
    return [word for flag in re.findall(r"--set (\S+)", command) for word in ("--set", flag)]


def test_the_readme_of_a_chart_describes_all_that_it_has() -> None:
    readme = (HELM_FOLDER / "pilotfish" / "README.md").read_text()
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    assert [name for name in values if f"`{name}`" not in readme] == []
    readme = (HELM_FOLDER / "pilotfish-lib" / "README.md").read_text()
    included = re.findall(r'include "(pilotfish\.\w+)"', readme)
    assert [name for name in included if f"`{name}`" not in readme] == []


def test_a_namespace_and_a_release_that_are_numbers_are_texts() -> None:
    values = {
        "pilotfish": {
            "bootstrapServers": "kafka:9092",
            "settings": {"log_format": "json"},
            "fullnameOverride": "123",
        },
        "demo": {"deployment": {"enabled": True}, "job": {"enabled": True}},
        "networkPolicy": {"enabled": True},
        "dashboard": {"enabled": True},
    }
    manifests = parsed(template(chart("pilotfish"), values=values, release="77", namespace="1234"))
    assert len(manifests) >= 5
    for manifest in manifests:
        assert_known(manifest, NEWEST)
        assert manifest["metadata"]["namespace"] == "1234"
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == "77"


# -- probes and ports ----------------------------------------------------------------------------------------


def test_probes_dial_the_address_of_the_pod_at_the_named_port() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            sidecar = sidecar_of(pod)
            for probe in PROBES:
                if probe in sidecar:
                    assert "host" not in sidecar[probe]["httpGet"], name
                    assert sidecar[probe]["httpGet"]["port"] == "pf-admin", name
            assert environment(sidecar)["PILOTFISH_ADMIN_HOST"] == "0.0.0.0", name


def test_readiness_is_only_there_where_it_was_asked_for() -> None:
    for name in EXAMPLES:
        given = yaml.safe_load(example(name).read_text())["pilotfish"]
        asked = given.get("readiness", {}).get("enabled", False)
        for pod in pods(name):
            assert ("readinessProbe" in sidecar_of(pod)) == asked, name


def test_the_start_may_take_longer_than_the_sidecar_waits_for_metadata() -> None:
    for wait_ms in (0, 30_000, 45_001, 90_000, 600_000):
        probe = sidecar_of(workload(settings={"startup_max_wait_ms": wait_ms}))["startupProbe"]
        assert probe["failureThreshold"] * probe["periodSeconds"] * 1000 >= wait_ms + 30_000


def test_kubelet_waits_longer_for_livez_than_the_sidecar_for_its_loops() -> None:
    for turn_ms in (50, 4_000, 7_500, 30_000):
        probe = sidecar_of(workload(settings={"liveness_timeout_ms": turn_ms}))["livenessProbe"]
        assert probe["timeoutSeconds"] * 1000 > turn_ms


def test_the_api_is_no_port_of_the_container() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            assert [port["name"] for port in sidecar_of(pod)["ports"]] == ["pf-admin"], name


def test_a_chosen_admin_port_is_passed_to_all_who_need_it() -> None:
    manifests = render("pilotfish", "everything")
    sidecar = sidecar_of(pod_of(manifests))
    assert sidecar["ports"][0]["containerPort"] == 9470
    assert environment(sidecar)["PILOTFISH_ADMIN_PORT"] == "9470"
    assert of_kind(manifests, "NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"] == 9470
    assert environment(pod_of(manifests)["spec"]["containers"][-1])["PILOTFISH_API_PORT"] == "8090"


def test_names_of_ports_are_short_enough_for_kubernetes() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            assert all(len(port["name"]) <= 15 for port in sidecar_of(pod)["ports"])


# -- security ------------------------------------------------------------------------------------------------


def test_every_container_fulfils_what_restricted_asks_for() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            for container in containers(pod):
                context = container["securityContext"]
                assert context["runAsNonRoot"] is True, name
                assert context["allowPrivilegeEscalation"] is False, name
                assert context["readOnlyRootFilesystem"] is True, name
                assert context["capabilities"] == {"drop": ["ALL"]}, name
                assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name


def test_no_pod_of_the_chart_has_a_token_for_the_api_server() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            assert pod["spec"]["automountServiceAccountToken"] is False, name
            assert not {"hostNetwork", "hostPID", "shareProcessNamespace"} & set(pod["spec"]), name


def test_users_can_be_left_to_the_cluster() -> None:
    context = sidecar_of(pod_of(render("pilotfish", "everything")))["securityContext"]
    assert not {"runAsUser", "runAsGroup"} & set(context)


def test_memory_is_limited_and_cpu_is_not() -> None:
    resources = sidecar_of(workload())["resources"]
    assert resources["limits"] == {"memory": "256Mi"}
    assert resources["requests"] == {"cpu": "50m", "memory": "128Mi"}


def test_a_limit_can_be_left_out() -> None:
    assert sidecar_of(workload(resources={"limits": {"memory": None}}))["resources"].get("limits", {}) == {}


# -- the native sidecar and the older form -------------------------------------------------------------------


def test_a_native_sidecar_is_an_init_container_that_is_restarted() -> None:
    pod = workload(nativeSidecar=True)
    assert [container["name"] for container in pod["spec"]["initContainers"]] == ["pilotfish"]
    assert sidecar_of(pod)["restartPolicy"] == "Always"
    assert "lifecycle" not in sidecar_of(pod)
    assert "PILOTFISH_DRAIN_DELAY_MS" not in environment(sidecar_of(pod))


def test_the_older_form_comes_first_and_holds_the_app_back_until_it_has_started() -> None:
    pod = workload(nativeSidecar=False)
    assert "initContainers" not in pod["spec"]
    assert [container["name"] for container in pod["spec"]["containers"]] == ["pilotfish", "app"]
    sidecar = sidecar_of(pod)
    assert "restartPolicy" not in sidecar
    command = sidecar["lifecycle"]["postStart"]["exec"]["command"]
    assert command == ["pilotfish", "wait", "--timeout", "60"]


def test_the_older_form_serves_on_while_the_app_drains() -> None:
    delays = [
        environment(sidecar_of(workload(nativeSidecar=False, appGraceSeconds=12, settings=settings)))
        for settings in ({}, {"drain_delay_ms": 3_000}, {"drain_delay_ms": 0})
    ]
    assert [delay["PILOTFISH_DRAIN_DELAY_MS"] for delay in delays] == ["12000", "3000", "0"]


def test_both_forms_have_the_same_container_but_for_what_makes_them_so() -> None:
    native, legacy = (sidecar_of(workload(nativeSidecar=it)) for it in (True, False))
    del native["restartPolicy"], legacy["lifecycle"], legacy["env"][-1]
    assert native == legacy


# -- shutdown ------------------------------------------------------------------------------------------------


def test_the_grace_period_has_room_for_app_delay_and_drain() -> None:
    def grace_s(app_s: int, delay_ms: int, drain_ms: int) -> int:
        settings = {"drain_delay_ms": delay_ms, "drain_timeout_ms": drain_ms}
        found: int = workload(appGraceSeconds=app_s, settings=settings)["spec"][
            "terminationGracePeriodSeconds"
        ]
        return found

    cases = {(30, 0, 20_000): 55, (0, 0, 0): 5, (45, 1_500, 30_000): 82, (10, 0, 20_001): 36}
    assert {case: grace_s(*case) for case in cases} == cases


def test_the_grace_period_of_the_older_form_has_room_for_the_delay_that_it_sets() -> None:
    assert workload(nativeSidecar=False)["spec"]["terminationGracePeriodSeconds"] == 30 + 30 + 20 + 5


def test_a_job_beside_the_older_form_calls_quit_on_the_sidecar() -> None:
    pod = pod_of(render("pilotfish", "job-legacy"), "Job")
    app = pod["spec"]["containers"][-1]
    assert "pilotfish quit --token-file /etc/pilotfish/secrets/quit/token" in app["args"][0]
    (mount,) = app["volumeMounts"]
    assert mount["name"] in {volume["name"] for volume in pod["spec"]["volumes"]}
    assert mount["mountPath"] == "/etc/pilotfish/secrets/quit"


# -- configuration and secrets -------------------------------------------------------------------------------


def test_the_sidecar_reads_the_config_as_the_values_have_it(tmp_path: Path) -> None:
    config = tmp_path / "pilotfish.toml"
    for name in ("native", "legacy", "tls-sasl", "everything", "job-legacy"):
        config.write_text(toml_of([m for m in render("pilotfish", name) if "toml" in str(m.get("data"))]))
        given = yaml.safe_load(example(name).read_text())["pilotfish"]
        settings = load_settings({}, config_file=str(config))
        for setting, value in given.get("settings", {}).items():
            read = getattr(settings, setting)
            assert (list(read) if isinstance(read, tuple) else read) == value, (name, setting)
        assert settings.kafka["bootstrap.servers"] == given["bootstrapServers"], name
        for setting, value in given.get("kafka", {}).items():
            expected = str(value).lower() if isinstance(value, bool) else str(value)
            assert settings.kafka[setting] == expected, (name, setting)


def test_awkward_texts_come_out_as_they_went_in() -> None:
    awkward = 'a "quoted" \\ back\nslash <ü> #= \t'
    toml = toml_of(
        render("pilotfish", "minimal", values={"pilotfish": {"settings": {"service_name": awkward}}})
    )
    assert tomllib.loads(toml)["service_name"] == awkward


def test_pods_are_replaced_when_the_config_changes_and_only_then() -> None:
    def checksum(**pilotfish: Any) -> str:
        found: str = workload(**pilotfish)["metadata"]["annotations"]["checksum/pilotfish-config"]
        return found

    assert checksum(settings={"topic_metrics": True}) != checksum(settings={"topic_metrics": False})
    assert checksum(kafka={"linger.ms": 5}) != checksum(kafka={"linger.ms": 6})
    assert checksum(settings={"topic_metrics": True}) == checksum(
        settings={"topic_metrics": True}, appGraceSeconds=99
    )


def test_every_mount_has_its_volume_and_none_is_a_sub_path() -> None:
    for name in EXAMPLES:
        for pod in pods(name):
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            for container in containers(pod):
                for mount in container.get("volumeMounts", ()):
                    assert mount["name"] in volumes, name
                    assert "subPath" not in mount, name


def test_secrets_are_directories_and_never_variables() -> None:
    for pod in pods("tls-sasl"):
        mounts = {mount["mountPath"]: mount["name"] for mount in sidecar_of(pod)["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        sasl = volumes[mounts["/etc/pilotfish/secrets/sasl"]]
        assert sasl == {"name": "pilotfish-secret-sasl", "secret": {"secretName": "kafka-sasl"}}
        assert not [variable for variable in sidecar_of(pod)["env"] if "valueFrom" in variable]


def test_a_spool_has_a_volume_that_survives_and_the_sidecar_a_folder_of_its_own_on_it() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "orders-spool"}}
    pod = workload(spool={"enabled": True, "volume": claim})
    (volume,) = [one for one in pod["spec"]["volumes"] if one["name"] == "pilotfish-spool"]
    assert volume == {"name": "pilotfish-spool", **claim}
    (mount,) = [one for one in sidecar_of(pod)["volumeMounts"] if one["name"] == "pilotfish-spool"]
    folder = environment(sidecar_of(pod))["PILOTFISH_SPOOL_FOLDER"]
    assert folder.startswith(mount["mountPath"] + "/")
    assert not mount.get("readOnly")
    user = sidecar_of(pod)["securityContext"]["runAsGroup"]
    assert pod["spec"]["securityContext"] == {"fsGroup": user}


def test_two_pods_never_have_the_spool_at_once() -> None:
    values = {
        "pilotfish": {"spool": {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "s"}}}},
        "demo": {"deployment": {"enabled": True}, "job": {"enabled": True}},
    }
    manifests = render("pilotfish", "minimal", values=values)
    with_spool = [
        manifest["kind"]
        for manifest in manifests
        if (pod := pod_template(manifest)) is not None
        and "pilotfish-spool" in [volume["name"] for volume in pod["spec"]["volumes"]]
    ]
    assert with_spool == ["Deployment"]
    assert of_kind(manifests, "Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_without_a_spool_nothing_of_it_is_there() -> None:
    pod = workload()
    assert "spool" not in str(pod).lower()


def test_tmp_is_small_and_in_memory() -> None:
    volume = next(volume for volume in workload()["spec"]["volumes"] if volume["name"] == "pilotfish-tmp")
    assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}


def test_a_config_map_that_is_there_already_is_taken_instead() -> None:
    values = {"pilotfish": {"configMapName": "ours"}, "demo": {"deployment": {"enabled": True}}}
    manifests = render("pilotfish", values=values)
    assert not [manifest for manifest in manifests if manifest["kind"] == "ConfigMap"]
    volumes = pod_of(manifests)["spec"]["volumes"]
    assert {"name": "pilotfish-config", "configMap": {"name": "ours"}} in volumes


# -- monitoring ----------------------------------------------------------------------------------------------


def test_monitor_and_policy_find_every_pod_with_a_sidecar() -> None:
    manifests = render("pilotfish", "everything")
    selectors = [
        of_kind(manifests, "PodMonitor")["spec"]["selector"],
        of_kind(manifests, "NetworkPolicy")["spec"]["podSelector"],
    ]
    for pod in pods("everything"):
        for selector in selectors:
            assert selector["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_metrics_are_scraped_at_the_port_of_the_sidecar() -> None:
    spec = of_kind(render("pilotfish", "everything"), "PodMonitor")["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("pf-admin", "/metrics")
    assert spec["namespaceSelector"] == {"matchNames": ["shop", "billing"]}


def test_a_star_scrapes_all_namespaces_and_nothing_the_own_one() -> None:
    def selector(namespaces: list[str]) -> Any:
        monitor = {"podMonitor": {"enabled": True, "namespaces": namespaces}}
        return of_kind(render("pilotfish", values=monitor), "PodMonitor")["spec"].get("namespaceSelector")

    assert selector(["*"]) == {"any": True}
    assert selector([]) is None


def test_rules_and_dashboard_are_the_files_as_they_are() -> None:
    manifests = render("pilotfish", "everything")
    files = HELM_FOLDER / "pilotfish" / "files"
    assert of_kind(manifests, "PrometheusRule")["spec"] == yaml.safe_load((files / "rules.yaml").read_text())
    (dashboard,) = [m for m in manifests if m["metadata"]["name"].endswith("-dashboard")]
    assert dashboard["data"]["pilotfish.json"].rstrip() == (files / "dashboard.json").read_text().rstrip()
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_a_policy_lets_in_who_scrapes_and_who_is_listed() -> None:
    rules = of_kind(render("pilotfish", "everything"), "NetworkPolicy")["spec"]["ingress"]
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert rules[0]["from"] == [{"namespaceSelector": monitoring}]
    assert rules[1]["ports"] == [{"port": 8080, "protocol": "TCP"}]


# -- the test of helm ----------------------------------------------------------------------------------------


def test_the_pod_of_helm_test_has_a_sidecar_of_its_own_and_ends() -> None:
    for name in EXAMPLES:
        pod = of_kind(render("pilotfish", name), "Pod")
        assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test", name
        assert pod["spec"]["restartPolicy"] == "Never", name
        assert sidecar_of(pod) in pod["spec"]["initContainers"], name


def test_commands_that_demo_and_test_call_are_commands_of_pilotfish() -> None:
    from click import Context

    from service.__main__ import main

    called = {
        command
        for name in EXAMPLES
        for pod in pods(name)
        for container in pod["spec"]["containers"]
        if container["name"] == "app"
        for command in re.findall(r"\bpilotfish ([a-z]+)\b", container["args"][0])
    }
    assert called == {"produce", "quit", "wait", "topics", "status"}
    assert called <= set(main.list_commands(Context(main)))


def test_files_of_the_chart_name_no_image_registry() -> None:
    """The user names the registry at installation; the chart's defaults pull from none of ours."""
    values = yaml.safe_load((HELM_FOLDER / "pilotfish" / "values.yaml").read_text())
    assert Path(values["pilotfish"]["image"]["repository"]).name == values["pilotfish"]["image"]["repository"]
