"""Every secret that a sidecar is given, looked for in everything that it shows."""

from __future__ import annotations

import string
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from client_core import OPTIONS, ConfigError, KafkaProducer, ProducerConfig
from client_core.testing import FakeCluster
from client_core.testing.sasl import SaslDemand
from service.base.settings import Settings
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSWORD: Final = "hunter2-the-brokers-password"
QUIT: Final = "hunter2-the-quit-token"
SECRET: Final = "hunter2hunter2"


# -- a sidecar that runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_file", [True, False], ids=["file", "environment"])
def test_a_running_sidecar_shows_none_of_its_secrets_anywhere(tmp_path: Path, from_file: bool) -> None:
    events, quit_file, password_file = (tmp_path / name for name in ("events", "quit", "password"))
    quit_file.write_text(QUIT)
    password_file.write_text(PASSWORD)
    tokens = TokensFile(tmp_path, shop={"read": ["*"], "produce": ["*"]})
    shown: list[str] = []
    with FakeCluster(brokers=1) as brokers:
        brokers.create_topic("orders", partitions=1)
        brokers.demand_sasl(SaslDemand(("PLAIN",), passwords={"me": PASSWORD}))
        kafka = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            **({"sasl.password.file": str(password_file)} if from_file else {}),
        }
        flags = (
            *("--tokens-file", tokens.setting, "--quit-token-file", str(quit_file)),
            *("--events-folder", str(events), "--log-level", "debug", "--access-log"),
        )
        environment = {} if from_file else {"PILOTFISH_KAFKA_SASL_PASSWORD": PASSWORD}
        running = Sidecar(
            tmp_path,
            bootstrap_servers=brokers.bootstrap_servers,
            kafka=kafka,
            flags=flags,
            environment=environment,
        )
        running.api.headers.update(tokens.of("shop"))
        with running as sidecar:
            assert sidecar.produce("orders", [{"value": "x"}]).status_code == 200
            for path in (
                "/v1/status",
                "/v1/cluster",
                "/v1/topics/orders",
                "/openapi.json",
                "/v1.0/metadata",
                "/v3/clusters",
                "/brokers",
                "/nothing",
                f"/nothing?token={tokens.token('shop')}",
            ):
                answer = sidecar.api.get(path)
                shown += [f"{answer.headers}{answer.text}"]
            answer = sidecar.api.post("/quitquitquit", headers={"authorization": "Bearer wrong"})
            shown += [str(answer.headers), answer.text]
            for path in ("/metrics", "/livez", "/readyz", "/startupz", "/nothing"):
                shown.append(sidecar.admin.get(path).text)
            shown.append(Path(f"/proc/{sidecar.process.pid}/cmdline").read_text())
            sidecar.api.post("/quitquitquit", headers={"authorization": f"Bearer {QUIT}"})
            sidecar.process.wait(timeout=patient(60))
            shown.append(sidecar.log())
        shown += [file.read_text() for file in events.iterdir()]
    assert sum(map(len, shown)) > 10_000  # it did show something
    for secret in (PASSWORD, QUIT, tokens.token("shop")):
        assert not [text for text in shown if secret in text]


# -- values in a process -------------------------------------------------------------------------------------


def kafka_with_every_secret() -> Mapping[str, str]:
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'x.PlainLoginModule required username="me" password="{SECRET}";',
    }


def shown_by(value: object) -> list[str]:
    """Every way in which a value is turned into text by accident."""
    return [
        repr(value),
        str(value),
        f"{value}",
        "%s %r" % (value, value),  # noqa: UP031 - as a log line does it
        string.Formatter().format("{0!s} {0!r}", value),
        repr([value]),
        repr({"value": value}),
    ]


def test_neither_settings_nor_config_nor_producer_show_a_secret() -> None:
    settings = Settings(kafka=dict(kafka_with_every_secret()))
    config = settings.producer_config()
    producer = KafkaProducer(config)
    producer.close(0)
    for value in (settings, config, producer, producer.io_thread, producer.status()):
        assert not [text for text in shown_by(value) if SECRET in text]


def test_each_setting_that_holds_a_secret_is_shown_without_it() -> None:
    for option in (option.name for option in OPTIONS if option.kind.name == "PASSWORD"):
        given = {"bootstrap.servers": "127.0.0.1:1", option: SECRET}
        shown: list[str] = []
        try:
            shown += shown_by(ProducerConfig.from_mapping(given))
        except ConfigError as error:  # where it does not go without another: what is said of it
            shown += shown_by(error)
        assert not [text for text in shown if SECRET in text], option
