"""SslContexts: contexts made of settings, errors about unusable settings, and files that change.

The behaviour of such a context on a connection is in test_ssl_handshake.py and test_ssl_connections.py.
"""

from __future__ import annotations

import errno
import logging
import os
import ssl
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from client_core.errors import ConfigError
from client_core.events import CertificateLoaded, SecretReloaded
from client_core.network.certificate_expiry import certificate_expires_at_s
from client_core.network.secret import SecretSource
from client_core.network.security_config import SslConfig
from client_core.network.ssl_context import SslContexts
from client_core.network.ssl_transport_layer import SslTransportLayer
from tests.network.tls_clients import chain, key, key_password, shake_hands, ssl_config
from tests.support.certificates import Authority, weak
from tests.support.counted_work import open_descriptors
from tests.support.recorded_events import RecordedEvents
from tests.support.tls_peers import TlsPipe, server_context

if TYPE_CHECKING:
    from pathlib import Path


AUTHORITY = Authority()
STRANGER = Authority()
BROKER = AUTHORITY.issue("localhost")
CLIENT = AUTHORITY.issue("client")
OTHER = AUTHORITY.issue("other-client")
RSA_CLIENT = AUTHORITY.issue("client", is_rsa=True)
PASSWORD = "correct horse"

LEFT_OUT: Final = {
    "SslTransportLayerTest.InvalidTruststorePassword": "Only PEM is read: a truststore has no password.",
    "SslTransportLayerTest.InvalidKeystorePassword": "Only PEM is read: a keystore has no password itself.",
    "SslTransportLayerTest.NullTruststorePassword": "Only PEM is read: a truststore never has a password.",
}


def identified(key_text: str, chain_text: str, password: str | None = None) -> SslConfig:
    return replace(
        ssl_config(AUTHORITY.certificate),
        key=key(key_text),
        certificate_chain=chain(chain_text),
        key_password=None if password is None else key_password(password),
    )


def complaint(config: SslConfig) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        SslContexts(config)
    return caught.value


def certificate_shown(contexts: SslContexts) -> bytes | None:
    """The client certificate that a broker sees on a new connection, DER."""
    pipe = TlsPipe(server_context(BROKER, client_auth="required", trusts=AUTHORITY.certificate))
    transport = SslTransportLayer(pipe, contexts.context(), "localhost")
    transport.finish_connect()
    shake_hands(transport)
    return pipe.client_certificate


@pytest.mark.behaviour("SSL-02")
def test_the_chain_is_verified_even_if_the_name_is_not_which_it_is_by_default() -> None:
    for config, verifies_names in ((SslConfig(), True), (SslConfig(verify_host_name=False), False)):
        context = SslContexts(config).context()
        assert context.check_hostname is verifies_names
        assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.behaviour("SSL-04")
def test_renegotiation_and_compression_are_off() -> None:
    options = SslContexts(SslConfig()).context().options
    assert options & ssl.OP_NO_RENEGOTIATION
    assert options & ssl.OP_NO_COMPRESSION


