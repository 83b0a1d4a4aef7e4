"""Every way that a secret could get into the log of a sidecar, in both formats: it gets into none.

The client's own tests look at its texts with hundreds of secrets (tests/network/sasl); here are the ways
through the process: settings that are wrong, brokers that refuse, requests that fail, bugs with their stacks.
"""

from __future__ import annotations

import io
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from client_core import OPTIONS, ConfigError
from client_core.testing import FakeCluster
from client_core.testing.sasl import SaslDemand
from service.base.logs import FORMATTERS
from service.base.settings_sources import SettingsError, load_settings
from service.base.watched_file import FileFaultError
from service.cli.serve import serve
from service.process.app import create_app
from tests.support.http_app import HttpApp
from tests.support.sidecar import Sidecar
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET: Final = "hunter2hunter2"
BROKERS: Final = ("--kafka", "bootstrap.servers=127.0.0.1:1")
SASL: Final = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN")

LOG_FORMATS: Final = pytest.mark.parametrize("log_format", FORMATTERS)


def said_by(*arguments: str, **environment: str) -> str:
    """What `pilotfish serve` says that can't start: it is refused where its settings are read, or its app
    is made, which is before anything is begun.
    """
    said: list[str] = []
    context = serve.make_context("serve", list(arguments), resilient_parsing=False)
    given = {name: value for name, value in context.params.items() if value not in (None, ())}
    config_file, flags = given.pop("config_file", None), given.pop("kafka", ())
    for name in ("embedded", "embedded_port", "embedded_folder"):
        given.pop(name, None)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            settings = load_settings(given, flags, config_file)
            said.append(repr(settings))
            said.append(repr(create_app(settings).sidecar.config))
        except SettingsError as e:
            said.append(str(e))
        except ConfigError as e:
            said.append(e.message)
        except FileFaultError as e:
            said.append(str(e))
        else:
            raise AssertionError(f"it would start: {said}")
    return "\n".join(said)


