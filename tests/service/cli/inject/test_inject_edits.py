"""Text to text: each case says what a document shall mean, and every byte that comes of it."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from service.cli.inject.faults import EditError
from service.cli.inject.plain_data import data
from service.cli.inject.rewriting import rewritten
from service.cli.inject.tree import NotYamlError, parse
from service.cli.inject.values import Raw

if TYPE_CHECKING:
    from collections.abc import Callable


def changed(text: str, change: Callable[[Any], object]) -> str:
    """A text whose only document means what a change of its values makes of them."""
    (document,) = parse(text)
    wanted: Any = data(document.root)
    change(wanted)
    return rewritten(text, [(document, wanted)])


def dedented(text: str) -> str:
    return textwrap.dedent(text).removeprefix("\n")


def first(value: Any) -> Callable[[Any], object]:
    """Puts an item first into the list l."""
    return lambda document: document["l"].insert(0, value)


def putting(key: str, value: Any) -> Callable[[Any], object]:
    def put(document: Any) -> None:
        document[key] = value

    return put


# -- lists and mappings by lines -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        pytest.param(
            "l:\n  - a\n",
            first({"name": "x", "v": 1}),
            "l:\n  - name: x\n    v: 1\n  - a\n",
            id="indented dashes",
        ),
        pytest.param("l:\n- a\n", first({"k": [1]}), "l:\n- k:\n  - 1\n- a\n", id="dashes below their key"),
        pytest.param(
            "m:\n    k: v\nl:\n    - a\n",
            first({"k": {"l": True}}),
            "m:\n    k: v\nl:\n    - k:\n          l: true\n    - a\n",
            id="four columns a level",
        ),
        pytest.param(
            "l:\n  # of a\n  - a\n", first("x"), "l:\n  - x\n  # of a\n  - a\n", id="a comment of an item"
        ),
        pytest.param(
            "l: # of l\n  - a\n", first("x"), "l: # of l\n  - x\n  - a\n", id="a comment of the key"
        ),
        pytest.param("l:\n-\n  a: 1\n", first("x"), "l:\n- x\n-\n  a: 1\n", id="a dash on a line of its own"),
        pytest.param("l:\n-\n- b\n", first("x"), "l:\n- x\n-\n- b\n", id="an item that is nothing"),
        pytest.param("l: []\n", first("x"), "l:\n  - x\n", id="an empty list"),
        pytest.param(
            "l: []   # none\nz: 1\n", first("x"), "l:   # none\n  - x\nz: 1\n", id="an empty one with a word"
        ),
        pytest.param("l:\nz: 1\n", putting("l", ["x"]), "l:\n  - x\nz: 1\n", id="nothing"),
        pytest.param("l: ~  # none\n", putting("l", ["x"]), "l:  # none\n  - x\n", id="a tilde"),
        pytest.param("a: 1", putting("b", 2), "a: 1\nb: 2", id="the end of a text without one"),
        pytest.param("a: 1\r\nb: 2\r\n", putting("c", 3), "a: 1\r\nb: 2\r\nc: 3\r\n", id="line ends of DOS"),
        pytest.param(
            "a: |\n  x\n\n\n", putting("b", 2), "a: |\n  x\nb: 2\n\n\n", id="behind a block of text"
        ),
        pytest.param(
            "a: |+\n  x\n\n", putting("b", 2), "a: |+\n  x\n\nb: 2\n", id="behind one that keeps its end"
        ),
        pytest.param("a: x\n  y\n", putting("b", 2), "a: x\n  y\nb: 2\n", id="behind a text of two lines"),
        pytest.param("a: 1  # one\n", putting("b", 2), "a: 1  # one\nb: 2\n", id="behind a comment"),
        pytest.param("a:  5 # five\n", putting("a", 6), "a:  6 # five\n", id="a value"),
        pytest.param("a:\nb: 1\n", putting("a", 6), "a: 6\nb: 1\n", id="a value where there was none"),
        pytest.param(
            "'a': 'b'\n", putting("c", "yes"), "'a': 'b'\nc: \"yes\"\n", id="quotes where they must be"
        ),
        pytest.param("? a\n: 1\n", putting("b", 2), "? a\n: 1\nb: 2\n", id="keys with a question mark"),
    ],
)
def test_what_is_new_is_written_as_its_neighbours_are(
    before: str, change: Callable[[Any], object], after: str
) -> None:
    assert changed(before, change) == after


def test_a_key_is_put_before_another_and_above_its_comments() -> None:
    def change(document: Any) -> None:
        spec = document.pop("spec")
        document["spec"] = {"new": 1, **spec}

    before = dedented("""
        spec:
          # about a
          # and more
          a: 1
        """)
    assert changed(before, change) == "spec:\n  new: 1\n  # about a\n  # and more\n  a: 1\n"


def test_what_looks_like_a_comment_and_is_text_is_left_together() -> None:
    before = 'a: "x\n# y"\nb: 1\n'

    def change(document: Any) -> None:
        document["z"] = 1
        document["b"] = document.pop("b")

    assert changed(before, change) == 'a: "x\n# y"\nz: 1\nb: 1\n'


def test_what_goes_takes_its_lines_and_leaves_comments_that_are_not_its_own() -> None:
    before = dedented("""
        l:
          - name: a
            # inside
            v: 1   # too

          # of b
          - name: b
        m: 1
        """)
    assert changed(before, lambda document: document["l"].pop(0)) == "l:\n\n  # of b\n  - name: b\nm: 1\n"
    assert changed(before, lambda document: document.pop("l")) == "m: 1\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_text_whose_last_line_has_no_end_has_none_when_that_line_goes(end: str) -> None:
    before = f"a: 1{end}b: 2{end}c: 3"

    def change(document: Any) -> None:
        del document["b"], document["c"]

    assert changed(before, change) == "a: 1"


def test_items_with_a_name_are_changed_where_they_stand() -> None:
    before = "l:\n  - name: a  # a\n    v: 1\n  - name: b\n    v: 2  # two\n"

    def change(document: Any) -> None:
        document["l"][1]["v"] = 3
        document["l"].insert(0, {"name": "c"})

    assert (
        changed(before, change)
        == "l:\n  - name: c\n  - name: a  # a\n    v: 1\n  - name: b\n    v: 3  # two\n"
    )


# -- in one line, and JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ("l: [a]\n", first({"k": "yes"}), 'l: [{"k": "yes"}, a]\n'),
        ("{l: [ ]}\n", first("x"), '{l: ["x"]}\n'),
        ("{a: 1}  # c\n", putting("b", None), '{a: 1, "b": null}  # c\n'),
        ('{"l": [1, 2, 3]}', lambda document: document["l"].pop(2), '{"l": [1, 2]}'),
        ('{"l": [1, 2, 3]}', lambda document: document["l"].pop(0), '{"l": [2, 3]}'),
        ('{"l": [1]}', lambda document: document["l"].pop(0), '{"l": []}'),
        ('{"a": 1, "b": 2}', lambda document: document.pop("b"), '{"a": 1}'),
        ('{"a": 1}', lambda document: document.pop("a"), "{}"),
        (
            '{\n  "l": [\n    1\n  ]\n}\n',
            first({"k": []}),
            '{\n  "l": [\n    {\n      "k": []\n    },\n    1\n  ]\n}\n',
        ),
        ('{\n\t"a": 1\n}\n', putting("b", 2), '{\n\t"a": 1,\n\t"b": 2\n}\n'),
    ],
)
def test_what_stands_in_brackets_is_changed_in_them(
    before: str, change: Callable[[Any], object], after: str
) -> None:
    assert changed(before, change) == after


# -- anchors -------------------------------------------------------------------------------------------------


def test_an_alias_that_shall_not_change_with_its_anchor_is_written_out() -> None:
    before = "a: &x\n  k: 1\nb: *x   # kept\nc: [*x]\n"
    after = 'a: &x\n  k: 1\n  z: 2\nb:   # kept\n  k: 1\nc: [{"k": 1}]\n'
    assert changed(before, lambda document: document["a"].update(z=2)) == after


def test_an_alias_that_shall_change_and_its_anchor_not_is_written_out() -> None:
    before = "a: &x {k: 1}\nb: *x\n"
    assert changed(before, lambda document: document["b"].update(z=2)) == "a: &x {k: 1}\nb:\n  k: 1\n  z: 2\n"


def test_an_alias_that_shall_change_as_its_anchor_does_stays() -> None:
    def change(document: Any) -> None:
        document["a"]["z"] = document["b"]["z"] = 2

    assert changed("a: &x\n  k: 1\nb: *x\n", change) == "a: &x\n  k: 1\n  z: 2\nb: *x\n"


def test_an_anchor_stays_where_its_value_changes() -> None:
    assert changed("a: &x 1\nb: *x\n", putting("a", 2)) == "a: &x 2\nb: 1\n"
    assert changed("a: &x []\n", putting("a", [1])) == "a: &x\n  - 1\n"


def test_what_is_merged_in_is_overridden_beside_it() -> None:
    before = "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n"
    after = "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n  k: 2\n"
    assert changed(before, lambda document: document["b"].update(k=2)) == after


def test_what_can_t_be_said_without_saying_more_is_refused() -> None:
    """A merged key can't be taken out of who takes it over."""
    before = "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n"
    with pytest.raises(EditError, match="because of its anchors or its layout") as caught:
        changed(before, lambda document: document["b"].pop("k"))
    assert caught.value.document == 1


