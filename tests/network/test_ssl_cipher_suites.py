"""Versions and cipher suites: what two settings allow together, and what a context is told. Pure."""

from __future__ import annotations

import ssl

import pytest

from client_core.errors import ConfigError
from client_core.network.ssl_cipher_suites import _OPENSSL_NAMES, tls_choice

BOTH = ("TLSv1.2", "TLSv1.3")
V2, V3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3

GCM_256 = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
CHACHA = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
AES_128 = "TLS_AES_128_GCM_SHA256"


class ContextThatCanRestrict(ssl.SSLContext):
    """A context as newer Pythons have them."""

    tls13: str | None = None

    def set_ciphersuites(self, ciphersuites: str, /) -> None:
        self.tls13 = ciphersuites


def names(context: ssl.SSLContext) -> list[str]:
    return [cipher["name"] for cipher in context.get_ciphers()]


@pytest.mark.parametrize(
    ("protocols", "oldest", "newest"),
    [
        (("TLSv1.2",), V2, V2),
        (("TLSv1.3",), V3, V3),
        (("TLSv1.2", "TLSv1.3"), V2, V3),
        (("TLSv1.3", "TLSv1.2"), V2, V3),
        (("TLSv1.3", "TLSv1.3"), V3, V3),
    ],
)
def test_versions_are_those_that_are_enabled(
    protocols: tuple[str, ...], oldest: ssl.TLSVersion, newest: ssl.TLSVersion
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_choice(protocols, ()).apply(context)
    assert (context.minimum_version, context.maximum_version) == (oldest, newest)


@pytest.mark.parametrize(
    ("protocols", "said"),
    [
        ((), "is empty"),
        (("TLSv1.4",), "'TLSv1.4' is unknown; use TLSv1.2 and TLSv1.3"),
        (("TLSv1.2", "TLSv1.1"), "TLSv1.1 is not spoken"),
        (("SSLv3",), "SSLv3 is not spoken"),
    ],
)
def test_other_versions_are_refused(protocols: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        tls_choice(protocols, ())
    assert caught.value.name == "ssl.enabled.protocols"


def test_without_a_list_openssl_chooses() -> None:
    plain, context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    choice = tls_choice(BOTH, ())
    choice.apply(context)
    assert names(context) == names(plain)
    assert not choice.checked_after_handshake


@pytest.mark.parametrize("name", [GCM_256, "ECDHE-RSA-AES256-GCM-SHA384"])
def test_a_suite_goes_by_its_iana_name_or_by_openssls(name: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_choice(("TLSv1.2",), (name,)).apply(context)
    assert [it for it in names(context) if not it.startswith("TLS_")] == ["ECDHE-RSA-AES256-GCM-SHA384"]


def test_the_order_of_a_list_is_the_order_of_preference() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_choice(("TLSv1.2",), (CHACHA, GCM_256, CHACHA)).apply(context)
    assert [it for it in names(context) if not it.startswith("TLS_")] == [
        "ECDHE-RSA-CHACHA20-POLY1305",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ]


def test_a_version_without_a_suite_is_switched_off_as_in_java() -> None:
    assert (tls_choice(BOTH, (GCM_256,)).oldest, tls_choice(BOTH, (GCM_256,)).newest) == (V2, V2)
    assert (tls_choice(BOTH, (AES_128,)).oldest, tls_choice(BOTH, (AES_128,)).newest) == (V3, V3)
    both = tls_choice(BOTH, (AES_128, GCM_256))
    assert (both.oldest, both.newest) == (V2, V3)


@pytest.mark.parametrize(("protocol", "suite"), [("TLSv1.3", GCM_256), ("TLSv1.2", AES_128)])
def test_a_list_that_leaves_no_version_is_refused(protocol: str, suite: str) -> None:
    with pytest.raises(
        ConfigError, match=f"none of {suite} works with ssl.enabled.protocols={protocol}"
    ) as caught:
        tls_choice((protocol,), (suite,))
    assert caught.value.name == "ssl.cipher.suites"


@pytest.mark.parametrize(
    "name",
    [
        "TLS_UNHEARD_OF",
        "HIGH",  # a word of OpenSSL's own language
        "ADH-AES256-GCM-SHA384",  # nobody proves anything
        "TLS_DH_anon_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_NULL_SHA256",
        f"{GCM_256}:ALL",
        "",
    ],
)
def test_unknown_and_unsafe_suites_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is unknown or not safe") as caught:
        tls_choice(BOTH, (GCM_256, name))
    assert caught.value.name == "ssl.cipher.suites"


def test_suites_of_tls13_are_set_where_python_can() -> None:
    context = ContextThatCanRestrict(ssl.PROTOCOL_TLS_CLIENT)
    tls_choice(BOTH, (AES_128, GCM_256, "TLS_AES_256_GCM_SHA384")).apply(context)
    assert context.tls13 == "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384"


@pytest.mark.skipif(hasattr(ssl.SSLContext, "set_ciphersuites"), reason="this Python can restrict them")
def test_suites_of_tls13_are_left_to_the_transport_where_python_can_not() -> None:
    assert tls_choice(BOTH, (AES_128, GCM_256)).checked_after_handshake == {
        "TLS_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES256-GCM-SHA384",
    }
    assert not tls_choice(BOTH, (GCM_256,)).checked_after_handshake


def test_suites_that_this_openssl_lacks_are_said_to_be_missing() -> None:
    class ContextWithout(ssl.SSLContext):
        def set_ciphers(self, ciphers: str, /) -> None:
            raise ssl.SSLError("No cipher can be selected.")

    with pytest.raises(ConfigError, match=r"OpenSSL .* can use none of them"):
        tls_choice(BOTH, (GCM_256,)).apply(ContextWithout(ssl.PROTOCOL_TLS_CLIENT))


def test_openssl_knows_every_name_of_the_table() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL")
    assert set(_OPENSSL_NAMES.values()) <= set(names(context))
