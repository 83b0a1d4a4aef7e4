"""Wrong values are refused with place and remedy; values that are likely mistakes give a warning."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.deploy.chart_tools import (
    HELM_FOLDER,
    ChartRefusedError,
    chart,
    of_kind,
    parsed,
    render,
    template,
)

if TYPE_CHECKING:
    from pathlib import Path

_DEMO = {"demo": {"deployment": {"enabled": True}}}


def complaint(name: str, values: dict[str, Any], *flags: str) -> str:
    """What Helm says of values; fails if it takes them."""
    with pytest.raises(ChartRefusedError) as refused:
        render(name, values=values, flags=flags)
    return str(refused.value)


# -- by the schema -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"pilotfsh": {}}, "Additional property pilotfsh is not allowed"),
        ({"pilotfish": {"nativSidecar": True}}, "pilotfish: Additional property nativSidecar"),
        ({"pilotfish": {"nativeSidecar": "yes"}}, "pilotfish.nativeSidecar: Invalid type"),
        ({"pilotfish": {"appGraceSeconds": -1}}, "pilotfish.appGraceSeconds: Must be greater"),
        ({"pilotfish": {"settings": {"api_prt": 1}}}, "pilotfish.settings: Additional property api_prt"),
        ({"pilotfish": {"settings": {"api_port": "8085"}}}, "pilotfish.settings.api_port: Invalid type"),
        ({"pilotfish": {"settings": {"admin_port": 0}}}, "pilotfish.settings.admin_port: Must be greater"),
        (
            {"pilotfish": {"settings": {"dialects": ["kafka"]}}},
            "pilotfish.settings.dialects.0 must be one of",
        ),
        ({"pilotfish": {"kafka": {"linger.ms": -1}}}, "pilotfish.kafka.linger.ms: Must be greater"),
        ({"pilotfish": {"kafka": {"linger.ms": "soon"}}}, "pilotfish.kafka.linger.ms: Does not match"),
        ({"pilotfish": {"kafka": {"acks": 2}}}, "pilotfish.kafka.acks must be one of"),
        ({"pilotfish": {"kafka": {"transactional.id": "x"}}}, "Additional property transactional.id"),
        ({"pilotfish": {"kafka": {"linger": {"ms": 5}}}}, "pilotfish.kafka: Additional property linger"),
        ({"pilotfish": {"image": {"digest": "sha256:1"}}}, "pilotfish.image.digest: Does not match"),
        ({"pilotfish": {"secrets": [{"name": "sasl"}]}}, "pilotfish.secrets.0: secretName is required"),
        ({"pilotfish": {"secrets": [{"name": "../x", "secretName": "x"}]}}, "pilotfish.secrets.0.name"),
        ({"podMonitor": {"interval": "often"}}, "podMonitor.interval: Does not match"),
        ({"demo": {"topic": "a topic"}}, "demo.topic: Does not match"),
    ],
)
def test_the_schema_refuses_and_names_the_place(values: dict[str, Any], place: str) -> None:
    assert place in complaint("pilotfish", values)


def test_globals_of_a_parent_chart_are_taken() -> None:
    assert render("pilotfish", values={"global": {"anything": 1}}) == []


def test_a_secret_among_the_settings_is_refused_with_what_to_do_and_not_shown() -> None:
    said = complaint("pilotfish", {"pilotfish": {"kafka": {"sasl.password": "hunter2"}}})
    assert "Mount it by pilotfish.secrets and set sasl.password.file" in said
    assert "hunter2" not in said


# -- by the templates, in charts of teams too, which no schema of ours sees ----------------------------------


@pytest.mark.parametrize(
    ("pilotfish", "said"),
    [
        ({"bootstrapServers": ""}, "pilotfish.bootstrapServers: give the brokers as HOST:PORT"),
        ({"bootstrapServers": "kafka"}, 'pilotfish.bootstrapServers: "kafka" is not HOST:PORT'),
        ({"bootstrapServers": "a:1,,b:2"}, 'pilotfish.bootstrapServers: "" is not HOST:PORT'),
        ({"nativSidecar": True}, "pilotfish.nativSidecar: there is no such value; there are appContainer,"),
        ({"settings": ["a"]}, "pilotfish.settings: must be a map of names and values, got slice"),
        ({"settings": {"api_prt": 1}}, "pilotfish.settings.api_prt: unknown setting; `pilotfish settings`"),
        ({"kafka": {"linger": {"ms": 5}}}, "pilotfish.kafka.linger: write Kafka's names in one piece"),
        ({"kafka": {"linger.msec": 5}}, "pilotfish.kafka: linger.msec is no setting that Pilotfish honours"),
        ({"secrets": [{"name": "sasl"}]}, "pilotfish.secrets[0]: must have a name"),
        ({"secrets": [{"name": "A", "secretName": "a"}]}, 'pilotfish.secrets[0].name: "A" must be'),
        (
            {"secrets": [{"name": "a", "secretName": "a"}, {"name": "a", "secretName": "b"}]},
            "pilotfish.secrets[1].name: a is named twice",
        ),
        (
            {"kafka": {"sasl.password.file": "/etc/pilotfish/secrets/sasl/password"}},
            "sasl.password.file names a file in /etc/pilotfish/secrets/sasl, and pilotfish.secrets has "
            'nothing of the name "sasl"',
        ),
        (
            {"kafka": {"buffer.memory": 134217728}},
            "resources.limits.memory: 256Mi is too small for these settings: give 334Mi",
        ),
        ({"resources": {"limits": {"memory": "64M"}}}, "limits.memory: 64M is too small"),
        (
            {"resources": {"limits": {"memory": "0.1Gi"}}, "settings": {"events_topic": "events"}},
            "give 116Mi",
        ),
        ({"settings": {"spool_folder": "/spool"}}, "settings.spool_folder: is set by pilotfish.spool"),
        ({"spool": {"enabled": True}}, "pilotfish.spool.volume: must be one volume source"),
        (
            {"spool": {"enabled": True, "volume": {"emptyDir": {"medium": "Memory"}}}},
            "pilotfish.spool.volume: an emptyDir in memory forgets what was answered with 202",
        ),
        (
            {"spool": {"size": "1Gi"}},
            "pilotfish.spool.size: there is no such value; there are enabled, volume",
        ),
    ],
)
def test_the_library_refuses_and_names_the_place(pilotfish: dict[str, Any], said: str) -> None:
    assert said in complaint("own-chart", {"pilotfish": pilotfish})


def test_the_library_refuses_a_secret_and_does_not_show_it() -> None:
    said = complaint("own-chart", {"pilotfish": {"kafka": {"sasl.jaas.config": "hunter2"}}})
    assert "sasl.jaas.config is a secret and would lie in a ConfigMap; mount a Secret" in said
    assert "hunter2" not in said


def test_without_the_schema_a_secret_is_refused_all_the_same() -> None:
    values = {"pilotfish": {"kafka": {"ssl.key.password": "hunter2"}}}
    said = complaint("pilotfish", values, "--skip-schema-validation")
    assert "would lie in a ConfigMap" in said
    assert "hunter2" not in said


def test_a_template_that_is_called_wrongly_says_what_it_wants(tmp_path: Path) -> None:
    shutil.copytree(chart("own-chart"), tmp_path / "chart")
    (tmp_path / "chart" / "templates" / "wrong.yaml").write_text('{{ include "pilotfish.volumes" . }}\n')
    with pytest.raises(ChartRefusedError, match=r'a template wants \(dict "root" \$ "values"'):
        template(tmp_path / "chart")


def test_a_job_beside_the_older_form_without_a_token_is_refused() -> None:
    values = {
        "pilotfish": {"bootstrapServers": "kafka:9092", "nativeSidecar": False},
        "demo": {"job": {"enabled": True}},
    }
    said = complaint("pilotfish", values)
    assert "demo.job: with pilotfish.nativeSidecar=false a Job never completes" in said
    assert "pilotfish.settings.quit_token_file" in said


def test_a_demo_of_two_pods_with_one_spool_is_refused() -> None:
    spool = {"enabled": True, "volume": {"persistentVolumeClaim": {"claimName": "spool"}}}
    values = {
        "pilotfish": {"bootstrapServers": "kafka:9092", "spool": spool},
        "demo": {"deployment": {"enabled": True, "replicas": 2}},
    }
    assert "demo.deployment.replicas: with pilotfish.spool there may be one" in complaint("pilotfish", values)


def test_a_demo_without_brokers_is_refused_and_the_rest_is_not() -> None:
    assert "pilotfish.bootstrapServers: give the brokers" in complaint("pilotfish", _DEMO)
    monitor = {"podMonitor": {"enabled": True}}
    assert of_kind(render("pilotfish", values=monitor), "PodMonitor")


# -- notes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def telling_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with its notes as a manifest: `helm template` shows no notes."""
    place = tmp_path_factory.mktemp("notes") / "pilotfish"
    shutil.copytree(chart("pilotfish"), place)
    shown = {"apiVersion": "v1", "kind": "Notes", "metadata": {"name": "notes"}}
    text = yaml.safe_dump(shown) + 'text: {{ include "pilotfish.chart.notes" . | toJson }}\n'
    (place / "templates" / "notes.yaml").write_text(text)
    return place


