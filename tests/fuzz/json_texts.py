"""JSON as a tree that may hold what no JSON library writes: duplicate names, NaN, lone surrogates, any depth.

    tree(value)              of a Python value: objects become lists of pairs, the rest stays text
    spoilt(tree, random)     one to three places of it changed
    written(tree, random)    its bytes, white space and escapes by chance

Pure: the same Random makes the same bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random


class Members(NamedTuple):
    """An object: names as their JSON texts, in order, more than once where they are."""

    pairs: tuple[tuple[bytes, Tree], ...]


class Items(NamedTuple):
    """An array."""

    items: tuple[Tree, ...]


#: A node, or a scalar as its bytes.
Tree = Members | Items | bytes

_DEPTHS: Final = (2, 120, 127, 128, 129, 133, 134, 500, 990, 1_000, 5_000, 100_000)


def tree(value: object) -> Tree:
    """The tree of a Python value; bytes are kept as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return Members(tuple((json.dumps(name).encode(), tree(one)) for name, one in value.items()))
    if isinstance(value, list):
        return Items(tuple(map(tree, value)))
    return json.dumps(value, ensure_ascii=False).encode()


def hostile_scalar(random: Random) -> bytes:
    """A text in the place of a value."""
    digits = random.choice((1, 18, 19, 20, 40, 309, 4_299, 4_301, 20_000))
    return random.choice(
        (
            *(b"null", b"true", b"0", b"-0", b"-1", b"1.0", b"1e2", b"0.1E+3", b"{}", b"[]", b'""'),
            *(b"", b" "),
            *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"1e999", b"-1e-999", b"01", b"+1", b".5", b"0x10"),
            *(b"2147483647", b"2147483648", b"9223372036854775807", b"9223372036854775808", b"-2147483649"),
            b"9" * digits,
            b"-" + b"1" * digits,
            b"1e" + b"9" * min(digits, 300),
            b"0." + b"3" * digits,
            *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud83d\ude00"', rb'"\u0000"', b'"\x00"', b'"\n"'),
            *(b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b"\xef\xbb\xbf{}", b'"\xf4\x90\x80\x80"'),
            *(b'"', b"'a'", rb'"\x"', rb'"\u12"', b"/* */ 1", b"1 2", b"]", b"}", b",", b":"),
            b'"' + b"a" * random.choice((250, 300, 33_000)) + b'"',
            b'"' + rb"\u0061" * random.choice((3, 3_000)) + b'"',
            b'"' + base64_text(random) + b'"',
            nested(random),
            many_members(random),
        )
    )


def base64_text(random: Random) -> bytes:
    """Nearly base64."""
    return random.choice((b"YQ==", b"YQ", b"YR==", b"Y===", b"====", b"Y Q==", b"-_-_", b"YWJj" * 9, b"\\n"))


def nested(random: Random) -> bytes:
    """Arrays and objects in each other, closed or not."""
    depth = random.choice(_DEPTHS)
    opened, closed = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"value":', b"}]")))
    depth = min(depth, 100_000 // len(opened))
    return opened * depth + random.choice((b"1", b"")) + closed * random.choice((depth, depth, 0, depth - 1))


def many_members(random: Random) -> bytes:
    """An object of many members, some with the same name."""
    count = random.choice((2, 100, 3_000))
    names = random.choice((1, 2, count))
    return b"{" + b",".join(b'"n%d":%d' % (n % names, n) for n in range(count)) + b"}"


def spoilt(node: Tree, random: Random) -> Tree:
    """The tree with one to three places changed."""
    for _ in range(random.choice((1, 1, 2, 3))):
        count = sum(1 for _ in _nodes(node))
        node = _changed(node, [random.randrange(count)], random)
    return node


def _nodes(node: Tree) -> Iterator[Tree]:
    yield node
    if isinstance(node, Members):
        for _, value in node.pairs:
            yield from _nodes(value)
    elif isinstance(node, Items):
        for item in node.items:
            yield from _nodes(item)


def _changed(node: Tree, left: list[int], random: Random) -> Tree:
    """The tree with one node changed: the one at which `left` has been counted down."""
    if not left[0]:
        left[0] = -1
        return _other(node, random)
    left[0] -= 1
    if isinstance(node, Members):
        return Members(tuple((n, _changed(v, left, random) if left[0] >= 0 else v) for n, v in node.pairs))
    if isinstance(node, Items):
        return Items(tuple(_changed(item, left, random) if left[0] >= 0 else item for item in node.items))
    return node


def _other(node: Tree, random: Random) -> Tree:
    if isinstance(node, Members) and node.pairs and random.random() < 0.7:
        return _other_members(node.pairs, random)
    if isinstance(node, Items) and node.items and random.random() < 0.7:
        return _other_items(node.items, random)
    return hostile_scalar(random)


def _other_members(pairs: tuple[tuple[bytes, Tree], ...], random: Random) -> Tree:
    at = random.randrange(len(pairs))
    name, value = pairs[at]
    match random.randrange(6):
        case 0:
            return Members(pairs[:at] + pairs[at + 1 :])
        case 1:  # a name twice
            return Members((*pairs, (name, random.choice((value, hostile_scalar(random))))))
        case 2:  # the same name, otherwise
            escaped = b'"' + b"".join(rb"\u%04x" % byte for byte in name.strip(b'"')) + b'"'
            return Members((*pairs[:at], (escaped, value), *pairs[at + 1 :]))
        case 3:
            return Members((*pairs[:at], (name.swapcase(), value), *pairs[at + 1 :]))
        case 4:
            unknown = random.choice(
                (b'"x"', b'""', rb'"\ud800"', b'"__proto__"', b"a", b"1", b'"' + b"n" * 9_000 + b'"')
            )
            return Members((*pairs, (unknown, hostile_scalar(random))))
        case _:
            return Members((*pairs[:at], (name, hostile_scalar(random)), *pairs[at + 1 :]))


def _other_items(items: tuple[Tree, ...], random: Random) -> Tree:
    at = random.randrange(len(items))
    match random.randrange(4):
        case 0:
            return Items(items[:at] + items[at + 1 :])
        case 1:
            return Items(items + (items[at],) * random.choice((1, 2, 12, 400)))
        case 2:
            return Items((*items[:at], hostile_scalar(random), *items[at + 1 :]))
        case _:
            return Items((hostile_scalar(random),) * random.choice((1, 50)))


def written(node: Tree, random: Random) -> bytes:
    """The tree as text; with much white space now and then."""
    space = random.choice((b"", b"", b"", b" ", b"\r\n\t "))
    return _text(node, space)


def _text(node: Tree, space: bytes) -> bytes:
    if isinstance(node, Members):
        inside = (space + b",").join(name + space + b":" + space + _text(v, space) for name, v in node.pairs)
        return b"{" + space + inside + space + b"}"
    if isinstance(node, Items):
        return b"[" + space + (b"," + space).join(_text(item, space) for item in node.items) + b"]"
    return node
