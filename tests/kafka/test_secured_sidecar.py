"""The sidecar over SASL_SSL, as a container has it: settings in the environment, secrets in mounted files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import jwt
import pytest

from tests.support.oauth_endpoint import OAuthEndpoint, signed_token
from tests.support.secured_kraft import ALICE, PASSWORDS
from tests.support.secured_settings import MountedSecret
from tests.support.sidecar import Sidecar
from tests.support.signing_keys import rsa_key
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

    from tests.kafka.conftest import NewTopic
    from tests.support.secured_kraft import SecuredKraft

_MECHANISM: Final = "SCRAM-SHA-512"
_USER: Final = "erin"
_FIRST: Final = "caterpillar-3Hn"
_SECOND: Final = "butterfly-8Lc"


@pytest.fixture
def mounted(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "mounted", {"username": _USER, "password": _FIRST})


@pytest.fixture
def sidecar(secured_kafka: SecuredKraft, mounted: MountedSecret, tmp_path: Path) -> Iterator[Sidecar]:
    secured_kafka.security.set_password(_USER, _MECHANISM, _FIRST)
    environment = {
        "PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "PILOTFISH_KAFKA_SASL_MECHANISM": _MECHANISM,
        "PILOTFISH_KAFKA_SASL_USERNAME_FILE": str(mounted.path("username")),
        "PILOTFISH_KAFKA_SASL_PASSWORD_FILE": str(mounted.path("password")),
        "PILOTFISH_KAFKA_SSL_TRUSTSTORE_LOCATION": str(secured_kafka.trust_path),
        "PILOTFISH_KAFKA_CONNECTIONS_MAX_IDLE_MS": "2000",
    }
    bootstrap_servers = secured_kafka.bootstrap("SASL_SSL")
    with Sidecar(tmp_path, bootstrap_servers=bootstrap_servers, environment=environment) as running:
        yield running


def _shown(sidecar: Sidecar) -> str:
    """All that the sidecar shows of itself."""
    pages = [sidecar.api.get(f"/v1/{page}").text for page in ("status", "cluster")]
    return "\n".join([*pages, sidecar.admin.get("/metrics").text, sidecar.log()])


def test_records_go_over_sasl_ssl_and_no_secret_is_shown_anywhere(
    secured_kafka: SecuredKraft, new_topic: NewTopic, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    answer = sidecar.produce(topic, [{"value": "over TLS", "key": "k"}])
    assert answer.status_code == 200, answer.text
    leader = sidecar.api.get(f"/v1/topics/{topic}/leader", params={"partition": 0})
    assert leader.json()["leader"]["port"] == int(secured_kafka.bootstrap("SASL_SSL").rpartition(":")[2])
    assert sidecar.admin.get("/readyz").status_code == 200
    assert "SASL_SSL" in sidecar.log()
    shown = _shown(sidecar)
    assert _MECHANISM in shown
    assert _FIRST not in shown
    assert PASSWORDS[ALICE] not in shown

    assert sidecar.terminate() == 0
    assert _FIRST not in sidecar.log()
    assert [r.value for r in secured_kafka.cluster.read_back(topic)] == [b"over TLS"]


def test_a_wrong_password_is_reported_over_http_and_correcting_it_needs_no_restart(
    secured_kafka: SecuredKraft, new_topic: NewTopic, mounted: MountedSecret, sidecar: Sidecar
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    secured_kafka.security.set_password(_USER, _MECHANISM, _SECOND)
    # Existing sessions stay; a probe makes the client check for idle connections.
    wait_until(
        lambda: (
            sidecar.admin.get("/livez").status_code == 200
            and sidecar.metric("pilotfish_broker_connection_state", state="ready") == 0
        ),
        what="the end of idle connections",
    )
    refused = sidecar.produce(topic, [{"value": "x"}])
    assert refused.status_code == 503
    assert refused.json()["kafka_error"] == "SASL_AUTHENTICATION_FAILED"
    assert "SCRAM-SHA-512" in refused.json()["detail"]

    mounted.swap({"username": _USER, "password": _SECOND})
    wait_until(
        lambda: sidecar.produce(topic, [{"value": "x"}]).status_code == 200,
        what="a record with the right password",
        every_s=0.0,
    )
    # The first attempt behind the swap read the file, and none read it twice.
    assert sidecar.metric("pilotfish_credential_reloads_total", outcome="success") == 1
    shown = _shown(sidecar)
    assert _FIRST not in shown
    assert _SECOND not in shown


# -- tokens --------------------------------------------------------------------------------------------------


def _with_oauth(secured_kafka: SecuredKraft, settings: dict[str, str]) -> dict[str, str]:
    """Variables of a sidecar whose tokens come from somewhere, by the rest of the settings' names."""
    return {
        "PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "PILOTFISH_KAFKA_SASL_MECHANISM": "OAUTHBEARER",
        "PILOTFISH_KAFKA_SSL_TRUSTSTORE_LOCATION": str(secured_kafka.trust_path),
        **{f"PILOTFISH_KAFKA_SASL_OAUTHBEARER_{name}": value for name, value in settings.items()},
    }


