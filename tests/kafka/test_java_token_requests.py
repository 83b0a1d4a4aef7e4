"""Assertions on a real broker: our producer and Kafka's own ask a token endpoint alike, by the same settings.

The endpoint verifies what it is asked, and the broker what it grants. Each producer writes one record.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Final

import jwt
import pytest

from tests.support.live_producer import live_producer, submit
from tests.support.oauth_endpoint import OAuthEndpoint
from tests.support.secured_settings import on
from tests.support.signing_keys import ec_key, pem, rsa_key
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.conftest import NewTopic
    from tests.support.kafka_home import KafkaHome
    from tests.support.oauth_endpoint import TokenRequest
    from tests.support.secured_kraft import SecuredKraft
    from tests.support.secured_settings import Settings

_PREFIX: Final = "sasl.oauthbearer"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer"
_LISTENER: Final = "SASL_PLAINTEXT"
_PASSPHRASE: Final = "jabberwocky-2Vm"
#: What time and chance decide.
_VARYING: Final = ("iat", "exp", "nbf", "jti")


@pytest.fixture
def topic(secured_kafka: SecuredKraft, new_topic: NewTopic) -> str:
    return new_topic(partitions=1, on=secured_kafka.cluster)


def _signed(folder: Path, algorithm: str, endpoint: OAuthEndpoint) -> Settings:
    """An assertion by a key, with a template."""
    key, template = folder / "key.pem", folder / "template.json"
    key.write_text(pem(rsa_key()) if algorithm == "RS256" else pem(ec_key()))
    payload = {"aud": endpoint.url, "tenant": "a b"}
    template.write_text(json.dumps({"header": {"kid": "k1", "alg": "none"}, "payload": payload}))
    return {
        f"{_PREFIX}.assertion.private.key.file": str(key),
        f"{_PREFIX}.assertion.algorithm": algorithm,
        f"{_PREFIX}.assertion.claim.aud": "replaced by the template",
        f"{_PREFIX}.assertion.claim.iss": "pilotfish",
        f"{_PREFIX}.assertion.claim.sub": "pilotfish",
        f"{_PREFIX}.assertion.claim.exp.seconds": 30,
        f"{_PREFIX}.assertion.claim.nbf.seconds": 10,
        f"{_PREFIX}.assertion.claim.jti.include": "true",
        f"{_PREFIX}.assertion.template.file": str(template),
    }


def _ready(folder: Path, algorithm: str, endpoint: OAuthEndpoint) -> Settings:
    """An assertion in a file."""
    key = rsa_key() if algorithm == "RS256" else ec_key()
    claims = {"iss": "pilotfish", "sub": "pilotfish", "aud": endpoint.url, "exp": 2**31}
    (folder / "assertion").write_text(jwt.encode(claims, key, algorithm) + "\n")
    return {f"{_PREFIX}.assertion.file": str(folder / "assertion")}


GRANTS: Final[Mapping[str, Settings]] = {
    "client credentials": {
        f"{_PREFIX}.client.credentials.client.id": "pilotfish",
        f"{_PREFIX}.scope": "kafka more",
    },
    "client credentials without an id": {
        f"{_PREFIX}.jwt.retriever.class": f"{_OAUTH}.ClientCredentialsJwtRetriever",
    },
    "JWT bearer": {
        f"{_PREFIX}.jwt.retriever.class": f"{_OAUTH}.JwtBearerJwtRetriever",
        f"{_PREFIX}.scope": "kafka more",
    },
}


@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize(
    ("assertion", "algorithm"), [(_signed, "RS256"), (_signed, "ES256"), (_ready, "RS256")]
)
@pytest.mark.behaviour("CRED-02")
def test_the_request_is_javas_and_the_token_lets_in(
    secured_kafka: SecuredKraft,
    kafka_home: KafkaHome,
    topic: str,
    tmp_path: Path,
    grant: str,
    assertion: Any,
    algorithm: str,
) -> None:
    key = rsa_key() if algorithm == "RS256" else ec_key()
    with OAuthEndpoint({}, keys={"pilotfish": key.public_key()}) as endpoint:
        settings: Settings = {
            **on(secured_kafka, _LISTENER),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{_PREFIX}.token.endpoint.url": endpoint.url,
            **GRANTS[grant],
            **assertion(tmp_path, algorithm, endpoint),
        }
        with live_producer(secured_kafka.bootstrap(_LISTENER), settings) as producer:
            assert submit(producer, topic, [b"ours"], partition=0).offsets() == [0]
        _produce_by_java(kafka_home, topic, tmp_path, settings, endpoint)
        assert [record.value for record in secured_kafka.cluster.read_back(topic)][:1] == [b"ours"]
        ours, *_, javas = endpoint.requests
        assert ours.was_granted
        assert javas.was_granted
        assert _shape(ours) == _shape(javas)


def _produce_by_java(
    home: KafkaHome, topic: str, folder: Path, settings: Settings, endpoint: OAuthEndpoint
) -> None:
    properties = folder / "java.properties"
    handler = {"sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler"}
    lines = (f"{name}={value}\n" for name, value in {**settings, **handler}.items())
    properties.write_text("".join(lines))
    allowed = f"-D{_OAUTH.replace('common.security', 'sasl')}.allowed"
    files = ",".join(
        str(value) for name, value in settings.items() if name.startswith(_PREFIX) and name.endswith(".file")
    )
    command = [
        *(str(home.java), "-cp", ":".join(str(jar) for jar in home.jars)),
        *(f"{allowed}.urls={endpoint.url}", f"{allowed}.files={files}"),
        *("org.apache.kafka.tools.ProducerPerformance", "--command-config", str(properties)),
        *("--topic", topic, "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=patient(100))
    assert ran.stdout.startswith("1 records sent"), ran.stdout + ran.stderr


def _shape(request: TokenRequest) -> tuple[list[str], dict[str, object], object]:
    """The fields in their order, and their values, but for what time and chance decide."""
    names = [field.partition("=")[0] for field in request.body.decode().split("&")]
    form: dict[str, object] = {}
    for name, value in request.form.items():
        if not name.endswith("assertion"):
            form[name] = value
            continue
        claims = jwt.decode(value, options={"verify_signature": False})
        times = {
            f"{name} after iat": claims[name] - claims["iat"] for name in ("exp", "nbf") if "iat" in claims
        }
        fixed = {name: claim for name, claim in claims.items() if name not in _VARYING}
        form[name] = (jwt.get_unverified_header(value), sorted(claims), times, fixed)
    return names, form, request.authorization
