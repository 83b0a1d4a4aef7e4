"""The settings that a client's SASL requires, channels that wait for it, and hostile brokers.

Twins of SaslChannelBuilderTest (Kafka 4.3).
"""

from __future__ import annotations

import queue
import random
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import jwt
import pytest

from client_core.errors import ConfigError, DisconnectError, InvalidReceiveError, SaslAuthenticationError
from client_core.events import NO_EVENTS, SecretReloaded
from client_core.network.sasl.sasl_authenticators import SaslAuthenticators
from client_core.network.sasl.sasl_client import PlainSaslClient
from client_core.network.sasl.sasl_client_authenticator import SaslClientAuthenticator
from client_core.network.secret import SecretSource
from client_core.network.security_config import (
    AssertionConfig,
    OAuthBearerConfig,
    SaslConfig,
    TokenProvider,
)
from client_core.network.selectable import ChannelStateName
from tests.network.sasl.jwts import jwt_of
from tests.network.sasl.sasl_rig import (
    CLIENT_ID,
    NODE,
    PASSWORD,
    SESSION_MS,
    USERNAME,
    SaslRig,
    password_config,
    wait_for_channel_close,
    wait_for_channel_ready,
)
from tests.support.mock_clock import MockClock
from tests.support.oauth_endpoint import OAuthEndpoint
from tests.support.sasl_server import SaslServer
from tests.support.signing_keys import rsa_key
from tests.support.tcp_peers import ScriptedPeer, TcpPeer, receive_frame, stay_silent
from tests.support.waiting import patient

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from client_core.events import Event, EventSink
    from client_core.network.authenticator import Authenticator
    from client_core.network.sasl.sasl_client import SaslClient
    from client_core.network.selector import Selector
    from tests.support.sasl_server import SaslConversation

LEFT_OUT: Final = {
    "SaslChannelBuilderTest.CloseBeforeConfigureIsIdempotent": "there is no state before configuring: making"
    " SaslAuthenticators configures them",
}

JAAS: Final = "sasl.jaas.config"
URL_SETTING: Final = "sasl.oauthbearer.token.endpoint.url"
OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


class NextEvents:
    """Events as they come; `next` waits for one."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event] = queue.Queue()

    def emit(self, event: Event, /) -> None:
        self._events.put(event)

    def next(self) -> Event:
        return self._events.get(timeout=patient(30))


def made(
    config: SaslConfig, clock: MockClock | None = None, events: EventSink = NO_EVENTS
) -> SaslAuthenticators:
    return SaslAuthenticators(
        config, client_id="pilotfish", clock=clock or MockClock(), random=random.Random(1), events=events
    )


def oauth(url: str, jaas: str | None = None, **settings: str) -> SaslConfig:
    sources = {name: SecretSource(f"sasl.oauthbearer.{name}", text=text) for name, text in settings.items()}
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=None if jaas is None else SecretSource("sasl.jaas.config", text=jaas),
        oauth_bearer=OAuthBearerConfig(
            url, client_id=sources.get("client_id"), client_secret=sources.get("client_secret")
        ),
    )


def pilot(url: str) -> SaslConfig:
    """A client's with an id and a secret."""
    return oauth(url, client_id="pilot", client_secret="fish")


def url_of(peer: TcpPeer) -> str:
    return f"http://127.0.0.1:{peer.address[1]}/"


def converse(authenticator: Authenticator, conversation: SaslConversation) -> None:
    """Both sides, until one of them has nothing more to say."""
    received: bytes | None = None
    while (sent := authenticator.authenticate(received, 0)) is not None:
        answers = conversation.receive(b"".join(sent))
        received = answers[0]


