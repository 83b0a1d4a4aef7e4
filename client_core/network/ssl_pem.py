"""Parses PEM certificates and private keys, and writes them to a private file.

    -----BEGIN CERTIFICATE-----  base64  -----END CERTIFICATE-----

Text around the blocks is skipped. Line ends may be anywhere, or be spaces, or the two characters \\n:
settings and environment variables hold a PEM text on one line. Errors name the setting and never show a byte
of the text.

Pure but for `private_file`. Called by SslContexts. Source: DefaultSslEngineFactory.PemStore and PemParser,
Kafka 4.3.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import tempfile
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: One dash may belong to an END and the next BEGIN, so the last ones are a lookahead.
_BEGIN: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)(?=-----)")
_END: Final = re.compile(r"-----END ([A-Z0-9 ]+)(?=-----)")
_DASHES: Final = 5
_LINE_ENDS: Final = re.compile(r"\s+|\\[nr]")
_ONE_LINE_END: Final = re.compile(r"\r\n|[\r\n]|\\r\\n|\\[nr]")
_LINE_CHARS: Final = 64  # RFC 7468, section 2
_CERTIFICATE_LABELS: Final = frozenset({"CERTIFICATE", "X509 CERTIFICATE"})
_ENCRYPTED_LABEL: Final = "ENCRYPTED PRIVATE KEY"


@dataclass(frozen=True, slots=True, repr=False)
class PemBlock:
    """The text between one BEGIN and its END."""

    label: str
    body: str

    @property
    def is_encrypted(self) -> bool:
        """Whether it needs a password: PKCS#8's own label, or OpenSSL's old headers."""
        return self.label == _ENCRYPTED_LABEL or "Proc-Type:" in self.body

    @property
    def text(self) -> str:
        """The block in OpenSSL's format: lines of 64 characters."""
        if ":" in self.body:  # headers need their own lines
            body = "\n".join(map(str.strip, _ONE_LINE_END.split(self.body))).strip("\n")
        else:
            packed = _LINE_ENDS.sub("", self.body)
            body = "\n".join(packed[at : at + _LINE_CHARS] for at in range(0, len(packed), _LINE_CHARS))
        return f"-----BEGIN {self.label}-----\n{body}\n-----END {self.label}-----\n"

    def __repr__(self) -> str:
        return f"<PemBlock {self.label}>"


def certificates(text: str, name: str) -> list[bytes]:
    """Returns the certificates of a text, DER, in their order; at least one. `name` is the setting.

    Raises ConfigError when there is none, or one is cut or not base64. Java ignores one without its END: of a
    file that is still being written, a part of the authorities would count.
    """
    blocks = pem_blocks(text)
    found = [block for block in blocks if block.label in _CERTIFICATE_LABELS]
    begun = sum(begin[1] in _CERTIFICATE_LABELS for begin in _BEGIN.finditer(text))
    if begun > len(found):
        raise ConfigError(f"{name}: one of {begun} certificates has no END; was the text cut?", name=name)
    if not found:
        raise ConfigError(f"{name}: it has no certificate; {_what_there_is(blocks)}", name=name)
    return [
        _der(block, f"{name}: certificate {count} of {len(found)}", name) for count, block in _count(found)
    ]


def private_key(text: str, name: str) -> PemBlock:
    """Returns the only private key of a text. Raises ConfigError when there is none, or more than one."""
    blocks = pem_blocks(text)
    found = [block for block in blocks if block.label.endswith("PRIVATE KEY")]
    if not found:
        raise ConfigError(f"{name}: it has no private key; {_what_there_is(blocks)}", name=name)
    if len(found) > 1:
        raise ConfigError(f"{name}: there are {len(found)} private keys in it, give one", name=name)
    return found[0]


def pem(der: bytes) -> str:
    """Returns a certificate as PEM."""
    return PemBlock("CERTIFICATE", base64.b64encode(der).decode("ascii")).text


@contextmanager
def private_file(text: str) -> Iterator[str]:
    """Yields the path of a temporary file with this text, for OpenSSL, which reads keys from files.

    In memory where the system supports it, otherwise on disk, deleted afterwards. No other user can read
    either. Raises OSError.
    """
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with os.fdopen(os.memfd_create("pem"), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w", encoding="ascii", suffix=".pem") as file:  # mode 0600
            file.write(text)
            file.flush()
            yield file.name


def pem_blocks(text: str) -> list[PemBlock]:
    """Returns the blocks in order: each BEGIN with the first END of its label after it, if there is one.

    Two passes over the text, so that a file of only BEGINs does not block the I/O thread.
    """
    ends: dict[str, list[int]] = {}
    for end in _END.finditer(text):
        ends.setdefault(end[1], []).append(end.start())
    blocks, behind = [], 0
    for begin in _BEGIN.finditer(text):
        label, body_at = begin[1], begin.end() + _DASHES
        of_label = ends.get(label, [])
        place = bisect_left(of_label, body_at)
        if begin.start() >= behind and place < len(of_label):
            end_at = of_label[place]
            blocks.append(PemBlock(label, text[body_at:end_at]))
            behind = end_at + len(f"-----END {label}-----")
    return blocks


def _count(blocks: list[PemBlock]) -> Iterator[tuple[int, PemBlock]]:
    return enumerate(blocks, 1)


def _der(block: PemBlock, where: str, name: str) -> bytes:
    try:
        return base64.b64decode(_LINE_ENDS.sub("", block.body), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where} is not base64; was the text cut?", name=name) from None


def _what_there_is(blocks: list[PemBlock]) -> str:
    if blocks:
        return f"it has: {', '.join(sorted({block.label.lower() for block in blocks}))}"
    return (
        "it must be PEM text, which begins with -----BEGIN ...-----; convert a JKS or PKCS#12 store; give a"
        " path by the setting that ends in .location"
    )