def test_tokens_may_come_from_a_callable_in_a_mounted_folder(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    (tmp_path / "token").write_text(signed_token("billing"))
    folder = tmp_path / "python"
    folder.mkdir()
    text = f"def token():\n    with open({str(tmp_path / 'token')!r}) as file:\n        return file.read()\n"
    (folder / "mounted_tokens.py").write_text(text)
    environment = _with_oauth(secured_kafka, {"TOKEN_PROVIDER": "mounted_tokens:token"})
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    bootstrap_servers = secured_kafka.bootstrap("SASL_SSL")
    with Sidecar(tmp_path, bootstrap_servers=bootstrap_servers, environment=environment) as sidecar:
        assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
        shown = _shown(sidecar)
    assert "Got an OAUTHBEARER token from sasl.oauthbearer.token.provider mounted_tokens:token" in shown
    assert "eyJ" not in shown


def test_a_projected_service_account_token_is_exchanged_for_one_of_the_identity_provider(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path
) -> None:
    """As with Azure workload identity: a file that a kubelet renews is the client's assertion."""
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    with OAuthEndpoint({}, keys={"billing": rsa_key().public_key()}) as endpoint:
        claims = {"iss": "billing", "sub": "billing", "aud": endpoint.url, "exp": 2**31}
        mounted = MountedSecret(tmp_path / "tokens", {"token": jwt.encode(claims, rsa_key(), "RS256")})
        settings = {
            "TOKEN_ENDPOINT_URL": endpoint.url,
            "CLIENT_CREDENTIALS_CLIENT_ID": "billing",
            "ASSERTION_FILE": str(mounted.path("token")),
            "SCOPE": "api://kafka/.default",
        }
        bootstrap_servers = secured_kafka.bootstrap("SASL_SSL")
        environment = _with_oauth(secured_kafka, settings)
        with Sidecar(tmp_path, bootstrap_servers=bootstrap_servers, environment=environment) as sidecar:
            assert sidecar.produce(topic, [{"value": "x"}]).status_code == 200
            shown = _shown(sidecar)
        assert endpoint.granted >= 1
        assert endpoint.requests[0].form["scope"] == "api://kafka/.default"
    assert "eyJ" not in shown


# -- in the dialect of REST Proxy v2 -------------------------------------------------------------------------


def post_v2(sidecar: Sidecar, topic: str) -> httpx.Response:
    headers = {"content-type": "application/vnd.kafka.json.v2+json"}
    return sidecar.api.post(f"/topics/{topic}", content='{"records":[{"value":"v"}]}', headers=headers)


def test_configs_that_an_acl_hides_are_an_empty_object(
    secured_kafka: SecuredKraft, new_topic: NewTopic, tmp_path: Path
) -> None:
    user, password = "grace", "sandglass-7Qx"
    topic = new_topic(partitions=1, on=secured_kafka.cluster)
    secured_kafka.security.set_password(user, "SCRAM-SHA-512", password)
    for operation in ("DESCRIBE", "WRITE"):
        secured_kafka.security.allow(user, operation, topic=topic)
    environment = {
        "PILOTFISH_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "PILOTFISH_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "PILOTFISH_KAFKA_SASL_USERNAME": user,
        "PILOTFISH_KAFKA_SASL_PASSWORD": password,
        "PILOTFISH_KAFKA_SSL_TRUSTSTORE_LOCATION": str(secured_kafka.trust_path),
    }
    bootstrap_servers = secured_kafka.bootstrap("SASL_SSL")
    try:
        with Sidecar(tmp_path, bootstrap_servers=bootstrap_servers, environment=environment) as sidecar:
            answer = sidecar.api.get(f"/topics/{topic}")
            assert answer.status_code == 200, answer.text
            assert answer.json()["configs"] == {}
            assert len(answer.json()["partitions"]) == 1
            assert post_v2(sidecar, topic).status_code == 200
            secured_kafka.security.deny(user, "WRITE", topic=topic)
            wait_until(
                lambda: post_v2(sidecar, topic).status_code == 403,
                what="a produce that Kafka's ACL refuses",
            )
            assert post_v2(sidecar, topic).json()["error_code"] == 40301
    finally:
        secured_kafka.security.forget_acls(topic=topic)
