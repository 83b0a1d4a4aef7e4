"""Files that others write: settings, tokens, advice, manifests, lines on standard input."""

from __future__ import annotations

import io
import tempfile
from typing import TYPE_CHECKING, Any, Final

from service.admission.tokens_file import entry_text, parse_tokens
from service.base.settings_sources import SettingsError, check_settings, load_settings
from service.base.watched_file import FileFaultError
from service.cli.inject.container import Sidecar
from service.cli.inject.faults import InjectError
from service.cli.inject.manifests import Source, inject, uninject
from service.cli.produce import LineTooLongError, chunks
from service.process.advice_document import AdviceIgnoredError, parse_advice
from tests.fuzz.json_texts import spoilt, tree, written
from tests.fuzz.target import Target
from tests.support.injecting import DEPLOYMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

_TOML_TOKENS: Final = (
    *(b"[[token]]", b"[kafka]", b'"""', b"'''", b"=", b"\\u0000", b"\\ud800", b"9" * 5_000),
    *(b"0x" + b"f" * 5_000, b"inf", b"nan", b"1979-05-27", b"{", b"[", b"a.b.c=1\n", b"\xff"),
    *(b"\xef\xbb\xbf", b"[" * 2_000, b"{a=" * 900),
)
_YAML_TOKENS: Final = (
    *(b"---\n", b"...\n", b"&a ", b"*a", b"<<: *a\n", b"!!str ", b"!x ", b"|\n", b">-\n", b"? ", b"- "),
    *(b"{", b"["),
    *(b"\t", b"#", b'"\\x', b'"\\U11000000"', b"'", b"%YAML 1.9\n", b"%TAG ! x\n", b"\xef\xbb\xbf"),
    b"[" * 300,
    *(b"kind: List\nitems:\n", b"containers:\n", b"initContainers: []\n", b"\r\n", b"\xc2\x85"),
    *(b"\x00", b"~"),
    *(b"\n          env: *env\n", b": ", b"[[[{", b"- - - - ", b"0o777", b"1_000", b"!!binary ="),
)
_ADVICE: Final = {
    "version": 1,
    "advice": [
        {
            "cluster_id": "c",
            "service": "s",
            "warm_topics": ["orders", "a-b"],
            "refresh_max_age_ms": 60_000,
            "computed_at": "2024-01-01T00:00:00Z",
            "ttl_ms": 86_400_000,
        }
    ],
}


def targets() -> Iterator[Target]:
    """All of them."""
    yield Target("tokens file", _tokens, _read_tokens, (FileFaultError,), _TOML_TOKENS)
    yield Target(
        "advice", _advice, _read_advice, (AdviceIgnoredError,), (b"NaN", b"9" * 5_000), _spoilt_advice
    )
    yield Target(
        "settings file",
        _settings,
        _read_settings,
        (SettingsError,),
        _TOML_TOKENS,
        is_reported=False,
        bytes_per_byte=600,
    )
    yield Target(
        "settings by name",
        _values,
        _check_values,
        (SettingsError,),
        (b"9" * 5_000, b"_", b"inf"),
        is_reported=False,
    )
    yield _manifest("manifest, inject", lambda text: inject([text], Sidecar("pilotfish:1", {"A": "b"})))
    yield _manifest("manifest, uninject", lambda text: uninject([text]))
    yield Target("lines of standard input", _lines, _read_lines, (LineTooLongError,))


# -- TOML ----------------------------------------------------------------------------------------------------


def _tokens(random: Random) -> bytes:
    entries = (
        entry_text(f"caller-{n}", str(random.random()), random.choice(([], ["*"], ["a-*", "b"])), ["c"])
        + random.choice(("", "max_waiting_requests = 5\n"))
        for n in range(random.choice((1, 2)))
    )
    return "\n".join(entries).encode()


def _read_tokens(data: bytes) -> object:
    return parse_tokens("tokens.toml", data)


def _settings(random: Random) -> bytes:
    lines = [
        "api_port = 8090",
        'log_level = "info"',
        "max_waiting_bytes = 1_000_000",
        'allowed_hosts = ["a"]',
    ]
    lines = random.sample(lines, 2)
    return "\n".join([*lines, "[kafka]", 'bootstrap.servers = "a:9092"', '"linger.ms" = 5']).encode()


def _read_settings(data: bytes) -> object:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        return load_settings({}, config_file=file.name)


def _values(random: Random) -> bytes:
    lines = ("api_port=8085", "drain_delay_ms=5", "access_log=yes", "max_body_bytes=9", "log_format=json")
    return "\n".join(random.sample(lines, 3)).encode()


def _check_values(data: bytes) -> object:
    pairs = (line.partition("=") for line in data.decode(errors="surrogateescape").split("\n"))
    own: dict[str, Any] = {name: value for name, _, value in pairs}
    return check_settings(own, {"bootstrap.servers": "a:9092"})


# -- JSON, lines ---------------------------------------------------------------------------------------------


def _advice(random: Random) -> bytes:
    return written(tree(_ADVICE), random)


def _spoilt_advice(random: Random) -> bytes:
    return written(spoilt(tree(_ADVICE), random), random)


def _read_advice(data: bytes) -> None:
    for advice in parse_advice(data, "s").values():
        advice.check_age(1_704_067_200_000)


def _lines(random: Random) -> bytes:
    return b"\n".join(
        random.randbytes(random.choice((0, 1, 40))) for _ in range(random.choice((1, 3, 2_000)))
    )


def _read_lines(data: bytes) -> None:
    read = [line for chunk in chunks(io.BytesIO(data)) for line in chunk.lines]
    assert sum(map(len, read)) <= len(data)


# -- YAML ----------------------------------------------------------------------------------------------------

_OTHER_MANIFESTS: Final = (
    DEPLOYMENT,
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n",
    "a: &a [1]\nb: *a\n---\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: c\ndata:\n  k: |\n    v\n",
    '{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod", "apiVersion": "v1", "metadata": '
    '{"name": "x"}, "spec": {"containers": [{"name": "a"}]}}]}',
)


def _manifest(name: str, change: Callable[[Source], object]) -> Target:
    def make(random: Random) -> bytes:
        return "---\n".join(random.sample(_OTHER_MANIFESTS, random.choice((1, 1, 2)))).encode()

    def read(data: bytes) -> object:
        return change(Source("m.yaml", data.decode(errors="replace")))

    # A node of YAML is an object that knows its place, and ruamel keeps its own events beside it.
    return Target(
        name,
        make,
        read,
        (InjectError,),
        _YAML_TOKENS,
        is_reported=False,
        bytes_per_byte=4_000,
        bytes_at_least=2_000_000,
    )