# -- what values mean ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8085", 8085),
        ("-1", -1),
        ("true", True),
        ("~", None),
        ("''", ""),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("a b", "a b"),
        ("0644", Raw("0644")),
        ("1.5", Raw("1.5")),
        ("0.0.0.0", "0.0.0.0"),
        ("1e3", Raw("1e3")),
        ("yes", Raw("yes")),
        ("2026-01-01", Raw("2026-01-01")),
        ("12345678901234567890", Raw("12345678901234567890")),
        ("!x a", Raw("a", "!x")),
    ],
)
def test_a_value_is_what_every_version_of_yaml_takes_it_for_or_kept_as_it_is(
    text: str, value: object
) -> None:
    (document,) = parse(f"a: {text}\nb: *c\n" if "*" in text else f"a: {text}\n")
    assert data(document.root) == {"a": value}


def test_what_is_not_understood_is_written_as_it_was() -> None:
    before = "a: &x {m: 0644, n: yes, o: !t v, p: 1.50}\nb: *x\n"
    after = (
        'a: &x {m: 0644, n: yes, o: !t v, p: 1.50}\nb:\n  m: 0644\n  n: yes\n  o: !t "v"\n  p: 1.50\n  q: 1\n'
    )
    assert changed(before, lambda document: document["b"].update(q=1)) == after


def test_one_is_not_true_and_a_text_is_not_its_number() -> None:
    assert changed("a: true\nb: 1\n", putting("a", 1)) == "a: 1\nb: 1\n"
    assert changed("a: '1'\n", putting("a", 1)) == "a: 1\n"


@pytest.mark.parametrize("text", ["\x7f", "\x85", "\u2028", "\ufeff", "\x9f", 'a"b\\c', "\t", "é😀"])
def test_a_text_that_yaml_reads_otherwise_is_escaped(text: str) -> None:
    made = changed("a: 1\n", putting("b", text))
    assert data(parse(made)[0].root) == {"a": 1, "b": text}


@pytest.mark.parametrize(
    ("text", "document", "line"), [("a: [", 1, 0), ("a: 1\n---\n- b\nc: 1\n", 2, 3), ("a: *x\n", 1, 0)]
)
def test_a_text_that_is_no_yaml_is_told_by_document_and_line(text: str, document: int, line: int) -> None:
    with pytest.raises(NotYamlError) as caught:
        parse(text)
    assert (caught.value.document, caught.value.line) == (document, line)
