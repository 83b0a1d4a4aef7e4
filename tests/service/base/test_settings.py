"""Flags over environment over file; what is wrong is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from service.__main__ import main
from service.base.settings import OWN_NAMES, REMOVED, Settings, kafka_settings_table, settings_table
from service.base.settings_sources import SettingsError, load_settings
from service.process.app import create_app

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BOOTSTRAP = ("bootstrap.servers=localhost:9092",)


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OWN_NAMES:
        monkeypatch.delenv(f"PILOTFISH_{name.upper()}", raising=False)


def load(
    monkeypatch: pytest.MonkeyPatch,
    environment: Mapping[str, str] | None = None,
    *,
    file: str | None = None,
    flags: Mapping[str, object] | None = None,
    kafka: tuple[str, ...] = BOOTSTRAP,
    tmp_path: Path | None = None,
) -> Settings:
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    path = None
    if file is not None:
        assert tmp_path is not None
        path = tmp_path / "pilotfish.toml"
        path.write_text(file)
    return load_settings(flags or {}, kafka, None if path is None else str(path))


# -- where they come from ------------------------------------------------------------------------------------


def test_defaults_listen_on_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch)
    assert (settings.api_host, settings.api_port) == ("127.0.0.1", 8085)
    assert (settings.admin_host, settings.admin_port) == ("127.0.0.1", 9464)
    assert (settings.access_log, settings.auto_create_topics) == (False, False)


def test_a_flag_beats_the_environment_and_that_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = "api_port = 1\nadmin_port = 1\ndrain_delay_ms = 1"
    environment = {"PILOTFISH_API_PORT": "2", "PILOTFISH_ADMIN_PORT": "2"}
    settings = load(monkeypatch, environment, file=file, flags={"api_port": "3"}, tmp_path=tmp_path)
    assert (settings.api_port, settings.admin_port, settings.drain_delay_ms) == (3, 2, 1)


def test_so_it_is_for_kafkas_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = '[kafka]\n"bootstrap.servers" = "f:1"\nlinger.ms = 1\nbatch.size = 1\nretries = 1'
    environment = {"PILOTFISH_KAFKA_LINGER_MS": "2", "PILOTFISH_KAFKA_BATCH_SIZE": "2"}
    settings = load(monkeypatch, environment, file=file, kafka=("linger.ms=3",), tmp_path=tmp_path)
    config = settings.producer_config()
    assert (config.linger_ms, config.batch_size, config.retries) == (3, 2, 1)
    assert config.bootstrap_servers == ("f:1",)


def test_a_file_may_write_lists_and_booleans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = 'warm_topics = ["a", "b"]\n[kafka]\nbootstrap.servers = ["a:1", "b:2"]\nenable.idempotence = false'
    settings = load(monkeypatch, file=file, kafka=(), tmp_path=tmp_path)
    assert settings.warm_topics == ("a", "b")
    config = settings.producer_config()
    assert (config.bootstrap_servers, config.enable_idempotence) == (("a:1", "b:2"), False)


def test_the_environment_writes_lists_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"PILOTFISH_WARM_TOPICS": "a, b,", "PILOTFISH_ACCESS_LOG": "true"})
    assert (settings.warm_topics, settings.access_log) == (("a", "b"), True)


def test_the_file_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("api_port = 7")
    assert load(monkeypatch, {"PILOTFISH_CONFIG": str(path)}).api_port == 7


def test_a_kafka_setting_can_come_from_a_file_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "servers"
    path.write_text("secret:1\n")
    settings = load(monkeypatch, {"PILOTFISH_KAFKA_BOOTSTRAP_SERVERS_FILE": str(path)}, kafka=())
    assert settings.producer_config().bootstrap_servers == ("secret:1",)


SCRAM = {"PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "PILOTFISH_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512"}


def test_the_file_of_a_secret_is_handed_on_to_the_client_which_watches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "PILOTFISH_KAFKA_SASL_USERNAME_FILE": "/sasl/username",
        "PILOTFISH_KAFKA_SASL_PASSWORD_FILE": "/sasl/password",
        "PILOTFISH_KAFKA_SSL_TRUSTSTORE_CERTIFICATES_FILE": "/tls/ca.crt",
        "PILOTFISH_KAFKA_SSL_KEYSTORE_KEY_FILE": "/tls/tls.key",
        "PILOTFISH_KAFKA_SSL_KEYSTORE_CERTIFICATE_CHAIN_FILE": "/tls/tls.crt",
    }
    security = load(monkeypatch, {**SCRAM, **files}).producer_config().security
    assert security.ssl is not None
    assert security.sasl is not None
    sources = (security.ssl.truststore, security.ssl.key, security.ssl.certificate_chain)
    named = [source for source in (*sources, security.sasl.username, security.sasl.password) if source]
    assert [source.path for source in named] == [
        "/tls/ca.crt",
        "/tls/tls.key",
        "/tls/tls.crt",
        "/sasl/username",
        "/sasl/password",
    ]


def test_flags_and_the_file_take_the_files_of_secrets_by_their_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = '[kafka]\nsasl.username = "billing"\n"sasl.password.file" = "/from/the/file"'
    settings = load(monkeypatch, SCRAM, file=file, tmp_path=tmp_path)
    sasl = settings.producer_config().security.sasl
    assert sasl is not None
    assert sasl.password is not None
    assert sasl.password.path == "/from/the/file"
    flag = (*BOOTSTRAP, "sasl.password.file=/from/the/flag")
    sasl = load(monkeypatch, SCRAM, file=file, kafka=flag, tmp_path=tmp_path).producer_config().security.sasl
    assert sasl is not None
    assert sasl.password is not None
    assert sasl.password.path == "/from/the/flag"


@pytest.mark.parametrize(
    ("variable", "flag", "path", "text"),
    [
        ("PILOTFISH_KAFKA_SASL_PASSWORD", "sasl.password.file=/x", "/x", None),
        ("PILOTFISH_KAFKA_SASL_PASSWORD_FILE", "sasl.password=y", None, "y"),
    ],
)
def test_a_secret_and_the_file_for_it_are_one_setting_when_sources_are_laid_over_each_other(
    monkeypatch: pytest.MonkeyPatch, variable: str, flag: str, path: str | None, text: str | None
) -> None:
    environment = {**SCRAM, variable: "z", "PILOTFISH_KAFKA_SASL_USERNAME": "u"}
    sasl = load(monkeypatch, environment, kafka=(*BOOTSTRAP, flag)).producer_config().security.sasl
    assert sasl is not None
    assert sasl.password is not None
    assert (sasl.password.path, sasl.password.text) == (path, text)


def test_what_is_checked_at_the_start_is_said_once_and_not_by_the_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = load(monkeypatch, {"PILOTFISH_KAFKA_ACKS": "1"})
    assert caplog.messages == []
    create_app(settings).sidecar.producer.close(0)
    assert [m for m in caplog.messages if m.startswith("Idempotence will be disabled")] == [
        "Idempotence will be disabled because acks is set to 1, not set to 'all'."
    ]


def test_the_sidecar_changes_one_default_of_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch).producer_config().linger_ms == 0
    assert load(monkeypatch, kafka=(*BOOTSTRAP, "linger.ms=5")).producer_config().linger_ms == 5


def test_what_kubernetes_puts_there_for_a_service_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    load(
        monkeypatch,
        {
            "PILOTFISH_SERVICE_HOST": "10.0.0.1",
            "PILOTFISH_SERVICE_PORT": "80",
            "PILOTFISH_SERVICE_PORT_HTTP": "80",
            "PILOTFISH_PORT": "tcp://10.0.0.1:80",
            "PILOTFISH_PORT_80_TCP_ADDR": "10.0.0.1",
            "PILOTFISH_KAFKA_SERVICE_HOST": "10.0.0.1",
            "PILOTFISH_KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        },
    )


def test_the_name_of_the_service_is_no_link_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(
        monkeypatch,
        {
            "PILOTFISH_SERVICE_NAME": "checkout",
            "PILOTFISH_SERVICE_HOST": "10.0.0.1",
            "PILOTFISH_EVENTS_SERVICE_HOST": "10.0.0.1",
            "PILOTFISH_EVENTS_PORT": "tcp://10.0.0.1:80",
            "PILOTFISH_EVENTS_TOPIC": "pilotfish.events",
        },
    )
    assert (loaded.service_name, loaded.events_topic) == ("checkout", "pilotfish.events")


def test_making_settings_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTFISH_API_PORT", "2")
    assert Settings().api_port == 8085


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().api_port = 1


def test_what_is_shown_of_settings_holds_none_of_kafkas() -> None:
    settings = Settings(kafka={"sasl.password": "s3cret"})
    assert "s3cret" not in repr(settings) + str(settings)


# -- what is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "reported"),
    [
        ({"PILOTFISH_API_PORT": "x"}, r"api_port: .*integer.*got 'x'"),
        ({"PILOTFISH_API_PORT": "65536"}, r"api_port: .*65535.*got '?65536"),
        ({"PILOTFISH_ACCESS_LOG": "maybe"}, r"access_log: .*got 'maybe'"),
        ({"PILOTFISH_LOG_LEVEL": "loud"}, r"log_level: .*'debug'.*got 'loud'"),
        (
            {"PILOTFISH_API_PROT": "1"},
            r"PILOTFISH_API_PROT: unknown setting; did you mean PILOTFISH_API_PORT",
        ),
        ({"PILOTFISH_KAFKA": "{}"}, r"PILOTFISH_KAFKA: unknown setting"),
        ({"PILOTFISH_KAFKA_LINGR_MS": "1"}, r"lingr\.ms.*did you mean linger\.ms"),
        ({"PILOTFISH_KAFKA_LINGER_MS": "soon"}, r"linger\.ms"),
        ({"PILOTFISH_KAFKA_LINGER_MS_FILE": "/no/such/file"}, r"PILOTFISH_KAFKA_LINGER_MS_FILE: can't read"),
        (
            {"PILOTFISH_API_PORT": "tcp://10.0.0.1:80"},
            r"PILOTFISH_API_PORT: .*Kubernetes.*enableServiceLinks",
        ),
    ],
)
def test_a_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reported: str
) -> None:
    with pytest.raises(SettingsError, match=reported):
        load(monkeypatch, environment)


@pytest.mark.parametrize(
    ("file", "reported"),
    [
        ("api_prot = 1", r"api_prot .*unknown setting; did you mean api_port"),
        ("api_port = [1]", r"api_port: "),
        ("api_port =", r"not TOML"),
        pytest.param("api_port = " + "{a=" * 900, r"not TOML", id="nests deeply"),
        pytest.param("api_port = " + "9" * 5_000, r"not TOML", id="more digits than Python reads"),
        pytest.param("api_port = 0x" + "f" * 5_000, r"api_port: ", id="more digits than Python writes"),
        pytest.param("[kafka]\n" + ".".join("a" * 3_000) + " = 1", "nest too deeply", id="dots"),
        pytest.param(
            "[kafka]\na = [{" + ".".join("a" * 3_000) + " = 1}]", "nest too deeply", id="dots in a list"
        ),
        pytest.param("[kafka]\nretries = 0x" + "f" * 5_000, r"retries", id="and one of Kafka's"),
        ("kafka = 1", r"kafka: must be a table"),
        ("[kafka]\nlingr.ms = 1", r"lingr\.ms"),
    ],
)
def test_a_wrong_line_of_the_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, reported: str
) -> None:
    with pytest.raises(SettingsError, match=reported):
        load(monkeypatch, file=file, tmp_path=tmp_path)


@pytest.mark.parametrize("name", REMOVED)
def test_a_setting_of_an_earlier_version_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    said = f"is no longer a setting, its value is always {REMOVED[name]}; remove it"
    variable, flag = f"PILOTFISH_{name.upper()}", f"--{name.replace('_', '-')}"
    with pytest.raises(SettingsError, match=f"^{variable}: {said}"):
        load(monkeypatch, {variable: "1"})
    monkeypatch.delenv(variable)
    with pytest.raises(SettingsError, match=f"^{name} .*: {said}"):
        load(monkeypatch, file=f"{name} = 1", tmp_path=tmp_path)
    ended = CliRunner().invoke(main, ["serve", "--kafka", *BOOTSTRAP, flag, "1"])
    assert (ended.exit_code, f"{flag}: {said}" in ended.output) == (2, True)
    assert flag not in CliRunner().invoke(main, ["serve", "--help"]).output


@pytest.mark.parametrize("words", ["internal = 1", "[internal]\nslow_after_ms = 1"])
def test_internal_limits_are_set_by_no_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    with pytest.raises(SettingsError, match=r"internal .*: unknown setting"):
        load(monkeypatch, file=words, tmp_path=tmp_path)
    with pytest.raises(SettingsError, match="PILOTFISH_INTERNAL: unknown setting"):
        load(monkeypatch, {"PILOTFISH_INTERNAL": "{}"})


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="there is no file /no/such"):
        load(monkeypatch, {"PILOTFISH_CONFIG": "/no/such"})


def test_a_secret_given_twice_in_one_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"PILOTFISH_KAFKA_SASL_PASSWORD": "s3cret", "PILOTFISH_KAFKA_SASL_PASSWORD_FILE": "/x"}
    with pytest.raises(SettingsError) as reported:
        load(monkeypatch, {**SCRAM, **both, "PILOTFISH_KAFKA_SASL_USERNAME": "u"})
    assert "sasl.password and sasl.password.file are both given; choose one" in str(reported.value)
    assert "s3cret" not in str(reported.value)


@pytest.mark.parametrize(
    ("variable", "reported"),
    [
        ("PILOTFISH_KAFKA_SSL_KEYSTORE_PASSWORD_FILE", "this client reads PEM stores, which have none"),
        ("PILOTFISH_KAFKA_SASL_OAUTHBEARER_ASSERTION_FILE", "is for the JWT-bearer grant"),
        ("PILOTFISH_KAFKA_SASL_PASWORD_FILE", r"did you mean sasl\.password\.file"),
    ],
)
def test_the_file_of_what_is_not_taken_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch, variable: str, reported: str
) -> None:
    with pytest.raises(SettingsError, match=reported):
        load(monkeypatch, {variable: "/no/such/file"})


def test_a_malformed_flag_is_told_by_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as reported:
        load(monkeypatch, kafka=("sasl.password:s3cret",))
    assert str(reported.value) == "--kafka sasl.password: must be name=value, such as linger.ms=0"


def test_a_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("5")
    both = {"PILOTFISH_KAFKA_LINGER_MS": "1", "PILOTFISH_KAFKA_LINGER_MS_FILE": str(path)}
    with pytest.raises(SettingsError, match="both plainly and as a file"):
        load(monkeypatch, both)


@pytest.mark.parametrize("flag", ["linger.ms", "=5", ""])
def test_a_kafka_flag_is_a_name_and_a_value(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    with pytest.raises(SettingsError, match="must be name=value"):
        load(monkeypatch, kafka=(flag,))


def test_every_fault_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as refused:
        load(monkeypatch, flags={"api_port": "x", "admin_port": "y"})
    assert len(str(refused.value).splitlines()) == 2


# -- the command ---------------------------------------------------------------------------------------------


def test_every_setting_is_described_and_has_a_flag() -> None:
    reported = CliRunner().invoke(main, ["serve", "--help"]).output
    table = settings_table()
    for name in OWN_NAMES:
        assert Settings.model_fields[name].description
        assert f"--{name.replace('_', '-')}" in reported
        assert f"`PILOTFISH_{name.upper()}`" in table


def test_kafkas_table_tells_companions_and_other_defaults_than_kafkas() -> None:
    table = kafka_settings_table()
    assert "| `sasl.password`, `sasl.password.file` | password | none |" in table
    assert "| `ssl.truststore.type` | string | PEM (Kafka: JKS) | [PEM] |" in table
    assert "| `bootstrap.servers` | list | must be given |" in table


def test_a_wrong_setting_ends_the_command_with_2_and_its_name() -> None:
    ended = CliRunner().invoke(main, ["serve", "--api-port", "x"])
    assert ended.exit_code == 2
    assert "pilotfish: api_port: " in ended.output


def test_a_bool_flag_can_be_turned_off() -> None:
    ended = CliRunner().invoke(main, ["serve", "--no-access-log", "--api-port", "x"])
    assert ended.exit_code == 2


def test_the_command_prints_its_version_and_its_settings() -> None:
    assert "pilotfish" in CliRunner().invoke(main, ["--version"]).output
    assert "`--api-port`" in CliRunner().invoke(main, ["settings"]).output
