"""The options that describe the sidecar: what becomes of them in the container, and which are refused."""

from __future__ import annotations

import pytest

from service.base.settings import Settings
from tests.support.injecting import BROKERS, DEPLOYMENT, environment, injected, pod, run, sidecar_in

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


# -- what is taken -------------------------------------------------------------------------------------------


def test_settings_become_variables_brokers_first_and_kafkas_last() -> None:
    words = (
        "--kafka",
        "linger.ms=5",
        "--kafka",
        "acks=1",
        "--set",
        "log_level=debug",
        "--set",
        "warm_topics=a,b",
    )
    assert list(environment(injected(DEPLOYMENT, *words)).items()) == [
        ("PILOTFISH_ADMIN_HOST", "0.0.0.0"),
        ("PILOTFISH_KAFKA_BOOTSTRAP_SERVERS", "kafka-bootstrap.kafka:9092"),
        ("PILOTFISH_WARM_TOPICS", "a,b"),
        ("PILOTFISH_LOG_LEVEL", "debug"),
        ("PILOTFISH_KAFKA_ACKS", "1"),
        ("PILOTFISH_KAFKA_LINGER_MS", "5"),
    ]


@pytest.mark.parametrize(
    "value", ["yes", "8085", "1e3", "a: b", "# x", '"', "\\", "é😀", "", "~", "{{x}}", "*"]
)
def test_a_value_arrives_as_it_was_given_whatever_yaml_would_take_it_for(value: str) -> None:
    assert (
        environment(injected(DEPLOYMENT, "--set", f"service_name={value}"))["PILOTFISH_SERVICE_NAME"] == value
    )


def test_dollars_are_doubled_so_that_kubernetes_does_not_look_for_a_variable() -> None:
    text = injected(DEPLOYMENT, "--set", "service_name=a$(HOME)$$b")
    assert environment(text)["PILOTFISH_SERVICE_NAME"] == "a$$(HOME)$$$$b"


def test_brokers_may_come_as_a_kafka_setting() -> None:
    done = run("-f", "-", "--kafka", "bootstrap.servers=a:1,b:2", stdin=DEPLOYMENT)
    assert environment(done.stdout)["PILOTFISH_KAFKA_BOOTSTRAP_SERVERS"] == "a:1,b:2"


def test_a_secret_is_mounted_as_a_directory_and_named_by_its_files() -> None:
    text = injected(DEPLOYMENT, *SASL)
    assert {"name": "pilotfish-secret-sasl", "secret": {"secretName": "kafka-sasl"}} in pod(text)["spec"][
        "volumes"
    ]
    assert sidecar_in(text)["volumeMounts"][-1] == {
        "name": "pilotfish-secret-sasl",
        "mountPath": "/etc/pilotfish/secrets/sasl",
        "readOnly": True,
    }
    assert environment(text)["PILOTFISH_KAFKA_SASL_PASSWORD_FILE"] == "/etc/pilotfish/secrets/sasl/password"


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
    assert (sidecar["startupProbe"]["failureThreshold"], sidecar["livenessProbe"]["timeoutSeconds"]) == (
        150,
        11,
    )
    for name in ("startupProbe", "livenessProbe"):
        assert sidecar[name]["httpGet"]["port"] == "pf-admin"
        assert "host" not in sidecar[name]["httpGet"]
    default = sidecar_in(injected(DEPLOYMENT))
    patience_s = default["startupProbe"]["failureThreshold"] * default["startupProbe"]["periodSeconds"]
    assert patience_s * 1000 > Settings.model_fields["startup_max_wait_ms"].default
    assert (
        default["livenessProbe"]["timeoutSeconds"] * 1000
        > Settings.model_fields["liveness_timeout_ms"].default
    )


@pytest.mark.parametrize(
    "image",
    ["pilotfish:1", "registry.example.com:5000/a/b_c:1.0-x", "a@sha256:" + "0" * 64, "Host.example/a"],
)
def test_images_are_taken_as_they_are_named(image: str) -> None:
    assert sidecar_in(injected(DEPLOYMENT, "--image", image))["image"] == image


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "api_prt=1"), "--set api_prt: unknown setting; did you mean api_port?"),
        (("--set", "api-port=1"), "did you mean api_port?"),
        (("--set", "log_level=loud"), "--set log_level: Input should be 'debug', 'info'"),
        (("--set", "kafka=1"), "--set kafka: give Kafka's settings by --kafka"),
        (("--set", "api_port"), "--set api_port: must be NAME=VALUE"),
        (("--set", "=1"), "--set : must be NAME=VALUE"),
        (("--set", "api_port=1", "--set", "api_port=2"), "--set api_port: is given twice; leave one"),
        (("--set", "service_name=a\nb"), "--set service_name: has a line's end"),
        (("--set", "admin_host=127.0.0.1"), "--set admin_host: probes come to the pod's address"),
        (("--set", "admin_port=0"), "--set admin_port: 0 takes a free port, which the app can't know"),
        (("--set", "admin_port=8085"), "--set admin_port: 8085 is the API's port; give another"),
        (("--kafka", "linger.m=1"), "linger.m is not a setting of Kafka's producer; did you mean linger.ms?"),
        (("--kafka", "linger.ms=soon"), "--kafka Invalid value soon for configuration linger.ms"),
        (
            ("--kafka", "bootstrap.servers=a:1"),
            "--bootstrap-servers: is given, and --kafka bootstrap.servers too",
        ),
        (("--kafka", "transactional.id=a"), "transactional.id is about transactions"),
        (("--image", "Not An Image"), "--image 'Not An Image': is no image; write it as registry.example/"),
        (("--config-map", "A b"), "--config-map 'A b': can be no ConfigMap's name"),
        (("--secret", "Sasl=a"), "--secret Sasl: NAME becomes a folder and must be lower-case letters"),
        (("--secret", "sasl=A b"), "--secret sasl: what follows can be no Secret's name"),
        (("--app-grace-seconds", "-1"), "is not in the range"),
        (
            ("--set", "tokens_file=/etc/pilotfish/tokens.toml"),
            "nothing is mounted at /etc/pilotfish; add --config",
        ),
    ],
)
def test_what_can_t_be_meant_is_refused_with_its_remedy(words: tuple[str, ...], said: str) -> None:
    assert said in refused(*BROKERS, *words)


@pytest.mark.parametrize("brokers", ["kafka", "kafka:x", "kafka:99999", ",", "a:1;b:2"])
def test_brokers_that_are_no_addresses_are_refused(brokers: str) -> None:
    assert "write HOST:PORT, with commas between" in refused("--bootstrap-servers", brokers)


def test_brokers_must_be_named() -> None:
    assert "--bootstrap-servers: name the brokers, as HOST:PORT with commas between" in refused()


def test_faults_of_several_options_are_told_at_once() -> None:
    said = refused(*BROKERS, "--set", "api_prt=1", "--kafka", "linger.m=1")
    assert "api_prt" in said
    assert "linger.m " in said


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.key.password",
        "sasl.oauthbearer.client.credentials.client.secret",
    ],
)
def test_a_secret_on_the_command_line_is_refused_and_not_shown(name: str) -> None:
    said = refused(*BROKERS, "--kafka", f"{name}=hunter2")
    folder = name.partition(".")[0]
    assert (
        f"--secret {folder}=NAME-OF-SECRET --kafka {name}.file=/etc/pilotfish/secrets/{folder}/KEY-IN-IT"
        in said
    )
    assert "hunter2" not in said


def test_a_misspelled_secret_is_not_shown_either() -> None:
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
