"""The options that describe the sidecar, and the sidecar into a pod template and out of it, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.base.settings import Settings
from service.cli.inject.container import Sidecar
from service.cli.inject.pod import NOTE, Object, put_in, take_out
from tests.support.injecting import BROKERS, DEPLOYMENT, environment, injected, pod, run, sidecar_in

if TYPE_CHECKING:
    import pytest

SASL = (
    *("--secret", "sasl=kafka-sasl", "--kafka", "security.protocol=SASL_SSL"),
    *("--kafka", "sasl.mechanism=PLAIN", "--kafka", "sasl.username=web"),
    *("--kafka", "sasl.password.file=/etc/pilotfish/secrets/sasl/password"),
)


def refused(*words: str) -> str:
    """What is said of a wrong call; nothing is printed then."""
    done = run("-f", "-", *words, stdin=DEPLOYMENT)
    assert (done.exit_code, done.stdout) == (2, ""), done.stderr
    return done.stderr


# -- accepted options ----------------------------------------------------------------------------------------


def test_settings_become_variables_brokers_first_and_kafkas_last() -> None:
    kafka = ("--kafka", "linger.ms=5", "--kafka", "acks=1")
    own = ("--set", "log_level=debug", "--set", "warm_topics=a,b")
    assert list(environment(injected(DEPLOYMENT, *kafka, *own)).items()) == [
        ("PILOTFISH_ADMIN_HOST", "0.0.0.0"),
        ("PILOTFISH_KAFKA_BOOTSTRAP_SERVERS", "kafka-bootstrap.kafka:9092"),
        ("PILOTFISH_WARM_TOPICS", "a,b"),
        ("PILOTFISH_LOG_LEVEL", "debug"),
        ("PILOTFISH_KAFKA_ACKS", "1"),
        ("PILOTFISH_KAFKA_LINGER_MS", "5"),
    ]


def test_a_value_arrives_as_it_was_given_whatever_yaml_would_take_it_for() -> None:
    values = ["yes", "8085", "1e3", "a: b", "# x", '"', "\\", "é😀", "", "~", "{{x}}", "*"]
    # Dollars are doubled, so that Kubernetes does not look for a variable.
    arrives = dict(zip(values, values, strict=True)) | {"a$(HOME)$$b": "a$$(HOME)$$$$b"}
    made = {value: injected(DEPLOYMENT, "--set", f"service_name={value}") for value in arrives}
    assert {value: environment(text)["PILOTFISH_SERVICE_NAME"] for value, text in made.items()} == arrives


def test_resources_pull_policy_and_variables_are_options() -> None:
    plain = sidecar_in(injected(DEPLOYMENT))
    assert plain["imagePullPolicy"] == "IfNotPresent"
    assert plain["resources"] == {
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"memory": "256Mi"},
    }
    asked = ("--requests", "cpu=0.25", "--limits", "cpu=1,memory=1Gi", "--image-pull-policy", "Always")
    text = injected(DEPLOYMENT, *asked, "--env", "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318")
    changed = sidecar_in(text)
    assert changed["imagePullPolicy"] == "Always"
    assert changed["resources"] == {
        "requests": {"cpu": "0.25", "memory": "128Mi"},
        "limits": {"memory": "1Gi", "cpu": "1"},
    }
    assert environment(text)["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"


def test_resources_and_variables_that_kubernetes_would_refuse_are_refused() -> None:
    brokers = ("--bootstrap-servers", "kafka:9092")
    for words, fault in {
        ("--limits", "memory=96Mi"): "--limits memory=96Mi: is less than the request of 128Mi",
        ("--requests", "cpu=2,memory=1Gi", "--limits", "memory=900M"): "is less than the request of 1Gi",
        (
            "--requests",
            "memory=64Mi",
            "--limits",
            "memory=64Mi",
        ): "is too small for these settings: give memory=96Mi",
        ("--kafka", "buffer.memory=134217728"): "give memory=334Mi, or lower buffer.memory",
        ("--requests", "ram=1Gi"): "must be one of cpu, memory, ephemeral-storage",
        ("--requests", "cpu=a lot"): "is not a quantity",
        ("--limits", "cpu=1,cpu=2"): "cpu is given twice",
        ("--env", "PILOTFISH_LOG_LEVEL=debug"): "is a setting; use --set or --kafka",
        ("--env", "A-B=1"): "is no name of an environment variable",
    }.items():
        assert fault in refused(*brokers, *words), words
    assert injected(DEPLOYMENT, "--requests", "memory=64Mi", "--limits", "memory=96Mi")


def test_an_empty_host_is_refused() -> None:
    assert "--set api_host: " in refused(*BROKERS, "--set", "api_host=")


def test_brokers_may_come_as_a_kafka_setting() -> None:
    done = run("-f", "-", "--kafka", "bootstrap.servers=a:1,b:2", stdin=DEPLOYMENT)
    assert environment(done.stdout)["PILOTFISH_KAFKA_BOOTSTRAP_SERVERS"] == "a:1,b:2"


def test_a_secret_is_mounted_as_a_directory_and_named_by_its_files() -> None:
    text = injected(DEPLOYMENT, *SASL)
    name, folder = "pilotfish-secret-sasl", "/etc/pilotfish/secrets/sasl"
    assert {"name": name, "secret": {"secretName": "kafka-sasl"}} in pod(text)["spec"]["volumes"]
    mount = {"name": name, "mountPath": folder, "readOnly": True}
    assert sidecar_in(text)["volumeMounts"][-1] == mount
    assert environment(text)["PILOTFISH_KAFKA_SASL_PASSWORD_FILE"] == f"{folder}/password"


def test_a_config_map_is_mounted_and_named_and_may_bring_the_brokers() -> None:
    done = run("-f", "-", "--config-map", "kafka", stdin=DEPLOYMENT)
    assert done.exit_code == 0, done.stderr
    assert environment(done.stdout) == {
        "PILOTFISH_ADMIN_HOST": "0.0.0.0",
        "PILOTFISH_CONFIG": "/etc/pilotfish/pilotfish.toml",
    }
    assert {"name": "pilotfish-config", "configMap": {"name": "kafka"}} in pod(done.stdout)["spec"]["volumes"]


def test_rules_that_a_config_map_may_keep_are_left_to_the_sidecar() -> None:
    words = ("--kafka", "security.protocol=SASL_SSL")
    assert "sasl.mechanism must be given" in refused(*BROKERS, *words)
    injected(DEPLOYMENT, *words, "--config-map", "kafka")
    assert "linger.ms" in refused(*BROKERS, "--kafka", "linger.ms=soon", "--config-map", "kafka")


def test_readiness_is_asked_for_only_where_it_was_said() -> None:
    assert "readinessProbe" not in sidecar_in(injected(DEPLOYMENT))
    probe = sidecar_in(injected(DEPLOYMENT, "--readiness"))["readinessProbe"]
    assert probe["httpGet"] == {"path": "/readyz", "port": "pf-admin"}


def test_probes_dial_the_pod_and_wait_longer_than_the_sidecar_does() -> None:
    words = ("--set", "startup_max_wait_ms=120000", "--set", "liveness_timeout_ms=9500")
    sidecar = sidecar_in(injected(DEPLOYMENT, *words))
    assert sidecar["startupProbe"]["failureThreshold"] == 150
    assert sidecar["livenessProbe"]["timeoutSeconds"] == 11
    for name in ("startupProbe", "livenessProbe"):
        assert sidecar[name]["httpGet"]["port"] == "pf-admin"
        assert "host" not in sidecar[name]["httpGet"]
    default, fields = sidecar_in(injected(DEPLOYMENT)), Settings.model_fields
    patience_s = default["startupProbe"]["failureThreshold"] * default["startupProbe"]["periodSeconds"]
    assert patience_s * 1000 > fields["startup_max_wait_ms"].default
    timeout_s = default["livenessProbe"]["timeoutSeconds"]
    assert timeout_s * 1000 > fields["liveness_timeout_ms"].default


def test_images_are_taken_as_they_are_named() -> None:
    digest = "a@sha256:" + "0" * 64
    for image in ("pilotfish:1", "registry.example.com:5000/a/b_c:1.0-x", digest, "Host.example/a"):
        assert sidecar_in(injected(DEPLOYMENT, "--image", image))["image"] == image


# -- refusals ------------------------------------------------------------------------------------------------


def test_what_can_t_be_meant_is_refused_with_its_remedy() -> None:
    twice = "--bootstrap-servers: --kafka bootstrap.servers is given, too"
    for words, said in (
        (("--set", "api_prt=1"), "--set api_prt: unknown setting; did you mean api_port?"),
        (("--set", "api-port=1"), "did you mean api_port?"),
        (("--set", "log_level=loud"), "--set log_level: Input should be 'debug', 'info'"),
        (("--set", "kafka=1"), "--set kafka: give Kafka's settings by --kafka"),
        (("--set", "api_port"), "--set api_port: must be NAME=VALUE"),
        (("--set", "=1"), "--set : must be NAME=VALUE"),
        (("--set", "api_port=1", "--set", "api_port=2"), "--set api_port: is given twice; give it once"),
        (("--set", "service_name=a\nb"), "--set service_name: has a line break"),
        (("--set", "admin_host=127.0.0.1"), "--set admin_host: probes use the pod's address"),
        (("--set", "admin_port=0"), "--set admin_port: 0 chooses a free port, which the app can't know"),
        (("--set", "admin_port=8085"), "--set admin_port: 8085 is the API's port; give another"),
        (("--kafka", "linger.m=1"), "linger.m is not a setting of Kafka's producer; did you mean linger.ms?"),
        (("--kafka", "linger.ms=soon"), "--kafka Invalid value soon for configuration linger.ms"),
        (("--kafka", "bootstrap.servers=a:1"), twice),
        (("--kafka", "transactional.id=a"), "transactional.id is about transactions"),
        (
            ("--image", "Not An Image"),
            "--image 'Not An Image': is not an image; write it as registry.example/",
        ),
        (("--config-map", "A b"), "--config-map 'A b': is not a valid name of a ConfigMap"),
        (("--secret", "Sasl=a"), "--secret Sasl: NAME becomes a folder: at most 40 lower-case letters"),
        (("--secret", "sasl=A b"), "--secret sasl: the part after = is not a valid name of a Secret"),
        (("--app-grace-seconds", "-1"), "is not in the range"),
        (
            ("--set", "tokens_file=/etc/pilotfish/t.toml"),
            "nothing is mounted at /etc/pilotfish; add --config",
        ),
    ):
        assert said in refused(*BROKERS, *words), words
    several = refused(*BROKERS, "--set", "api_prt=1", "--kafka", "linger.m=1")
    assert "api_prt" in several
    assert "linger.m " in several


def test_brokers_must_be_named_by_their_addresses() -> None:
    assert "--bootstrap-servers: give the brokers as HOST:PORT, separated by commas" in refused()
    for brokers in ("kafka", "kafka:x", "kafka:99999", ",", "a:1;b:2"):
        assert "write HOST:PORT, separated by commas" in refused("--bootstrap-servers", brokers), brokers


def test_a_secret_on_the_command_line_is_refused_and_not_shown() -> None:
    for name in (
        "sasl.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.key.password",
        "sasl.oauthbearer.client.credentials.client.secret",
    ):
        said = refused(*BROKERS, "--kafka", f"{name}=hunter2")
        folder = name.partition(".")[0]
        remedy = f"--kafka {name}.file=/etc/pilotfish/secrets/{folder}/KEY-IN-IT"
        assert f"--secret {folder}=NAME-OF-SECRET {remedy}" in said
        assert "hunter2" not in said
    for words in (("--kafka", "sasl.passwort=hunter2"), ("--set", "sasl.password=hunter2")):
        assert "hunter2" not in refused(*BROKERS, *words)


def test_a_file_in_a_secret_that_is_not_mounted_is_refused_with_the_nearest() -> None:
    path = "sasl.password.file=/etc/pilotfish/secrets/sals/password"
    said = refused(*BROKERS, "--secret", "sasl=kafka-sasl", "--kafka", path)
    assert "nothing is mounted at /etc/pilotfish/secrets/sals; did you mean sasl?" in said
    assert "add --secret sals=NAME-OF-SECRET" in refused(*BROKERS, "--kafka", path)


def test_the_callers_environment_plays_no_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_API_PORT", "1")
    monkeypatch.setenv("PILOTFISH_KAFKA_LINGER_MS", "7")
    monkeypatch.setenv("PILOTFISH_CONFIG", "/nowhere")
    assert set(environment(injected(DEPLOYMENT))) == {
        "PILOTFISH_ADMIN_HOST",
        "PILOTFISH_KAFKA_BOOTSTRAP_SERVERS",
    }


SIDECAR = Sidecar("pilotfish:1", {})
LEGACY = Sidecar("pilotfish:1", {}, native=False)


def template(
    grace: int | None = None, *, labels: Object | None = None, annotations: Object | None = None
) -> Object:
    own: Object = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    given = (("labels", labels), ("annotations", annotations))
    metadata: Object = {name: value for name, value in given if value is not None}
    return {"metadata": metadata, "spec": {**own, "containers": [{"name": "app"}]}}


def with_sidecar(into: Object, sidecar: Sidecar = SIDECAR, checksum: str | None = None) -> Object:
    return put_in(take_out(into), sidecar, checksum)


def grace(of: Object) -> object:
    spec = of["spec"]
    assert isinstance(spec, dict)
    return spec.get("terminationGracePeriodSeconds")


def annotations_of(of: Object) -> object:
    metadata = of["metadata"]
    assert isinstance(metadata, dict)
    return metadata["annotations"]


def asked(app_grace_seconds: int | None = None, **given: int) -> Sidecar:
    return Sidecar("pilotfish:1", {}, app_grace_seconds=app_grace_seconds, **given)  # type: ignore[arg-type]


# -- the grace period ----------------------------------------------------------------------------------------


def test_the_grace_period_is_the_apps_and_the_sidecars() -> None:
    cases: list[tuple[int | None, Sidecar, int]] = [
        # Kubernetes' default for the app, 20 s to drain, 5 s for the rest.
        (None, SIDECAR, 30 + 20 + 5),
        (10, SIDECAR, 10 + 20 + 5),
        (0, SIDECAR, 0 + 20 + 5),
        (60, SIDECAR, 60 + 20 + 5),
        (None, asked(10), 10 + 20 + 5),
        # Never lowered, whatever is said of the app.
        (60, asked(10), 60),
        (30, asked(10), 35),
        (None, asked(drain_timeout_ms=1), 30 + 1 + 5),
        (None, asked(drain_timeout_ms=20_001), 30 + 21 + 5),
        (None, asked(drain_delay_ms=400, drain_timeout_ms=600), 30 + 1 + 5),
        # One of the older form serves on for as long as the app may take.
        (10, LEGACY, 10 + 10 + 20 + 5),
    ]
    found = [grace(with_sidecar(template(own), sidecar)) for own, sidecar, _ in cases]
    assert found == [expected for _, _, expected in cases]


def test_a_longer_drain_raises_and_a_shorter_one_gives_back_only_what_inject_added() -> None:
    longer = with_sidecar(template(40), asked(drain_timeout_ms=100_000))
    assert grace(longer) == 145
    assert grace(with_sidecar(longer)) == 65
    assert grace(take_out(with_sidecar(longer)).template) == 40


def test_a_grace_period_that_was_set_since_is_kept() -> None:
    changed = with_sidecar(template(40))
    changed["spec"] = {**changed["spec"], "terminationGracePeriodSeconds": 500}  # type: ignore[dict-item]
    again = with_sidecar(changed)
    assert grace(again) == 500
    assert with_sidecar(again) == again
    assert grace(take_out(again).template) == 500


def test_one_that_is_too_short_beside_a_sidecar_is_raised_once() -> None:
    by_hand = with_sidecar(template(40))
    by_hand["spec"] = {**by_hand["spec"], "terminationGracePeriodSeconds": 12}  # type: ignore[dict-item]
    again = with_sidecar(by_hand)
    assert grace(again) == 55
    assert grace(with_sidecar(again)) == 55


# -- earlier parts -------------------------------------------------------------------------------------------


def test_a_default_container_of_the_users_stays_theirs() -> None:
    name = "kubectl.kubernetes.io/default-container"
    before = template(annotations={name: "other"})
    made = with_sidecar(before)
    assert annotations_of(made) == {name: "other", NOTE: "terminationGracePeriodSeconds=unset->55"}
    assert take_out(made).template == before


def test_what_inject_did_is_noted_so_that_people_can_read_it() -> None:
    assert annotations_of(with_sidecar(template(10), checksum="abc")) == {
        "kubectl.kubernetes.io/default-container": "app",
        "checksum/pilotfish-config": "abc",
        NOTE: "default-container=app terminationGracePeriodSeconds=10->35",
    }


def test_taking_out_is_the_inverse_of_putting_in() -> None:
    others: Object = {"volumes": [{"name": "v"}], "initContainers": [{"name": "i"}]}
    empty: Object = {"labels": {}, "annotations": None}
    befores: tuple[Object, ...] = (
        template(),
        template(7, labels={"app": "a"}),
        template(annotations={"a": "b"}),
        {"spec": {"containers": [{"name": "app"}], **others}},
        {"metadata": empty, "spec": {"containers": [{"name": "app"}]}},
    )
    for before in befores:
        for sidecar in (SIDECAR, LEGACY, Sidecar("p:1", {}, {"a": "b"}, "c", readiness=True)):
            made = with_sidecar(before, sidecar, "sum")
            assert take_out(made).had_sidecar
            after = take_out(made).template
            assert after["spec"] == before["spec"]
            assert [value for value in _metadata(after).values() if value] == [
                value for value in _metadata(before).values() if value
            ]
            assert with_sidecar(made, sidecar, "sum") == made


def _metadata(of: Object) -> Object:
    metadata = of.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def test_a_container_of_the_name_without_the_label_is_foreign() -> None:
    spec: Object = {"containers": [{"name": "pilotfish"}, {"name": "app"}]}
    assert not take_out({"spec": spec}).had_sidecar
    assert not take_out({"metadata": {"labels": {"pilotfish-sidecar": "false"}}, "spec": spec}).had_sidecar
    assert take_out({"metadata": {"labels": {"pilotfish-sidecar": "true"}}, "spec": spec}).had_sidecar


def test_an_unreadable_note_counts_as_none() -> None:
    made = with_sidecar(template(40))
    made["metadata"] = {"labels": {"pilotfish-sidecar": "true"}, "annotations": {NOTE: "grace=-1 x=->"}}
    assert grace(take_out(made).template) == 65
    assert take_out(made).grace_is_shared


def test_volumes_of_a_sidecar_go_with_it_and_others_stay() -> None:
    before = template()
    before["spec"] = {**before["spec"], "volumes": [{"name": "pilotfish-secret-"}, {"name": "own"}]}  # type: ignore[dict-item]
    after = take_out(with_sidecar(before, Sidecar("p:1", {}, {"a": "b"}, "c"))).template
    assert after["spec"] == before["spec"]