def test_oauth_bearer_with_a_token_from_a_file(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "token"
    token = jwt_of("alice", expires_ms=clock.wall_ms() + 1000)
    file.write_text(token)
    server = SaslServer(clock, ("OAUTHBEARER",), tokens={token: "alice"})
    jaas = f'{OAUTH_MODULE} required extension_traceId="123";'
    conversation = server.connect()
    authenticators = made(oauth(file.as_uri(), jaas), clock)
    converse(authenticators.authenticator("localhost"), conversation)
    assert conversation.principal == "alice"
    assert server.extensions == {"traceId": "123"}

    clock.advance(1000)
    expired = authenticators.authenticator("localhost")
    with pytest.raises(SaslAuthenticationError, match="expired 0 s ago"):
        expired.authenticate(None, clock.now_ms())
    authenticators.close()


def test_a_token_that_the_broker_does_not_take_is_refused_in_its_words(tmp_path: Path) -> None:
    clock, file = MockClock(), tmp_path / "token"
    file.write_text(jwt_of("mallory", expires_ms=clock.wall_ms() + 1000))
    conversation = SaslServer(clock, ("OAUTHBEARER",)).connect()
    with pytest.raises(SaslAuthenticationError) as caught:
        converse(made(oauth(file.as_uri()), clock).authenticator("localhost"), conversation)
    assert str(caught.value) == '{"status":"invalid_token"} (the client sent a lone ^A)'


@pytest.mark.parametrize("in_settings", [True, False])
def test_oauth_bearer_with_a_token_endpoint(in_settings: bool) -> None:
    with OAuthEndpoint({"pilot": "fish"}) as endpoint:
        if in_settings:
            config = oauth(endpoint.url, client_id="pilot", client_secret="fish")
        else:
            config = oauth(
                endpoint.url, f'{OAUTH_MODULE} required clientId="pilot" clientSecret="fish" scope=a;'
            )
        events = NextEvents()
        authenticators = made(config, events=events)
        authenticator = authenticators.authenticator("localhost")
        assert events.next() == SecretReloaded(URL_SETTING, None)
        assert authenticator.authenticate(None, 0) is not None
        authenticators.close()
        assert endpoint.requests[0].form.get("scope") == (None if in_settings else "a")


def assert_waits(authenticator: Authenticator) -> None:
    assert authenticator.awaits_credentials
    assert not authenticator.complete


def test_as_long_as_there_is_no_token_yet_authenticators_wait_for_it() -> None:
    with ScriptedPeer(stay_silent) as peer:
        authenticators = made(pilot(url_of(peer)))
        authenticator = authenticators.authenticator("localhost")
        assert not authenticator.awaits_credentials  # nothing was wanted of it so far
        for _ in range(2):
            assert authenticator.authenticate(None, 0) is None
            assert_waits(authenticator)
        authenticators.close()
        with pytest.raises(DisconnectError, match="the client is closing"):
            authenticator.authenticate(None, 0)
        assert not authenticator.awaits_credentials


def test_nothing_is_asked_and_no_thread_begins_before_the_first_connection() -> None:
    with OAuthEndpoint({"pilot": "fish"}) as endpoint:
        before = set(threading.enumerate())
        authenticators = made(pilot(endpoint.url))
        assert not [thread for thread in threading.enumerate() if thread not in before]
        authenticators.close()
        assert endpoint.requests == []


def test_an_endpoint_that_is_down_is_waited_for() -> None:
    with TcpPeer() as peer:
        url = url_of(peer)
    events = NextEvents()
    authenticators = made(pilot(url), events=events)
    waiting = authenticators.authenticator("localhost")
    assert events.next() == SecretReloaded(URL_SETTING, f"{url} can't be reached: connection refused")
    with pytest.raises(DisconnectError, match=r"there is no OAUTHBEARER token: .*: connection refused"):
        waiting.authenticate(None, 0)
    with pytest.raises(DisconnectError, match=r"there is no OAUTHBEARER token: .*: connection refused"):
        authenticators.authenticator("localhost")
    authenticators.close()


def test_a_refusal_of_the_endpoint_fails_the_authentication() -> None:
    with OAuthEndpoint({}) as endpoint:
        events = NextEvents()
        authenticators = made(pilot(endpoint.url), events=events)
        authenticator = authenticators.authenticator("localhost")
        assert isinstance(events.next(), SecretReloaded)
        with pytest.raises(SaslAuthenticationError, match=r"answered 401 \(invalid_client - Invalid client"):
            authenticator.authenticate(None, 0)
        authenticators.close()


@pytest.mark.java("SaslChannelBuilderTest.CloseAfterConfigIsIdempotent")
def test_close_is_idempotent_and_ends_the_thread() -> None:
    with ScriptedPeer(stay_silent) as peer:
        before = set(threading.enumerate())
        url = f"http://127.0.0.1:{peer.address[1]}/"
        authenticators = made(pilot(url))
        authenticators.authenticator("localhost")
        started = [thread for thread in threading.enumerate() if thread not in before]
        assert "pilotfish-oauthbearer-login" in {thread.name for thread in started}
        for _ in range(2):
            authenticators.close()
        assert not any(
            thread.is_alive() for thread in started if thread.name == "pilotfish-oauthbearer-login"
        )


@pytest.mark.parametrize("is_jwt_bearer", [False, True])
def test_oauth_bearer_with_an_assertion(tmp_path: Path, is_jwt_bearer: bool) -> None:
    with OAuthEndpoint({}, keys={"pilot": rsa_key().public_key()}) as endpoint:
        claims = {"iss": "pilot", "sub": "pilot", "aud": endpoint.url, "exp": 2**31}
        file = tmp_path / "assertion"
        file.write_text(jwt.encode(claims, rsa_key(), "RS256"))
        source = SecretSource("sasl.oauthbearer.assertion.file", path=str(file))
        config = OAuthBearerConfig(
            endpoint.url, assertion=AssertionConfig(source), is_jwt_bearer=is_jwt_bearer
        )
        events = NextEvents()
        authenticators = made(SaslConfig("OAUTHBEARER", oauth_bearer=config), events=events)
        authenticator = authenticators.authenticator("localhost")
        assert events.next() == SecretReloaded(URL_SETTING, None)
        assert authenticator.authenticate(None, 0) is not None
        authenticators.close()
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer" if is_jwt_bearer else "client_credentials"
        assert endpoint.requests[0].form["grant_type"] == grant


def provided(provider: TokenProvider, jaas: str | None = None) -> SaslConfig:
    return SaslConfig(
        "OAUTHBEARER",
        jaas_config=None if jaas is None else SecretSource("sasl.jaas.config", text=jaas),
        oauth_bearer=OAuthBearerConfig(token_provider=provider),
    )


def test_oauth_bearer_with_a_callable() -> None:
    """A token that is no JWT, and extensions of the JAAS config."""
    clock, events = MockClock(), NextEvents()
    server = SaslServer(clock, ("OAUTHBEARER",), tokens={"opaque": "alice"})
    provider = TokenProvider.of(lambda: ("opaque", clock.wall_ms() + 600_000))
    authenticators = made(provided(provider, f'{OAUTH_MODULE} required extension_a="1";'), clock, events)
    authenticator = authenticators.authenticator("localhost")
    assert events.next() == SecretReloaded("sasl.oauthbearer.token.provider", None)
    conversation = server.connect()
    converse(authenticator, conversation)
    assert (conversation.principal, server.extensions) == ("alice", {"a": "1"})
    assert authenticators.version() == 1
    authenticators.close()


def test_a_missing_or_wrong_setting_is_reported_before_anything_is_connected() -> None:
    def in_jaas(text: str) -> SaslConfig:
        return oauth("https://idp", f"{OAUTH_MODULE} required {text};")

    credentials = "sasl.oauthbearer.client.credentials.client"
    other_module = oauth("https://idp", "PlainLoginModule required username=a password=b;")
    unsupported = "unsecuredLoginStringClaim_sub is not supported"
    assert repr(made(password_config("PLAIN"))) == "<SaslAuthenticators PLAIN>"
    for config, setting, said in (
        (password_config("GSSAPI"), "sasl.mechanism", "GSSAPI (Kerberos) is not supported"),
        (password_config("DIGEST-MD5"), "sasl.mechanism", "sasl.mechanism=DIGEST-MD5 is unknown"),
        (SaslConfig("PLAIN"), "sasl.username", "sasl.username is missing"),
        (SaslConfig("OAUTHBEARER"), URL_SETTING, "is missing"),
        (
            provided(TokenProvider("not_there:token")),
            "sasl.oauthbearer.token.provider",
            "there is no module not_there",
        ),
        (oauth("nonsense", client_id="a", client_secret="b"), URL_SETTING, "https"),
        (oauth("https://idp"), f"{credentials}.id", "set it, or clientId in sasl.jaas.config"),
        (in_jaas("clientId=a"), f"{credentials}.secret", "set it, or clientSecret in sasl.jaas.config"),
        (in_jaas("clientId=a clientSecret=b extension_auth=c"), JAAS, "Extension name auth is invalid"),
        (in_jaas('unsecuredLoginStringClaim_sub="alice"'), JAAS, unsupported),
        (in_jaas('ssl.truststore.location="/ca.pem"'), JAAS, "SSL_CERT_FILE"),
        (other_module, JAAS, f"sasl.mechanism=OAUTHBEARER needs {OAUTH_MODULE}"),
        (in_jaas('clientId=a clientSecret=b scope="é"'), "sasl.oauthbearer.scope", "must be ASCII"),
    ):
        with pytest.raises(ConfigError) as caught:
            made(config)
        assert caught.value.name == setting
        assert said in caught.value.message


# -- channels whose token is still being fetched -------------------------------------------------------------


LONG_MS: Final = 10_000
OVER: Final = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])


