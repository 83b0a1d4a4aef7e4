"""The tokens file: what it may say, and how it is told what it may not."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from service.admission.tokens_file import entry_text, new_token, parse_tokens
from service.base.watched_file import FileFaultError

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


def test_digits_of_a_hash_may_be_in_capitals() -> None:
    assert list(parse_tokens("f", entry(sha256=f'"{SHA.upper()}"').encode())) == [bytes.fromhex(SHA)]


def test_what_is_not_right_is_told_with_its_place_and_a_remedy() -> None:
    for text, said in (
        (entry(raed='["a"]'), ": token 'billing': raed: unknown member; there are name, sha256, read,"),
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
        (entry(read='["a", ""]'), ": token 'billing': read: '' can be no topic's name"),
        (entry(produce='["ä"]'), ": token 'billing': produce: 'ä' can be no topic's name"),
        (entry(produce='["' + "a" * 250 + '"]'), "can be no topic's name"),
        (
            entry(max_waiting_bytes=0),
            ": token 'billing': max_waiting_bytes: must be a whole number, at least 1",
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
        (entry() + entry(name='"audit"'), ": token 'audit': its sha256 is also that of 'billing'"),
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


def test_a_token_that_stands_where_its_hash_belongs_is_not_repeated() -> None:
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
    """It raises errors of other kinds for these, which would end the watch over the file."""
    for written in ("9" * 5_000, "[" * 5_000):
        assert "is not TOML" in fault(entry(max_waiting_requests=written)), written[0]