def kafka(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--kafka", setting)]


# -- settings that are wrong ---------------------------------------------------------------------------------

#: Settings with which no sidecar starts, whatever is wrong with them.
WRONG: Final[dict[str, tuple[str, ...]]] = {
    "no name": tuple(kafka(f"={SECRET}")),
    "no value": tuple(kafka(f"sasl.password:{SECRET}")),
    "misspelt": tuple(kafka(*SASL, "sasl.username=me", f"sasl.pasword={SECRET}")),
    "JAAS that is none": tuple(kafka(*SASL, f"sasl.jaas.config={SECRET}")),
    "JAAS without end": tuple(
        kafka(*SASL, f'sasl.jaas.config=x.PlainLoginModule required username="a" password="{SECRET}')
    ),
    "JAAS of another mechanism": tuple(
        kafka(*SASL, f'sasl.jaas.config=x.ScramLoginModule required username="a" password="{SECRET}";')
    ),
    "a password without user": tuple(kafka(*SASL, f"sasl.password={SECRET}")),
    "a password given twice": tuple(
        kafka(*SASL, "sasl.username=a", f"sasl.password={SECRET}", "sasl.password.file=/nowhere")
    ),
    "a key that is none": tuple(
        kafka(
            "security.protocol=SSL", f"ssl.keystore.key={SECRET}", f"ssl.keystore.certificate.chain={SECRET}"
        )
    ),
    "a key's password": tuple(
        kafka("security.protocol=SSL", f"ssl.key.password={SECRET}", "ssl.keystore.location=/nowhere")
    ),
    "authorities that are none": tuple(
        kafka("security.protocol=SSL", f"ssl.truststore.certificates={SECRET}")
    ),
    "a Java store's password": tuple(kafka(f"ssl.truststore.password={SECRET}")),
    "a token endpoint with a user": tuple(
        kafka(
            "security.protocol=SASL_SSL",
            "sasl.mechanism=OAUTHBEARER",
            f"sasl.oauthbearer.token.endpoint.url=https://me:{SECRET}@idp.example/token",
            f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
        )
    ),
    "a client secret without id": tuple(
        kafka(
            "security.protocol=SASL_SSL",
            "sasl.mechanism=OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url=https://idp.example/token",
            f"sasl.oauthbearer.client.credentials.client.secret={SECRET}",
        )
    ),
    "a number beside a secret": tuple(
        kafka(*SASL, "sasl.username=a", f"sasl.password={SECRET}", "batch.size=many")
    ),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_settings_that_are_refused_are_named_without_a_secret(wrong: tuple[str, ...]) -> None:
    said = said_by(*BROKERS, *wrong)
    assert said
    assert SECRET not in said


def test_variables_that_are_refused_are_named_without_a_secret() -> None:
    for name in ("PILOTFISH_KAFKA_SASL_PASWORD", "PILOTFISH_TOKN", "PILOTFISH_KAFKA_SASL_JAAS_CONFIG"):
        said = said_by(*BROKERS, *kafka(*SASL), **{name: SECRET})
        assert said
        assert SECRET not in said


@pytest.mark.parametrize(
    "text",
    [
        f'[kafka]\nsasl.password = "{SECRET}\n',
        f"[kafka]\nsasl.password = {SECRET}\n",
        f'[kafka\nsasl.password = "{SECRET}"\n',
        f'[kafka]\nsasl.password = "{SECRET}"\nsasl.password = "x"\n',
        f'kafka = "{SECRET}"\n',
    ],
)
def test_a_file_of_settings_that_is_none_is_named_without_a_line_of_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pilotfish.toml"
    path.write_text(text)
    said = said_by(*BROKERS, "--config", str(path))
    assert SECRET not in said


@pytest.mark.parametrize("text", [SECRET, f"[[tokens]]\nsha256 = '{SECRET}'\n", f"tokens = ['{SECRET}'"])
def test_a_file_of_tokens_that_is_none_is_named_without_a_line_of_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    said = said_by(*BROKERS, "--tokens-file", str(path))
    assert "tokens_file" in said
    assert SECRET not in said


def test_no_setting_that_holds_a_secret_is_missing_above() -> None:
    secret = {option.name for option in OPTIONS if option.kind.name == "PASSWORD"} | {"sasl.password"}
    tried = {word.partition("=")[0] for words in WRONG.values() for word in words}
    assert secret - tried == set()


# -- brokers that refuse -------------------------------------------------------------------------------------


@LOG_FORMATS
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_broker_that_refuses_the_password_is_told_without_it(
    tmp_path: Path, mechanism: str, log_format: str
) -> None:
    with FakeCluster(brokers=1) as brokers:
        brokers.demand_sasl(SaslDemand((mechanism,), passwords={"me": "another"}))
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "me",
            "sasl.password": SECRET,
            "reconnect.backoff.max.ms": "100",
        }
        flags = ("--log-level", "debug", "--access-log", "--log-format", log_format)
        with Sidecar(
            tmp_path, bootstrap_servers=brokers.bootstrap_servers, kafka=settings, flags=flags
        ) as sidecar:
            wait_until(
                lambda: (
                    (sidecar.metric("pilotfish_broker_disconnects_total", reason="authentication") or 0) > 3
                ),
                what="attempts",
            )
            assert sidecar.terminate() == 0
            log = sidecar.log()
    assert SECRET not in log
    assert log.count("authentication failed due to") > 1  # at DEBUG each, to be seen here
    errors = [line for line in log.splitlines() if "level=error" in line or '"level":"error"' in line]
    assert len(errors) == 1, errors


# -- requests, bugs ------------------------------------------------------------------------------------------


@contextmanager
def logged(log_format: str) -> Iterator[io.StringIO]:
    """What comes to the root logger, at every level."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(FORMATTERS[log_format]())
    handler.addFilter(lambda record: not record.name.startswith("http"))  # the caller's own
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@LOG_FORMATS
def test_a_bugs_stack_holds_nothing_of_the_request(log_format: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError("a bug")

    web.producer.submit = broken  # type: ignore[method-assign,assignment]  # a bug, as it were
    headers = {
        "authorization": f"Bearer {SECRET}",
        "pilotfish-key": SECRET,
        "cookie": SECRET,
        "content-type": "application/octet-stream",
    }
    with logged(log_format) as log:
        answer = web.post("/v1/topics/orders/records", content=SECRET.encode(), headers=headers)
    assert answer.status_code == 500
    assert "RuntimeError: a bug" in log.getvalue()
    assert "an unexpected exception" in log.getvalue()
    assert SECRET not in log.getvalue()


@LOG_FORMATS
def test_requests_that_are_refused_leave_nothing_of_theirs_in_the_log(log_format: str) -> None:
    web = HttpApp()
    web.producer.set_topics({"orders": 3})
    bearer = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
    with logged(log_format) as log:
        for body in (SECRET, f'{{"records":"{SECRET}"}}', f'{{"records":[{{"value":"{SECRET}","x":1}}]}}'):
            assert web.post("/v1/topics/orders/records", content=body, headers=bearer).status_code >= 400
        web.get(f"/v1/topics/orders/leader?key={SECRET}&partition=1", headers=bearer)
        web.get(f"/v1/topics/orders?token={SECRET}", headers=bearer)
        web.post(f"/v1.0/publish/pubsub/orders?metadata.x={SECRET}&metadata.rawPayload={SECRET}", content="1")
    assert SECRET not in log.getvalue()
