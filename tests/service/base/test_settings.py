"""Flags over environment over file; what is wrong is named; and the version of an installed package."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from service.__main__ import main
from service.base.settings import (
    NOT_IN_A_SIDECAR,
    OWN_NAMES,
    REMOVED,
    Settings,
    kafka_settings_table,
    removed,
    settings_table,
)
from service.base.settings_sources import SettingsError, load_settings
from service.base.version import pilotfish_version, version_of_the_checkout
from service.process.app import App

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def test_variables_of_the_environment_are_in_capitals(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, {"PILOTFISH_API_PORT": "2", "pilotfish_admin_port": "3"})
    assert (settings.api_port, settings.admin_port) == (2, 9464)


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


def test_the_environment_writes_lists_with_commas_and_may_name_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = load(monkeypatch, {"PILOTFISH_WARM_TOPICS": "a, b,", "PILOTFISH_ACCESS_LOG": "true"})
    assert (settings.warm_topics, settings.access_log) == (("a", "b"), True)
    config, servers = tmp_path / "x.toml", tmp_path / "servers"
    config.write_text("api_port = 7")
    assert load(monkeypatch, {"PILOTFISH_CONFIG": str(config)}).api_port == 7
    assert load(monkeypatch, {"PILOTFISH_CONFIG": ""}).api_port == 8085
    servers.write_text("\ufeffsecret:1\n")
    settings = load(monkeypatch, {"PILOTFISH_KAFKA_BOOTSTRAP_SERVERS_FILE": str(servers)}, kafka=())
    assert settings.producer_config().bootstrap_servers == ("secret:1",)


def test_a_value_in_a_file_loses_its_line_end_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "name").write_text(" the billing \r\n")
    settings = load(monkeypatch, {"PILOTFISH_KAFKA_CLIENT_ID_FILE": str(tmp_path / "name")})
    assert settings.kafka["client.id"] == " the billing "


def test_a_repeated_flag_may_have_commas_and_an_empty_one_empties_the_list(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = load(monkeypatch, flags={"warm_topics": ("a,b", " c"), "dialects": ("",)})
    assert (settings.warm_topics, settings.dialects) == (("a", "b", "c"), ())
    file = 'allowed_hosts = ["a, b", "c"]'
    assert load(monkeypatch, file=file, tmp_path=tmp_path).allowed_hosts == ("a", "b", "c")


SCRAM = {"PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "PILOTFISH_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512"}


def password_of(settings: Settings) -> tuple[str | None, str | None]:
    """The file of the password, and the password itself."""
    sasl = settings.producer_config().security.sasl
    assert sasl is not None
    assert sasl.password is not None
    return sasl.password.path, sasl.password.text


def test_the_file_of_a_secret_is_handed_on_to_the_client_which_watches_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "SSL_TRUSTSTORE_CERTIFICATES": "/tls/ca.crt",
        "SSL_KEYSTORE_KEY": "/tls/tls.key",
        "SSL_KEYSTORE_CERTIFICATE_CHAIN": "/tls/tls.crt",
        "SASL_USERNAME": "/sasl/username",
        "SASL_PASSWORD": "/sasl/password",
    }
    variables = {f"PILOTFISH_KAFKA_{name}_FILE": path for name, path in files.items()}
    security = load(monkeypatch, {**SCRAM, **variables}).producer_config().security
    assert security.ssl is not None
    assert security.sasl is not None
    sources = (security.ssl.truststore, security.ssl.key, security.ssl.certificate_chain)
    named = [source for source in (*sources, security.sasl.username, security.sasl.password) if source]
    assert [source.path for source in named] == list(files.values())


def test_flags_and_the_file_take_the_files_of_secrets_by_their_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = '[kafka]\nsasl.username = "billing"\n"sasl.password.file" = "/from/the/file"'
    for flags, path in (((), "/from/the/file"), (("sasl.password.file=/from/the/flag",), "/from/the/flag")):
        loaded = load(monkeypatch, SCRAM, file=file, kafka=(*BOOTSTRAP, *flags), tmp_path=tmp_path)
        assert password_of(loaded)[0] == path


def test_a_secret_and_the_file_for_it_are_one_setting_when_sources_are_laid_over_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, flag, expected in (
        ("PILOTFISH_KAFKA_SASL_PASSWORD", "sasl.password.file=/x", ("/x", None)),
        ("PILOTFISH_KAFKA_SASL_PASSWORD_FILE", "sasl.password=y", (None, "y")),
    ):
        environment = {**SCRAM, variable: "z", "PILOTFISH_KAFKA_SASL_USERNAME": "u"}
        assert password_of(load(monkeypatch, environment, kafka=(*BOOTSTRAP, flag))) == expected
        monkeypatch.delenv(variable)


def test_what_is_checked_at_the_start_is_said_once_and_not_by_the_check(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = load(monkeypatch, {"PILOTFISH_KAFKA_ACKS": "1"})
    assert caplog.messages == []
    App(settings).sidecar.producer.close(0)
    assert [m for m in caplog.messages if m.startswith("Idempotence will be disabled")] == [
        "Idempotence will be disabled because acks is set to 1, not set to 'all'."
    ]


def test_the_sidecar_changes_one_default_of_kafkas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch).producer_config().linger_ms == 0
    assert load(monkeypatch, kafka=(*BOOTSTRAP, "linger.ms=5")).producer_config().linger_ms == 5


def test_requests_of_many_records_have_larger_batches_unless_batch_size_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given, expected in (
        ((), (16_384, 131_072)),
        (("batch.size=1024",), (1_024, 0)),
        (("batch.size=1024", "submit.batch.size=5000"), (1_024, 5_000)),
        (("submit.batch.size=0",), (16_384, 0)),
        (("batch.size=0", "submit.batch.size=5000"), (1, 0)),  # no batches at all
    ):
        config = load(monkeypatch, kafka=(*BOOTSTRAP, *given)).producer_config()
        assert (config.batch_size, config.submit_batch_size) == expected, given


def test_what_kubernetes_puts_there_for_a_service_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    links = {
        "PILOTFISH_SERVICE_HOST": "10.0.0.1",
        "PILOTFISH_SERVICE_PORT": "80",
        "PILOTFISH_SERVICE_PORT_HTTP": "80",
        "PILOTFISH_PORT": "tcp://10.0.0.1:80",
        "PILOTFISH_PORT_80_TCP_ADDR": "10.0.0.1",
        "PILOTFISH_KAFKA_SERVICE_HOST": "10.0.0.1",
        "PILOTFISH_KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "PILOTFISH_EVENTS_SERVICE_HOST": "10.0.0.1",
        "PILOTFISH_EVENTS_PORT": "tcp://10.0.0.1:80",
    }
    load(monkeypatch, links)
    # These are none of them.
    own = {"PILOTFISH_SERVICE_NAME": "checkout", "PILOTFISH_EVENTS_TOPIC": "pilotfish.events"}
    loaded = load(monkeypatch, own)
    assert (loaded.service_name, loaded.events_topic) == ("checkout", "pilotfish.events")


def test_settings_read_no_environment_when_made_do_not_change_and_show_none_of_kafkas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PILOTFISH_API_PORT", "2")
    assert Settings().api_port == 8085
    with pytest.raises(ValidationError):
        Settings().api_port = 1
    settings = Settings(kafka={"sasl.password": "s3cret"})
    assert "s3cret" not in repr(settings) + str(settings)


# -- wrong settings ------------------------------------------------------------------------------------------


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    prot = r"PILOTFISH_API_PROT: unknown setting; did you mean PILOTFISH_API_PORT"
    for name, value, reported in (
        ("API_PORT", "x", r"api_port: .*integer.*got 'x'"),
        ("API_PORT", "65536", r"api_port: .*65535.*got '?65536"),
        ("LIVENESS_TIMEOUT_MS", "0", r"liveness_timeout_ms: .*greater than or equal to 50, got '0'"),
        ("ACCESS_LOG", "maybe", r"access_log: .*got 'maybe'"),
        ("LOG_LEVEL", "loud", r"log_level: .*'debug'.*got 'loud'"),
        ("API_PROT", "1", prot),
        ("API_HOST", "", r"api_host: .*at least 1 character"),  # not every address
        ("ADMIN_HOST", "", r"admin_host: .*at least 1 character"),
        ("WARM_TOPICS", "a,b c", r"warm_topics: .*not 'b c'"),
        ("SERVICE_NAME", "caf\udce9", r"service_name: the value is not UTF-8$"),
        ("KAFKA_SASL_PASSWORD", "caf\udce9", r"kafka: sasl\.password: the value is not UTF-8$"),
        ("KAFKA", "{}", r"PILOTFISH_KAFKA: unknown setting"),
        ("KAFKA_LINGR_MS", "1", r"lingr\.ms.*did you mean linger\.ms"),
        ("KAFKA_LINGER_MS", "soon", r"linger\.ms"),
        ("KAFKA_LINGER_MS_FILE", "/no/such/file", r"PILOTFISH_KAFKA_LINGER_MS_FILE: can't read"),
        ("API_PORT", "tcp://10.0.0.1:80", r"PILOTFISH_API_PORT: .*Kubernetes.*enableServiceLinks"),
        # The file of what is not taken is refused unread.
        ("KAFKA_SSL_KEYSTORE_PASSWORD_FILE", "/none", "this client reads PEM stores, which have none"),
        ("KAFKA_SASL_KERBEROS_SERVICE_NAME_FILE", "/none", r"is for GSSAPI \(Kerberos\)"),
        ("KAFKA_SASL_PASWORD_FILE", "/none", r"did you mean sasl\.password\.file"),
        ("CONFIG", "/no/such", "config: can't read /no/such: No such file"),
        ("INTERNAL", "{}", "PILOTFISH_INTERNAL: unknown setting"),
        ("api_port", "1", "PILOTFISH_api_port: .*variables are in capitals: PILOTFISH_API_PORT"),
        ("KAFKA_linger_ms", "1", "PILOTFISH_KAFKA_linger_ms: .*in capitals: PILOTFISH_KAFKA_LINGER_MS"),
        # No Host header is like these, so that every request would be refused.
        (
            "ALLOWED_HOSTS",
            "localhost:8085",
            "allowed_hosts: .*'localhost:8085' is not a host.* port",
        ),
        ("ALLOWED_HOSTS", "a,https://b", "allowed_hosts: .*'https://b' is not a host"),
        ("ALLOWED_HOSTS", "*.example", r"allowed_hosts: .*'\*\.example' is not a host"),
        ("ALLOWED_HOSTS", "::1", "allowed_hosts: .*'::1' is not a host.*in brackets"),
    ):
        with pytest.raises(SettingsError, match=reported):
            load(monkeypatch, {f"PILOTFISH_{name}": value})
        monkeypatch.delenv(f"PILOTFISH_{name}")


def test_a_wrong_line_of_the_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    dots = ".".join("a" * 3_000) + " = 1"
    for file, reported in (
        ("api_prot = 1", r"api_prot .*unknown setting; did you mean api_port"),
        ("api_port = [1]", r"api_port: "),
        ("api_port = true", r"api_port: .*whole number.*got True"),  # 1 to Python
        ("max_watchers = false", r"max_watchers: .*whole number"),
        ("api_port =", r"not TOML"),
        ("api_port = " + "{a=" * 900, r"not TOML"),  # nests deeply
        ("api_port = " + "9" * 5_000, r"not TOML"),  # more digits than Python reads
        ("api_port = 0x" + "f" * 5_000, r"api_port: "),  # more digits than Python writes
        # How deep Python can go depends on its version.
        (f"[kafka]\n{dots}", "nested too deeply|a is not a setting of Kafka"),
        (f"[kafka]\na = [{{{dots}}}]", "nested too deeply|a is not a setting of Kafka"),
        ("[kafka]\nretries = 0x" + "f" * 5_000, r"retries"),
        ("kafka = 1", r"kafka: must be a table"),
        ("[kafka]\nlingr.ms = 1", r"lingr\.ms"),
        # Two names to TOML.
        (
            '[kafka]\nlinger.ms = 1\n"linger.ms" = 7',
            r"kafka: linger\.ms is given twice in the file; remove one",
        ),
        ('[kafka]\n"linger.ms" = 7\nlinger.ms = 1', r"kafka: linger\.ms is given twice"),
        ('[kafka]\nsasl.login."retry.backoff.ms" = 1\n"sasl.login.retry.backoff.ms" = 1', r"given twice"),
        # Internal limits are set by no source.
        ("internal = 1", r"internal .*: unknown setting"),
        ("[internal]\nslow_after_ms = 1", r"internal .*: unknown setting"),
        # The environment can't hold zero bytes.
        ('spool_folder = "a\\u0000b"', r"spool_folder: the value contains a zero byte"),
        ('warm_topics = ["a\\u0000b"]', r"warm_topics: the value contains a zero byte"),
        ('[kafka]\n"ssl.truststore.location" = "\\u0000"', r"kafka: ssl\.truststore\.location: .*zero byte"),
    ):
        with pytest.raises(SettingsError, match=reported):
            load(monkeypatch, file=file, tmp_path=tmp_path)


def test_a_file_may_begin_with_a_byte_order_mark_and_have_windows_line_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = "\ufeffapi_port = 7\r\n[kafka]\r\nbootstrap.servers = 'a:1'\r\n"
    assert load(monkeypatch, file=file, kafka=(), tmp_path=tmp_path).api_port == 7


def test_a_file_that_can_not_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"config: can't read {tmp_path}: Is a directory"):
        load_settings({}, BOOTSTRAP, str(tmp_path))


def test_a_setting_of_an_earlier_version_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = CliRunner().invoke(main, ["serve", "--help"]).output
    for name in REMOVED:
        said = removed(name)
        variable, flag = f"PILOTFISH_{name.upper()}", f"--{name.replace('_', '-')}"
        with pytest.raises(SettingsError, match=f"^{variable}: {re.escape(said)}"):
            load(monkeypatch, {variable: "1"})
        monkeypatch.delenv(variable)
        with pytest.raises(SettingsError, match=f"^{name} .*: {re.escape(said)}"):
            load(monkeypatch, file=f"{name} = 1", tmp_path=tmp_path)
        ended = CliRunner().invoke(main, ["serve", "--kafka", *BOOTSTRAP, flag, "1"])
        assert (ended.exit_code, f"{flag}: {said}" in ended.output) == (2, True), name
        assert flag not in usage


def test_a_setting_of_the_library_alone_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, reason in NOT_IN_A_SIDECAR.items():
        for value in ("true", "1"):
            said = f"^kafka: {re.escape(name)}: is not a setting of the sidecar, {reason}; remove it$"
            with pytest.raises(SettingsError, match=said):
                load(monkeypatch, kafka=(*BOOTSTRAP, f"{name}={value}"))
        assert f"`{name}`" not in kafka_settings_table()
    assert Settings(kafka={"bootstrap.servers": "a:1"}).producer_config().idempotence_restart_enable


def test_the_longest_line_of_a_stream_grows_with_the_largest_request_up_to_a_body() -> None:
    mib = 1024 * 1024
    for request_bytes, body_bytes, line_bytes in (
        (mib, 16 * mib, 4 * mib),
        (1_000, 16 * mib, 4 * mib),
        (2 * mib, 16 * mib, 8 * mib),
        (8 * mib, 16 * mib, 16 * mib),
        (8 * mib, 64 * mib, 32 * mib),
        (8 * mib, 1_000, 4 * mib),
    ):
        kafka = {"bootstrap.servers": "a:1", "max.request.size": str(request_bytes)}
        settings = Settings(kafka=kafka, max_body_bytes=body_bytes)
        assert settings.stream_line_bytes == line_bytes, (request_bytes, body_bytes)


def test_a_secret_given_twice_in_one_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"PILOTFISH_KAFKA_SASL_PASSWORD": "s3cret", "PILOTFISH_KAFKA_SASL_PASSWORD_FILE": "/x"}
    with pytest.raises(SettingsError) as reported:
        load(monkeypatch, {**SCRAM, **both, "PILOTFISH_KAFKA_SASL_USERNAME": "u"})
    assert "sasl.password and sasl.password.file are both given; choose one" in str(reported.value)
    assert "s3cret" not in str(reported.value)


def test_a_malformed_flag_is_reported_by_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError) as reported:
        load(monkeypatch, kafka=("sasl.password:s3cret",))
    assert str(reported.value) == "--kafka sasl.password: must be name=value, such as linger.ms=0"
    for flag in ("linger.ms", "=5", ""):
        with pytest.raises(SettingsError, match="must be name=value"):
            load(monkeypatch, kafka=(flag,))


def test_a_secret_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("5")
    both = {"PILOTFISH_KAFKA_LINGER_MS": "1", "PILOTFISH_KAFKA_LINGER_MS_FILE": str(path)}
    with pytest.raises(SettingsError, match="both plainly and as a file"):
        load(monkeypatch, both)


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


def test_kafkas_table_has_companions_and_other_defaults_than_kafkas() -> None:
    table = kafka_settings_table()
    assert "| `sasl.password`, `sasl.password.file` | none |" in table
    assert "| `ssl.truststore.type` | PEM (Kafka: JKS) | [PEM] |" in table
    assert "| `bootstrap.servers` | must be given |" in table


def test_a_wrong_setting_ends_the_command_with_2_and_its_name() -> None:
    for words in (["--api-port", "x"], ["--no-access-log", "--api-port", "x"]):
        ended = CliRunner().invoke(main, ["serve", *words])
        assert (ended.exit_code, "pilotfish: api_port: " in ended.output) == (2, True), words


def test_the_command_prints_its_version_and_its_settings() -> None:
    assert "pilotfish" in CliRunner().invoke(main, ["--version"]).output
    assert "`--api-port`" in CliRunner().invoke(main, ["settings"]).output


def test_the_installed_version_is_the_checkouts() -> None:
    assert pilotfish_version() == metadata.version("pilotfish")
    assert version_of_the_checkout(Path(__file__).parents[3]) == metadata.version("pilotfish")


def test_the_version_of_a_checkout(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    assert version_of_the_checkout(tmp_path) == "unknown"
    for project, version in (
        ('[project]\nname = "pilotfish"\nversion = "1.2.3"\n', "1.2.3"),
        ('[project]\nname = "another"\nversion = "1.2.3"\n', "unknown"),
        ("[project", "unknown"),
        ("", "unknown"),
    ):
        path.write_text(project)
        assert version_of_the_checkout(tmp_path) == version, project