def notes(place: Path, *examples: str, **values: Any) -> str:
    text: str = of_kind(parsed(template(place, *examples, values=values)), "Notes")["text"]
    return text


def test_notes_of_nothing_set_say_that_brokers_are_wanted_first(telling_chart: Path) -> None:
    text = notes(telling_chart)
    assert "Name the brokers; nothing can start without them" in text
    assert "helm test" not in text


def test_notes_name_the_config_map_for_those_who_inject(telling_chart: Path) -> None:
    assert "--config-map shop-pilotfish-config" in notes(telling_chart, "native")
    assert "--config-map" not in notes(telling_chart, "minimal")


def test_notes_of_a_plain_installation_warn_of_nothing(telling_chart: Path) -> None:
    for name in ("minimal", "native", "tls-sasl", "job"):
        assert "Look at these" not in notes(telling_chart, name), name


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ({"pilotfish": {"readiness": {"enabled": True}}}, "takes the whole pod, the app too, out"),
        ({"pilotfish": {"nativeSidecar": False}}, "every pod takes 30000 ms longer to end"),
        ({"pilotfish": {"kafka": {"sasl.mechanism": "PLAIN"}}}, "sasl.mechanism has no effect"),
        (
            {"pilotfish": {"kafka": {"security.protocol": "sasl_plaintext"}}},
            "and with PLAIN the password too",
        ),
        (
            {"pilotfish": {"kafka": {"ssl.truststore.location": "/ca.pem"}}},
            "settings of ssl.… have no effect",
        ),
        ({"pilotfish": {"settings": {"api_host": "0.0.0.0"}}}, "lets other pods in, and no tokens_file asks"),
        ({"pilotfish": {"settings": {"startup_require_metadata": "strict"}}}, "while Kafka is away"),
        ({"pilotfish": {"resources": {"limits": {"cpu": "1"}}}}, "throttles the poll loop"),
        ({"pilotfish": {"resources": {"limits": {"memory": None}}}}, "without a memory limit"),
        ({"pilotfish": {"image": {"tag": "latest"}}}, "latest is another image tomorrow"),
        ({"pilotfish": {"configMapName": "ours"}}, "pods are not replaced when ours changes"),
        (
            {"pilotfish": {"spool": {"enabled": True, "volume": {"emptyDir": {}}}}},
            "an emptyDir goes with its",
        ),
        (
            {"pilotfish": {"spool": {"enabled": True, "volume": {"ephemeral": {}}}}},
            "an ephemeral volume goes",
        ),
        ({"networkPolicy": {"enabled": True}}, "nothing reaches the app's own ports"),
        ({"prometheusRule": {"enabled": True}}, "alerts without podMonitor see nothing"),
        ({"prometheusRule": {"enabled": True}}, "which no pager can open"),
    ],
)
def test_notes_warn_of_what_is_mostly_not_meant(
    telling_chart: Path, values: dict[str, Any], warning: str
) -> None:
    assert warning in notes(telling_chart, "minimal", **values)


def test_the_notes_that_helm_shows_are_these() -> None:
    shown = (HELM_FOLDER / "pilotfish" / "templates" / "NOTES.txt").read_text()
    assert shown == '{{ include "pilotfish.chart.notes" . }}\n'