class SlowCredentials:
    """Authenticators with PLAIN; there is a password from `are_here` on."""

    def __init__(self) -> None:
        self.are_here = False
        self.failure: DisconnectError | None = None
        self.looks = 0

    def authenticator(self, host: str) -> Authenticator:
        return SaslClientAuthenticator("PLAIN", self._new_client, CLIENT_ID, random.Random(1))

    def _new_client(self) -> SaslClient | None:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return PlainSaslClient(USERNAME, PASSWORD) if self.are_here else None

    def close(self) -> None:
        """It holds nothing."""


def poll_until_looked(selector: Selector, credentials: SlowCredentials, looks: int) -> None:
    while credentials.looks < looks:
        selector.poll(LONG_MS)
        assert not selector.disconnected


@contextmanager
def waiting_channel(tls: bool = False) -> Iterator[tuple[SaslRig, SlowCredentials, Selector]]:
    """One that has looked for its credentials some times."""
    with SaslRig("PLAIN", tls=tls) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        rig.connect(selector)
        poll_until_looked(selector, credentials, 3)
        yield rig, credentials, selector


@OVER
def test_a_channel_waits_for_its_credentials_and_goes_on_by_itself(tls: bool) -> None:
    with waiting_channel(tls) as (rig, credentials, selector):
        assert not selector.is_channel_ready(NODE)
        assert rig.server.requests == []
        credentials.are_here = True
        wait_for_channel_ready(selector)
        looks = credentials.looks
        rig.check_client_connection(selector)
        assert credentials.looks == looks


