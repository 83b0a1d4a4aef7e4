"""The tokens file: its format, the errors about wrong entries, and its tokens on the command line."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click import Context
from click.testing import CliRunner

from service.__main__ import main
from service.admission.tokens_file import entry_text, new_token, parse_tokens
from service.base.watched_file import FileFaultError
from service.cli.sidecar import Sidecar as Asking
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

SHA = hashlib.sha256(b"secret").hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


def entry(**members: object) -> str:
    written = {"name": '"billing"', "sha256": f'"{SHA}"', **members}
    lines = [f"{name} = {value}" for name, value in written.items() if value is not None]
    return "\n".join(["[[token]]", *lines, ""])


def fault(text: str | bytes) -> str:
    with pytest.raises(FileFaultError) as refused:
        parse_tokens("/etc/tokens.toml", text.encode() if isinstance(text, str) else text)
    assert str(refused.value).startswith("/etc/tokens.toml")
    return str(refused.value).removeprefix("/etc/tokens.toml")


def test_a_token_is_found_by_its_digest_with_what_it_may() -> None:
    text = entry(read='["orders", "audit-*"]', produce='["*"]', max_waiting_requests=5, max_waiting_bytes=9)
    ((digest, caller),) = parse_tokens("f", text.encode()).items()
    assert digest == hashlib.sha256(b"secret").digest()
    assert (caller.name, caller.max_waiting_requests, caller.max_waiting_bytes) == ("billing", 5, 9)
    allowed = [
        topic for topic in ("orders", "orders2", "audit-", "audit-x", "audit") if caller.read.allow(topic)
    ]
    assert allowed == ["orders", "audit-", "audit-x"]
    assert caller.produce.allow("anything")


def test_what_is_left_out_is_not_allowed_and_not_limited() -> None:
    (caller,) = parse_tokens("f", entry().encode()).values()
    assert not caller.read.allow("orders")
    assert not caller.produce.allow("orders")
    assert (caller.max_waiting_requests, caller.max_waiting_bytes) == (None, None)


def test_a_file_of_an_editor_on_windows_is_read() -> None:
    (caller,) = parse_tokens("f", f"\ufeff{entry()}".replace("\n", "\r\n").encode()).values()
    assert caller.name == "billing"


def test_digits_of_a_hash_may_be_in_capitals() -> None:
    assert list(parse_tokens("f", entry(sha256=f'"{SHA.upper()}"').encode())) == [bytes.fromhex(SHA)]


def test_a_wrong_entry_is_reported_with_its_place_and_a_remedy() -> None:
    for text, said in (
        (entry(raed='["a"]'), ": token 'billing': raed: unknown member; known are name, sha256, read,"),
        (entry(name=None), ": token 1: name: must be given, as a string"),
        (entry(name='"a b"'), ": token 1: name: a name has 1 to 64 letters"),
        (entry(name='"' + "a" * 65 + '"'), ": token 1: name: a name has 1 to 64 letters"),
        (entry(sha256=None), ": token 'billing': sha256: must be given, as a string"),
        (entry(sha256=f'"{SHA[:-1]}"'), ": token 'billing': sha256: must be the 64 hexadecimal digits"),
        (entry(sha256=f'"{SHA[:-1]}g"'), ": token 'billing': sha256: must be the 64 hexadecimal digits"),
        (entry(sha256=f'" {SHA[1:]}"'), ": token 'billing': sha256: must be the 64 hexadecimal digits"),
        (entry(read='"orders"'), ": token 'billing': read: must be a list of strings"),
        (entry(produce="[1]"), ": token 'billing': produce: must be a list of strings"),
        (entry(read='["a*b"]'), ": token 'billing': read: 'a*b' has a star that is not at its end"),
        (entry(read='["**"]'), ": token 'billing': read: '**' has a star that is not at its end"),
        (entry(read='["a", ""]'), ": token 'billing': read: '' can't be a topic's name"),
        (entry(produce='["ä"]'), ": token 'billing': produce: 'ä' can't be a topic's name"),
        (entry(produce='["' + "a" * 250 + '"]'), "can't be a topic's name"),
        (
            entry(max_waiting_bytes=0),
            ": token 'billing': max_waiting_bytes: must be a whole number of at least 1",
        ),
        (
            entry(max_waiting_requests="true"),
            ": token 'billing': max_waiting_requests: must be a whole number",
        ),
        (
            entry(max_waiting_requests="1.5"),
            ": token 'billing': max_waiting_requests: must be a whole number",
        ),
        (entry() + entry(sha256=f'"{OTHER}"'), ": token 'billing': duplicate name"),
        (entry() + entry(name='"audit"'), ": token 'audit': has the same sha256 as 'billing'"),
        ("token = [1]", ": token 1: must be a table"),
        ("[token]\nname = 'a'", " has no [[token]] entries"),
        ("", " has no [[token]] entries; `pilotfish token NAME` prints one"),
        ("[[tokens]]\n", ": tokens: unknown member; there are only [[token]] entries"),
        ("name", " is not TOML: "),
        (entry(name='"a"\nname = "b"'), " is not TOML: "),
        ("a = " + "[" * 50_000, " is not TOML: "),
        (b"\xff", " is not UTF-8"),
    ):
        assert said in fault(text), said


def test_a_token_in_the_place_of_its_hash_is_not_repeated() -> None:
    token = new_token()
    assert token not in fault(entry(sha256=f'"{token}"'))


def test_nobody_is_let_in_by_an_explicit_empty_list() -> None:
    assert parse_tokens("f", b"token = []") == {}


def test_a_new_token_is_random_and_its_entry_is_what_the_file_takes() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 46
    token = tokens.pop()
    text = entry_text("billing", token, ["orders", "a*"], ["*"])
    assert token not in text
    ((digest, caller),) = parse_tokens("f", text.encode()).items()
    assert digest == hashlib.sha256(token.encode()).digest()
    assert (caller.read.names, caller.read.prefixes, caller.produce.prefixes) == (
        frozenset({"orders"}),
        ("a",),
        ("",),
    )
    assert tomllib.loads(entry_text("a", token, [], []))["token"][0]["read"] == []


def test_the_example_of_the_documentation_is_what_the_file_takes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "access.md").read_text()
    (example,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    billing, dashboard = parse_tokens("docs/access.md", example.encode()).values()
    assert billing.read.allow("orders-eu")
    assert (dashboard.produce.allow("orders"), dashboard.max_waiting_bytes) == (False, 1_048_576)


def test_a_file_that_python_s_reader_chokes_on_is_no_toml() -> None:
    """For these it raises errors of other types, which would end the watch over the file."""
    for written in ("9" * 5_000, "[" * 5_000):
        assert "is not TOML" in fault(entry(max_waiting_requests=written)), written[0]


# -- on the command line -------------------------------------------------------------------------------------


# -- making one ----------------------------------------------------------------------------------------------


def test_a_new_token_is_shown_once_beside_the_entry_that_knows_its_hash_alone() -> None:
    made = CliRunner().invoke(main, ["token", "billing", "--read", "a", "--read", "b*", "--produce", "*"])
    assert made.exit_code == 0
    found = re.fullmatch(r"The token of billing, shown only now: (pf_[\w-]{43})\n", made.stderr)
    assert found is not None
    token = found[1].encode()
    assert token not in made.stdout.encode()
    ((digest, caller),) = parse_tokens("f", made.stdout.encode()).items()
    assert digest == hashlib.sha256(token).digest()
    assert (caller.name, caller.read.names, caller.read.prefixes) == ("billing", frozenset({"a"}), ("b",))
    assert caller.produce.allow("anything")


def test_entries_of_several_calls_make_one_file() -> None:
    text = "".join(CliRunner().invoke(main, ["token", name]).stdout for name in ("one", "two"))
    assert [caller.name for caller in parse_tokens("f", text.encode()).values()] == ["one", "two"]


def test_what_would_not_be_taken_is_not_made() -> None:
    for words, said in (
        (("a b",), "a name has 1 to 64 letters"),
        (("a", "--read", "*a"), "'*a' has a star that is not at its end"),
        (("a", "--produce", ""), "'' can't be a topic's name"),
        ((), "Missing argument 'NAME'"),
    ):
        refused = CliRunner().invoke(main, ["token", *words])
        assert (refused.exit_code, refused.stdout) == (2, ""), words
        assert said in refused.stderr, words


# -- showing one ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> TokensFile:
    folder = tmp_path_factory.mktemp("tokens")
    return TokensFile(folder, shop={"read": ["*"]}, writer={"produce": ["*"]}, operator={"read": ["*"]})


@pytest.fixture(scope="module")
def sidecar(tokens: TokensFile) -> Iterator[Sidecar]:
    with EmbeddedCluster(topics=(DEMO_TOPIC,)) as cluster:
        running = Sidecar(
            tokens.path.parent,
            bootstrap_servers=cluster.bootstrap_servers,
            flags=("--tokens-file", tokens.setting),
        )
        running.api.headers.update(tokens.of("operator"))
        with running:
            yield running


def call(sidecar: Sidecar, *words: str, token: str | None = None) -> Result:
    """A command as a shell would call it, with a token in the environment or none."""
    environment = {"PILOTFISH_API_PORT": str(sidecar.api_port), "PILOTFISH_TOKEN": token}
    return CliRunner().invoke(main, words, env=environment)


def test_a_token_from_the_environment_is_shown(sidecar: Sidecar, tokens: TokensFile) -> None:
    shown = call(sidecar, "topic", DEMO_TOPIC, token=tokens.token("shop"))
    assert shown.exit_code == 0, shown.output
    produced = call(sidecar, "produce", DEMO_TOPIC, "x", token=tokens.token("writer"))
    assert produced.exit_code == 0, produced.output


def test_a_token_from_a_file_goes_before_the_environment(
    sidecar: Sidecar, tokens: TokensFile, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text("\ufeff" + tokens.token("shop") + "\n")
    shown = call(sidecar, "topics", "--token-file", str(path), token="wrong")
    assert shown.exit_code == 0, shown.output
    assert DEMO_TOPIC in shown.output


def test_for_an_unknown_token_the_answer_has_the_remedy(sidecar: Sidecar) -> None:
    for token in (None, "wrong"):
        refused = call(sidecar, "topics", token=token)
        assert refused.exit_code == 1, token
        assert "Give one in PILOTFISH_TOKEN, or in a file by --token-file" in refused.stderr, token
        assert "wrong" not in refused.stderr, token


def test_a_right_that_a_token_lacks_is_named_in_kafkas_words(sidecar: Sidecar, tokens: TokensFile) -> None:
    refused = call(sidecar, "produce", DEMO_TOPIC, "x", token=tokens.token("shop"))
    assert refused.exit_code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr


def test_what_is_no_token_is_not_sent_and_not_shown(tmp_path: Path) -> None:
    for text in ("", "two words", "se\ncret", "gehe\u00efm", b"\xff"):
        path = tmp_path / "token"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        refused = CliRunner().invoke(main, ["topics", "--token-file", str(path)])
        assert refused.exit_code == 2, text
        assert f"--token-file {path}: " in refused.stderr, text
        assert not text or "cret" not in refused.stderr, text
        if isinstance(text, str):
            refused = CliRunner().invoke(main, ["topics"], env={"PILOTFISH_TOKEN": text})
            assert (refused.exit_code, "PILOTFISH_TOKEN: is not a token" in refused.stderr) == (2, True), text


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(Asking("localhost", 8085, token="secret"))


def test_a_token_is_refused_on_the_command_line() -> None:
    context = Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert "--token" not in flags, name


# -- a file that is wrong at the start -----------------------------------------------------------------------


def test_a_sidecar_whose_tokens_file_is_wrong_ends_with_2_and_says_why(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    words = ["serve", "--tokens-file", str(path), "--kafka", "bootstrap.servers=localhost:9"]
    ports = ["--api-port", "0", "--admin-port", "0"]
    ended = subprocess.run(
        [sys.executable, "-m", "service", *words, *ports],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "level=error" in line]
    assert f"tokens_file: can't read {path}: No such file or directory; name a file" in line
