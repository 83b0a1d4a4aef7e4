"""Parses `sasl.jaas.config`: the login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret";

Tokens are those of Java's StreamTokenizer: words, quoted strings with escapes, numbers (invalid as options),
Java and shell comments. The text holds secrets, and a missing quote turns half a password into a word. So
errors show only known options and modules, else the position. Java shows the word.

Pure. Called by `sasl_credentials.py`. Source: JaasConfig, JaasContext, Kafka 4.3; java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from client_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The setting, for errors.
JAAS_CONFIG: Final = "sasl.jaas.config"

_TOKEN: Final = re.compile(
    r"""
    (?P<space>   [\x00-\x20]+ | //[^\r\n]* | /\*.*?(?:\*/|\Z) | /[^\r\n]* )
  | (?P<number>  -?(?:[0-9]+\.?[0-9]*|\.[0-9]+) )
  | (?P<word>    [A-Za-z_$\u00a0-\U0010ffff][\w.$\u00a0-\U0010ffff-]* )
  | "(?P<double> (?:\\[\s\S]|[^"\\\r\n])* )(?:"|(?=[\r\n])|\Z)
  | '(?P<single> (?:\\[\s\S]|[^'\\\r\n])* )(?:'|(?=[\r\n])|\Z)
  | (?P<mark>    [\s\S] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|[\s\S])")
_ESCAPED: Final = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

#: Parts of an invalid text that errors may show: Kafka's own options and modules.
_KNOWN_OPTION: Final = re.compile(
    r"username|password|tokenauth|clientId|clientSecret|scope|unsecuredLogin\w*|extension_[A-Za-z]+"
)
_MODULE_NAME: Final = re.compile(r"[A-Za-z_$][\w$.]*LoginModule")


@dataclass(frozen=True, slots=True)
class _Token:
    """A word or a quoted string has `text`; a number has none and no mark; a mark is one character."""

    at: int
    text: str | None = None
    mark: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class JaasConfig:
    """One login module with its options, which hold secrets."""

    login_module: str
    options: Mapping[str, str]

    @staticmethod
    def parse(text: str) -> JaasConfig:
        """Raises ConfigError, which shows no possible secret."""
        tokens = _tokens(text)
        entries = []
        while (first := next(tokens, None)) is not None:
            entries.append(_entry(first, tokens))
        if not entries:
            raise _wrong("Login module not specified in JAAS config")
        if len(entries) != 1:
            raise _wrong(f"JAAS config property contains {len(entries)} login modules, should be 1 module")
        return entries[0]

    @property
    def module_name(self) -> str:
        """The last part of the module's name: Java's packages are ignored."""
        return self.login_module.rpartition(".")[2]

    @property
    def shown_module(self) -> str:
        """The module for an error message, or a placeholder if it may be a secret."""
        return self.login_module if _MODULE_NAME.fullmatch(self.login_module) else "something else"

    def __repr__(self) -> str:
        return f"<JaasConfig {self.shown_module}>"


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        at = found.start() + 1
        match found.lastgroup:
            case "space":
                continue
            case "number":
                yield _Token(at)
            case "word":
                yield _Token(at, found["word"])
            case "double" | "single" as kind:
                yield _Token(at, _unescaped(found[kind]))
            case _:
                yield _Token(at, mark=found["mark"])


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        escape = found[1]
        return chr(int(escape, 8)) if escape[0] in "01234567" else _ESCAPED.get(escape, escape)

    return _ESCAPE.sub(character, text)


def _entry(module: _Token, tokens: Iterator[_Token]) -> JaasConfig:
    """Parses `module flag key=value ...;`"""
    if module.text is None:
        raise _wrong(f"Login module not specified in JAAS config (character {module.at})")
    flag = next(tokens, None)
    if flag is None:
        raise _wrong("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise _wrong("Login module control flag is not available in the JAAS config")
    if flag.text.lower() not in _CONTROL_FLAGS:
        raise _wrong(
            f"Invalid login module control flag in JAAS config (character {flag.at}):"
            " write `required` after the module's name"
        )
    options: dict[str, str] = {}
    for key in tokens:
        if key.mark == ";":
            return JaasConfig(module.text, options)
        equals, value = next(tokens, None), next(tokens, None)
        if key.text is None or equals is None or equals.mark != "=" or value is None or value.text is None:
            raise _without_value(key)
        options[key.text] = value.text
    raise _wrong("JAAS config entry not terminated by semi-colon")


def _without_value(key: _Token) -> ConfigError:
    known = key.text is not None and _KNOWN_OPTION.fullmatch(key.text)
    which = f"key '{key.text}'" if known else "a key"
    return _wrong(
        f"Value not specified for {which} in JAAS config (character {key.at});"
        " put values in double quotes, and a backslash before each quote or backslash in them"
    )


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"{JAAS_CONFIG}: {what}", name=JAAS_CONFIG)