def test_a_truststore_replaces_the_systems_authorities(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle = tmp_path / "system.pem"
    systems, ours = STRANGER.certificate, AUTHORITY.certificate
    bundle.write_text(systems)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    for config, authority in ((SslConfig(), systems), (ssl_config(ours), ours)):
        (trusted,) = SslContexts(config).context().get_ca_certs(binary_form=True)
        assert trusted == ssl.PEM_cert_to_DER_cert(authority)


def test_all_authorities_of_a_truststore_are_trusted_also_if_one_is_a_duplicate() -> None:
    text = AUTHORITY.certificate + STRANGER.certificate + AUTHORITY.certificate
    contexts = SslContexts(ssl_config(text, CLIENT))
    assert len(contexts.context().get_ca_certs()) == 2
    assert contexts.context() is contexts.context(), "while nothing changes"


def test_keys_are_read_in_every_form() -> None:
    encrypted = CLIENT.key_encrypted_with(PASSWORD)
    traditional = CLIENT.key_encrypted_with(PASSWORD, traditional=True)
    forms: dict[str, tuple[str, str | None]] = {
        "plain": (CLIENT.key, None),
        "password unused": (CLIENT.key, PASSWORD),  # one too many does no harm
        "traditional": (CLIENT.traditional_key, None),
        "encrypted": (encrypted, PASSWORD),
        "encrypted traditional": (traditional, PASSWORD),
        "on one line": (encrypted.replace("\n", " "), PASSWORD),
        **{
            f"encrypted traditional, lines end with {end!r}": (traditional.replace("\n", end), PASSWORD)
            for end in ("\r\n", "\r", "\n    ", r"\n", r"\r\n")
        },
    }
    for form, (key_text, password) in forms.items():
        shown = certificate_shown(SslContexts(identified(key_text, CLIENT.chain, password)))
        assert shown == CLIENT.der, form
    assert certificate_shown(SslContexts(identified(RSA_CLIENT.key, RSA_CLIENT.chain))) == RSA_CLIENT.der


def test_key_and_chain_may_be_one_file_which_is_read_once(tmp_path: Path) -> None:
    keystore = tmp_path / "keystore.pem"
    keystore.write_text(CLIENT.key + CLIENT.chain)
    source = SecretSource("ssl.keystore.location", path=str(keystore))
    events = RecordedEvents()
    contexts = SslContexts(
        replace(ssl_config(AUTHORITY.certificate), key=source, certificate_chain=source), events
    )
    assert certificate_shown(contexts) == CLIENT.der
    write(keystore, OTHER.key + OTHER.chain)
    assert certificate_shown(contexts) == OTHER.der
    assert events.of(SecretReloaded) == [SecretReloaded("ssl.keystore.location", None)]


def test_it_is_known_when_our_certificate_expires() -> None:
    assert SslContexts(ssl_config(None)).certificate_expires_at_s is None
    contexts = SslContexts(identified(CLIENT.key, CLIENT.chain + AUTHORITY.certificate))
    assert contexts.certificate_expires_at_s == certificate_expires_at_s(CLIENT.der)


def test_nothing_is_left_behind_by_reading_keys() -> None:
    before = open_descriptors()
    SslContexts(identified(CLIENT.key, CLIENT.chain))
    complaint(identified(CLIENT.key, OTHER.chain))
    assert open_descriptors() <= before


def test_a_key_without_a_certificate_is_refused_and_the_other_way_round() -> None:
    config = replace(ssl_config(None), key=key(CLIENT.key))
    error = complaint(config)
    assert error.message == (
        "ssl.keystore.key: a private key needs its certificate; give ssl.keystore.certificate.chain too"
    )
    assert error.name == "ssl.keystore.key"
    error = complaint(replace(ssl_config(None), certificate_chain=chain(CLIENT.chain)))
    assert error.message.startswith("ssl.keystore.certificate.chain: a certificate needs its private key")


@pytest.mark.java("SslTransportLayerTest.InvalidKeyPassword")
def test_a_wrong_key_password_is_distinguished_from_a_missing_one() -> None:
    opens = "it does not open ssl.keystore.key; the password is wrong, or the key damaged"
    for traditional in (False, True):
        encrypted = CLIENT.key_encrypted_with(PASSWORD, traditional=traditional)
        assert complaint(identified(encrypted, CLIENT.chain)).message == (
            "ssl.keystore.key: the private key is encrypted; give ssl.key.password"
        )
        for password in ("invalid", "x", "ä" * 400):
            error = complaint(identified(encrypted, CLIENT.chain, password))
            assert (error.name, error.message) == ("ssl.key.password", f"ssl.key.password: {opens}")
            from_a_file = SecretSource("ssl.key.password.file", text=password)
            error = complaint(replace(identified(encrypted, CLIENT.chain), key_password=from_a_file))
            assert error.message.startswith("ssl.key.password.file: it does not open ssl.keystore.key")


def test_a_password_beyond_openssls_buffer_or_that_is_no_text_is_refused() -> None:
    """An environment variable may hold any bytes."""
    error = complaint(identified(CLIENT.key, CLIENT.chain, "x" * 1024))
    assert error.message == "ssl.key.password: it must be shorter than 1024 bytes"
    error = complaint(identified(CLIENT.key_encrypted_with(PASSWORD), CLIENT.chain, "\udcff secret"))
    assert error.message == "ssl.key.password is not Unicode text"


def test_a_key_of_another_pair_is_refused() -> None:
    for other in (OTHER, RSA_CLIENT):  # of its kind, and of another kind
        error = complaint(identified(CLIENT.key, other.chain))
        assert error.message == (
            "ssl.keystore.key: the private key does not belong to the first certificate of"
            " ssl.keystore.certificate.chain, which must be our own"
        )


def test_a_damaged_key_is_refused_and_one_with_a_character_that_no_pem_has() -> None:
    begin, body, end = CLIENT.key.partition("\n")
    foreign = [CLIENT.key.replace("-----END", f"{it}-----END") for it in ("\u00e9", "\u201c", "\udcff")]
    for text in (begin + body + "MIGH" * 20 + end[60:], *foreign):
        error = complaint(identified(text, CLIENT.chain))
        assert error.message == "ssl.keystore.key: the private key can't be read: it is damaged; replace it"


def test_a_damaged_certificate_is_reported_with_its_place() -> None:
    cut = "\n".join([*CLIENT.chain.splitlines()[:3], "-----END CERTIFICATE-----", ""])
    error = complaint(ssl_config(AUTHORITY.certificate + cut))
    assert error.message == (
        "ssl.truststore.certificates: certificate 2 of 2 can't be read: it is damaged; replace it"
    )
    error = complaint(identified(CLIENT.key, CLIENT.chain + cut))
    assert "ssl.keystore.certificate.chain: certificate 2 of 2 can't be read" in error.message


def test_a_java_store_is_distinguished_from_a_broken_file(tmp_path: Path) -> None:
    store = tmp_path / "truststore.jks"
    config = replace(ssl_config(None), truststore=SecretSource("ssl.truststore.location", path=str(store)))
    for beginning, kind in (
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02", "a JKS store"),
        (b"\x30\x82\x0a\x3c\x02\x01\x03\xff", "a PKCS#12 store or a DER file"),
    ):
        store.write_bytes(beginning)
        said = f"ssl.truststore.location: {store} is {kind}; convert it to PEM (keytool "
        assert complaint(config).message.startswith(said)
    store.write_bytes(b"\xff\xfe")
    assert complaint(config).message == "ssl.truststore.location: the file is not UTF-8"
    store.unlink()
    assert "no such file" in complaint(config).message
    os.mkfifo(store)
    assert complaint(config).message == f"ssl.truststore.location: {store} is not a file"
    config = replace(config, truststore=SecretSource("ssl.truststore.location", path="a\0b"))
    assert complaint(config).message == "ssl.truststore.location: embedded null byte"


def test_a_weak_certificate_is_refused_in_openssls_words() -> None:
    identity = weak("client")
    error = complaint(identified(identity.key, identity.chain))
    assert error.message == (
        "ssl.keystore.certificate.chain: OpenSSL rejects our certificate: ee key too small"
    )


def test_no_complaint_shows_a_secret() -> None:
    for config in (
        identified(CLIENT.key_encrypted_with(PASSWORD), CLIENT.chain, "a wrong password"),
        identified(CLIENT.key, OTHER.chain),
        identified(CLIENT.key + OTHER.key, CLIENT.chain),
        identified(CLIENT.key, "no certificate"),
        identified("no key", CLIENT.chain),
    ):
        error: BaseException | None = complaint(config)
        while error is not None:
            said = repr(error) + str(error)
            assert CLIENT.key.splitlines()[1] not in said
            assert "a wrong password" not in said
            error = error.__cause__
    contexts = SslContexts(identified(CLIENT.key_encrypted_with(PASSWORD), CLIENT.chain, PASSWORD))
    shown = repr(contexts) + repr(contexts._in_force) + repr(contexts._in_force._made_of)
    assert PASSWORD not in shown
    assert "-----BEGIN" not in shown


def write(path: Path, text: str) -> None:
    """Replaces a file as a kubelet does: another one in its place."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


class Files:
    """Key, chain and truststore as three files."""

    def __init__(self, folder: Path) -> None:
        self.key, self.chain, self.truststore = (folder / name for name in ("key", "chain", "truststore"))
        self.key.write_text(CLIENT.key)
        self.chain.write_text(CLIENT.chain)
        self.truststore.write_text(AUTHORITY.certificate)
        self.config = SslConfig(
            truststore=SecretSource("ssl.truststore.location", path=str(self.truststore)),
            key=SecretSource("ssl.keystore.key", path=str(self.key)),
            certificate_chain=SecretSource("ssl.keystore.certificate.chain", path=str(self.chain)),
        )


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_the_next_connection_has_the_certificate_that_lies_there_now(files: Files) -> None:
    events = RecordedEvents()
    contexts = SslContexts(files.config, events)
    before = contexts.context()
    assert certificate_shown(contexts) == CLIENT.der
    write(files.key, RSA_CLIENT.key)
    write(files.chain, RSA_CLIENT.chain)
    assert certificate_shown(contexts) == RSA_CLIENT.der
    assert contexts.context() is not before
    assert contexts.context() is contexts.context()
    assert contexts.certificate_expires_at_s == certificate_expires_at_s(RSA_CLIENT.der)
    assert events.of(SecretReloaded) == [
        SecretReloaded("ssl.keystore.key", None),
        SecretReloaded("ssl.keystore.certificate.chain", None),
    ]


def test_a_truststore_that_changes_is_trusted_from_then_on(files: Files) -> None:
    contexts = SslContexts(files.config)
    write(files.truststore, STRANGER.certificate)
    (trusted,) = contexts.context().get_ca_certs(binary_form=True)
    assert trusted == ssl.PEM_cert_to_DER_cert(STRANGER.certificate)


def test_a_truststore_of_which_a_part_is_written_leaves_the_old_one_in_force(files: Files) -> None:
    write(files.truststore, AUTHORITY.certificate + STRANGER.certificate)
    events = RecordedEvents()
    contexts = SslContexts(files.config, events)
    both = contexts.context()
    write(files.truststore, AUTHORITY.certificate + STRANGER.certificate[:200])
    assert contexts.context() is both
    failure = "ssl.truststore.location: one of 2 certificates has no END; was the text cut?"
    assert events.of(SecretReloaded)[-1] == SecretReloaded("ssl.truststore.location", failure)


def test_a_broken_certificate_leaves_the_old_one_in_force_and_is_complained_of_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    events = RecordedEvents()
    contexts = SslContexts(files.config, events)
    write(files.chain, "-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    for _ in range(3):
        assert certificate_shown(contexts) == CLIENT.der
    failure = "certificate 1 of 1 is not base64; was the text cut?"
    assert events.of(SecretReloaded) == [
        SecretReloaded("ssl.keystore.certificate.chain", None),
        SecretReloaded("ssl.keystore.certificate.chain", f"ssl.keystore.certificate.chain: {failure}"),
    ]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        f"ssl.keystore.certificate.chain: {failure}; the earlier value stays in use",
    ]


def test_a_key_and_a_certificate_that_are_replaced_one_after_the_other_are_used_together(
    files: Files,
) -> None:
    events = RecordedEvents()
    SslContexts(ssl_config(None), events)
    assert events.of(CertificateLoaded) == []
    contexts = SslContexts(files.config, events)
    first, second = (CertificateLoaded(certificate_expires_at_s(it.der)) for it in (CLIENT, RSA_CLIENT))
    assert events.of(CertificateLoaded) == [first]
    write(files.key, RSA_CLIENT.key)
    assert certificate_shown(contexts) == CLIENT.der  # the new certificate is still to come
    assert events.of(CertificateLoaded) == [first]
    write(files.chain, RSA_CLIENT.chain)
    assert certificate_shown(contexts) == RSA_CLIENT.der
    assert events.of(CertificateLoaded) == [first, second]
    assert [(event.name, event.failure is None) for event in events.of(SecretReloaded)] == [
        ("ssl.keystore.key", True),
        ("ssl.keystore.key", False),
        ("ssl.keystore.certificate.chain", True),
    ]


def test_a_file_that_is_gone_or_is_no_pem_any_more_leaves_the_old_certificate_in_force(files: Files) -> None:
    events = RecordedEvents()
    contexts = SslContexts(files.config, events)
    files.key.unlink()
    assert certificate_shown(contexts) == CLIENT.der
    (event,) = events.of(SecretReloaded)
    assert event.name == "ssl.keystore.key"
    assert event.failure is not None
    write(files.key, CLIENT.key.replace("-----END", "\u00e9-----END"))
    assert certificate_shown(contexts) == CLIENT.der


def test_a_text_that_returns_to_what_it_was_makes_no_new_context(files: Files) -> None:
    contexts = SslContexts(files.config)
    before = contexts.context()
    write(files.key, OTHER.key)
    assert contexts.context() is before
    write(files.key, CLIENT.key)
    assert contexts.context() is before


def test_a_damaged_certificate_of_our_own_chain_is_reported_with_its_place() -> None:
    der = ssl.PEM_cert_to_DER_cert(AUTHORITY.certificate)
    signature_at = der.rindex(b"\x03")
    while True:
        damaged = der[:signature_at] + b"\x07" + der[signature_at + 1 :]
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=damaged)
        except ssl.SSLError:
            break
        signature_at = der.rindex(b"\x03", 0, signature_at)
    assert certificate_expires_at_s(damaged) == certificate_expires_at_s(der)
    error = complaint(identified(CLIENT.key, CLIENT.chain + ssl.DER_cert_to_PEM_cert(damaged)))
    count = CLIENT.chain.count("BEGIN") + 1
    where = f"ssl.keystore.certificate.chain: certificate {count} of {count}"
    assert error.message == f"{where} can't be read: it is damaged; replace it"


def test_a_key_that_can_not_be_handed_over_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor(_: str) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", no_descriptor)
    error = complaint(identified(CLIENT.key, CLIENT.chain))
    assert error.message == "ssl.keystore.key: can't pass it to OpenSSL: Too many open files"