@OVER
def test_a_failure_to_get_them_ends_the_connection_with_the_reason(tls: bool) -> None:
    with waiting_channel(tls) as (_, credentials, selector):
        credentials.failure = DisconnectError("https://idp can't be reached")
        state = wait_for_channel_close(selector)
        assert state.name is ChannelStateName.AUTHENTICATE
        assert state.detail == "https://idp can't be reached"


def test_waiting_costs_no_turns_whatever_the_peer_does_meanwhile() -> None:
    """Unexpected bytes stay in the socket until the next look for a token: no poll ends for them."""

    def talks_too_early(connection: socket.socket) -> None:
        connection.sendall(b"\0\0\0\4abcd" * 100)
        stay_silent(connection)

    with ScriptedPeer(talks_too_early) as peer, SaslRig("PLAIN", tls=False) as rig:
        credentials = SlowCredentials()
        selector = rig.client_with(credentials)
        selector.connect(NODE, "localhost", peer.address, 4096, 4096)
        poll_until_looked(selector, credentials, 2)
        begin_s = time.monotonic()
        poll_until_looked(selector, credentials, 6)
        # Four polls, and each of them slept: nothing else made it return.
        assert time.monotonic() - begin_s > 0.15
        credentials.are_here = True
        peer.close_connections()
        assert wait_for_channel_close(selector).error is not None


@OVER
def test_a_renewal_waits_as_well(tls: bool) -> None:
    with SaslRig("PLAIN", tls=tls) as rig:
        rig.server.session_lifetime_ms = SESSION_MS
        credentials = SlowCredentials()
        credentials.are_here = True
        selector = rig.client_with(credentials)
        rig.connect(selector)
        wait_for_channel_ready(selector)
        rig.let_the_session_run_out()
        credentials.are_here = False
        selector.send(NODE, [b"this waits for the renewal"])
        poll_until_looked(selector, credentials, credentials.looks + 3)
        credentials.are_here = True
        while not selector.completed_receives:
            selector.poll(LONG_MS)
            assert not selector.disconnected
        assert selector.completed_receives[0].payload == b"this waits for the renewal"
        assert rig.server.reauthentications == 1


def test_closing_a_channel_that_waits_leaves_nothing() -> None:
    with waiting_channel() as (_, credentials, selector):
        selector.close_connection(NODE)
        looks = credentials.looks
        selector.poll(0)
        assert credentials.looks == looks
        assert not selector.disconnected


# -- hostile brokers -----------------------------------------------------------------------------------------


def test_an_answer_of_megabytes_is_refused_as_soon_as_its_size_is_known() -> None:
    """No step of an authentication needs more than some kilobytes, and the peer is not authenticated yet."""
    reported = threading.Event()

    def announces_64_megabytes(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall((64 * 1024 * 1024).to_bytes(4, "big") + bytes(1000))
        reported.wait(30)

    with ScriptedPeer(announces_64_megabytes) as peer, SaslRig("PLAIN", tls=False) as rig:
        selector = rig.client("PLAIN")
        selector.connect(NODE, "localhost", peer.address, 4096, 4096)
        state = wait_for_channel_close(selector)
        reported.set()
        assert isinstance(state.error, InvalidReceiveError)
        assert "67108864 larger than 524288" in state.error.message


def test_a_size_that_a_log_in_may_not_have_is_fine_for_an_answer_thereafter() -> None:
    with SaslRig("PLAIN", tls=True) as rig:
        selector = rig.client("PLAIN")
        rig.connect(selector)
        wait_for_channel_ready(selector)
        message = b"x" * 600_000
        assert rig.exchange(selector, message) == message


def test_a_brokers_message_about_a_refusal_is_one_line_of_bounded_length() -> None:
    with SaslRig("PLAIN", tls=False) as rig:
        rig.server.authenticate_error = (58, "no\r\nlevel=info msg=\x1b[2Jforged " + "x" * 30_000)
        state = rig.connect_and_fail(rig.client("PLAIN"))
        assert state.error is not None
        assert state.error.message.startswith("no  level=info msg= [2Jforged xxx")
        assert state.error.message.isprintable()
        assert len(state.error.message) <= 1_100
