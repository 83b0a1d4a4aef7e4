"""Tokens on the command line: making one, showing one, and a sidecar whose file is wrong."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click import Context
from click.testing import CliRunner

from service.__main__ import main
from service.admission.tokens_file import parse_tokens
from service.cli.sidecar import Sidecar as Asking
from service.process.embedded import DEMO_TOPIC, EmbeddedCluster
from tests.support.sidecar import Sidecar
from tests.support.tokens import TokensFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result


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
        (("a", "--produce", ""), "'' can be no topic's name"),
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
    path.write_text(tokens.token("shop") + "\n")
    shown = call(sidecar, "topics", "--token-file", str(path), token="wrong")
    assert shown.exit_code == 0, shown.output
    assert DEMO_TOPIC in shown.output


def test_without_a_token_that_is_known_the_remedy_is_told(sidecar: Sidecar) -> None:
    for token in (None, "wrong"):
        refused = call(sidecar, "topics", token=token)
        assert refused.exit_code == 1, token
        assert "Give one in PILOTFISH_TOKEN, or in a file by --token-file" in refused.stderr, token
        assert "wrong" not in refused.stderr, token


def test_what_a_token_does_not_allow_is_told_in_kafkas_words(sidecar: Sidecar, tokens: TokensFile) -> None:
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
            assert (refused.exit_code, "PILOTFISH_TOKEN: is no token" in refused.stderr) == (2, True), text


def test_a_token_is_in_no_repr() -> None:
    assert "secret" not in repr(Asking("localhost", 8085, token="secret"))


def test_a_token_cannot_stand_on_the_command_line() -> None:
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
