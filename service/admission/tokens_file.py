"""Parses the file with the callers' tokens, and makes new tokens.

    [[token]]
    name = "billing"                    the caller's name in logs and answers; not secret
    sha256 = "9f86d0…"                  64 hexadecimal digits: SHA-256 of the token's bytes
    read = ["orders", "billing-*"]      topics that it may look up: names, prefixes, or "*"; none if left out
    produce = ["billing-*"]             topics that it may produce to, in the same form
    max_waiting_requests = 100          optional: its own limits, below those of the sidecar
    max_waiting_bytes = 1048576

A fast hash without salt is right for these tokens, and would be wrong for passwords. Slow, salted hashes make
each guess expensive, because people choose guessable passwords. A token has 32 random bytes, which nobody
guesses. Each request pays for the hash, so a slow one would let strangers keep the sidecar busy.

The file is accepted as a whole or not at all. No message repeats the value of `sha256`: it may be the token
itself, put there by mistake. Pure, except for `new_token`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from service.admission.caller import Caller, TopicRules
from service.base.topic_names import MAX_LENGTH
from service.base.watched_file import FileFaultError

#: Callers by the digest of their token.
Tokens = Mapping[bytes, Caller]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
_PATTERN: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_LENGTH}}}\*?|\*")

_REQUIRED: Final = ("name", "sha256")
_PATTERNS: Final = ("read", "produce")
_LIMITS: Final = ("max_waiting_requests", "max_waiting_bytes")
_MEMBERS: Final = (*_REQUIRED, *_PATTERNS, *_LIMITS)

#: Scanners for leaked secrets can recognise a token by this prefix.
_PREFIX: Final = "pf_"
_RANDOM_BYTES: Final = 32


def digest_of(token: bytes) -> bytes:
    """Returns the SHA-256 of a token. The token itself is not kept."""
    return hashlib.sha256(token).digest()


#: The digests that a shell computes from an unset variable, by printf or by echo.
_OF_NOTHING: Final = frozenset(digest_of(nothing) for nothing in (b"", b"\n"))


def new_token() -> str:
    """Returns a new random token."""
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def fault_of_name(name: str) -> str | None:
    """Returns what is wrong with a caller's name, or None if it is valid."""
    if _NAME.fullmatch(name):
        return None
    return "a name has 1 to 64 letters, digits, '.', '_' and '-'"


def fault_of_pattern(pattern: str) -> str | None:
    """Returns what is wrong with a topic pattern, or None if it is valid."""
    if _PATTERN.fullmatch(pattern):
        return None
    if "*" in pattern[:-1]:
        return f"{pattern!r} has a star that is not at its end; only 'prefix*' and '*' are patterns"
    return f"{pattern!r} can't be a topic's name; use letters, digits, '.', '_' and '-', and '*' at the end"


def entry_text(name: str, token: str, read: Sequence[str], produce: Sequence[str]) -> str:
    """Returns a token's entry for the file. Names and patterns must have been checked."""
    lines = [
        "[[token]]",
        f'name = "{name}"',
        f'sha256 = "{digest_of(token.encode()).hex()}"',
        # Checked patterns are plain ASCII, so that the list is the same in TOML as in JSON.
        f"read = {json.dumps(list(read))}",
        f"produce = {json.dumps(list(produce))}",
    ]
    return "\n".join(lines) + "\n"


def parse_tokens(path: str | Path, content: bytes) -> Tokens:
    """Returns the callers in the file. Raises FileFaultError with file, entry and remedy."""
    entries = _entries(path, content)
    tokens: dict[bytes, Caller] = {}
    names: set[str] = set()
    for number, entry in enumerate(entries, 1):
        place = f"{path}: {_entry_name(entry, number)}"
        fault = next(_faults(entry), None)
        if fault is not None:
            raise FileFaultError(f"{place}: {fault}")
        caller, digest = _caller(entry), bytes.fromhex(entry["sha256"])
        if caller.name in names:
            raise FileFaultError(f"{place}: duplicate name; give each token its own name")
        if digest in tokens:
            other = tokens[digest].name
            raise FileFaultError(f"{place}: has the same sha256 as {other!r}; give each its own token")
        names.add(caller.name)
        tokens[digest] = caller
    return tokens


def _entries(path: str | Path, content: bytes) -> list[Any]:
    try:
        document = tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        raise FileFaultError(f"{path} is not UTF-8; save it as UTF-8") from e
    except (ValueError, RecursionError) as e:  # not only TOMLDecodeError: a number of thousands of digits
        raise FileFaultError(f"{path} is not TOML: {e}; `pilotfish token NAME` prints an entry") from e
    unknown = [member for member in document if member != "token"]
    if unknown:
        raise FileFaultError(f"{path}: {unknown[0]}: unknown member; there are only [[token]] entries")
    entries = document.get("token")
    if not isinstance(entries, list):
        # A failed write leaves an empty file, which must not lock everybody out.
        detail = (
            "has no [[token]] entries; `pilotfish token NAME` prints one, and `token = []` admits no caller"
        )
        raise FileFaultError(f"{path} {detail}")
    return entries


def _entry_name(entry: object, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"token {name!r}" if isinstance(name, str) and fault_of_name(name) is None else f"token {number}"


def _faults(entry: object) -> Iterator[str]:
    """Yields what is wrong with an entry. Later checks rely on the earlier ones."""
    if not isinstance(entry, dict):
        yield "must be a table; write [[token]] above its members"
        return
    for member in entry:
        if member not in _MEMBERS:
            yield f"{member}: unknown member; known are {', '.join(_MEMBERS)}"
    for member in _REQUIRED:
        if not isinstance(entry.get(member), str):
            yield f"{member}: must be given, as a string"
    if (fault := fault_of_name(entry["name"])) is not None:
        yield f"name: {fault}"
    if not _SHA256.fullmatch(entry["sha256"]):
        yield "sha256: must be the 64 hexadecimal digits that `pilotfish token` prints, not the token itself"
    elif bytes.fromhex(entry["sha256"]) in _OF_NOTHING:
        yield "sha256: is the hash of an empty token; was the variable with the token unset?"
    for member in _PATTERNS:
        yield from _faults_of_patterns(member, entry.get(member, []))
    for member in _LIMITS:
        limit = entry.get(member, 1)
        if type(limit) is not int or limit < 1:  # true is an int to Python
            yield f"{member}: must be a whole number of at least 1; omit it for no limit of its own"


def _faults_of_patterns(member: str, patterns: object) -> Iterator[str]:
    if not isinstance(patterns, list):
        yield f"{member}: must be a list of strings, such as ['orders', 'billing-*']"
        return
    for pattern in patterns:
        if not isinstance(pattern, str):
            yield f"{member}: must be a list of strings, such as ['orders', 'billing-*']"
        elif (fault := fault_of_pattern(pattern)) is not None:
            yield f"{member}: {fault}"


def _caller(entry: Mapping[str, Any]) -> Caller:
    return Caller(
        entry["name"],
        TopicRules.of(entry.get("read", ())),
        TopicRules.of(entry.get("produce", ())),
        entry.get("max_waiting_requests"),
        entry.get("max_waiting_bytes"),
    )
