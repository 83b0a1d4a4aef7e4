"""Text to text: the values of a document, and every byte of the result; and random manifests."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.cli.inject.container import Sidecar
from service.cli.inject.faults import EditError, ManifestError
from service.cli.inject.manifests import Source, inject, uninject
from service.cli.inject.plain_data import data
from service.cli.inject.rewriting import rewritten
from service.cli.inject.tree import NotYamlError, parse
from service.cli.inject.values import Raw
from tests.support.random_manifests import manifests

Change = Callable[[Any], object]


def changed(text: str, change: Change) -> str:
    """The text after a change of the values of its only document."""
    (document,) = parse(text)
    wanted: Any = data(document.root)
    change(wanted)
    return rewritten(text, [(document, wanted)])


def test_a_key_is_put_before_another_and_above_its_comments() -> None:
    def change(document: Any) -> None:
        document["spec"] = {"new": 1, **document.pop("spec")}

    before = "spec:\n  # about a\n  # and more\n  a: 1\n"
    assert changed(before, change) == "spec:\n  new: 1\n  # about a\n  # and more\n  a: 1\n"


def test_what_looks_like_a_comment_and_is_text_is_left_together() -> None:
    def change(document: Any) -> None:
        document["z"] = 1
        document["b"] = document.pop("b")

    assert changed('a: "x\n# y"\nb: 1\n', change) == 'a: "x\n# y"\nz: 1\nb: 1\n'


def test_what_goes_takes_its_lines_and_leaves_comments_that_are_not_its_own() -> None:
    before = "l:\n  - name: a\n    # inside\n    v: 1   # too\n\n  # of b\n  - name: b\nm: 1\n"
    assert changed(before, lambda document: document["l"].pop(0)) == "l:\n\n  # of b\n  - name: b\nm: 1\n"
    assert changed(before, lambda document: document.pop("l")) == "m: 1\n"
    # A text whose last line has no end has none when that line goes.
    for end in ("\n", "\r\n"):
        without_end = f"a: 1{end}b: 2{end}c: 3"
        assert changed(without_end, lambda document: [document.pop("b"), document.pop("c")]) == "a: 1"


def test_items_with_a_name_are_changed_in_place() -> None:
    def change(document: Any) -> None:
        document["l"][1]["v"] = 3
        document["l"].insert(0, {"name": "c"})

    before = "l:\n  - name: a  # a\n    v: 1\n  - name: b\n    v: 2  # two\n"
    after = "l:\n  - name: c\n  - name: a  # a\n    v: 1\n  - name: b\n    v: 3  # two\n"
    assert changed(before, change) == after


def first(value: Any) -> Callable[[Any], object]:
    """Puts an item first into the list l."""
    return lambda document: document["l"].insert(0, value)


def putting(key: str, value: Any) -> Change:
    def put(document: Any) -> None:
        document[key] = value

    return put


def updating(key: str, **values: Any) -> Change:
    """Changes a mapping of the document."""
    return lambda document: document[key].update(values)


#: Case: a text, a change of what it means, and the text after it.
BY_LINES: dict[str, tuple[str, Change, str]] = {
    "indented dashes": ("l:\n  - a\n", first({"name": "x", "v": 1}), "l:\n  - name: x\n    v: 1\n  - a\n"),
    "dashes below their key": ("l:\n- a\n", first({"k": [1]}), "l:\n- k:\n  - 1\n- a\n"),
    "four columns a level": (
        "m:\n    k: v\nl:\n    - a\n",
        first({"k": {"l": True}}),
        "m:\n    k: v\nl:\n    - k:\n          l: true\n    - a\n",
    ),
    "a comment of an item": ("l:\n  # of a\n  - a\n", first("x"), "l:\n  - x\n  # of a\n  - a\n"),
    "a comment of the key": ("l: # of l\n  - a\n", first("x"), "l: # of l\n  - x\n  - a\n"),
    "a dash on a line of its own": ("l:\n-\n  a: 1\n", first("x"), "l:\n- x\n-\n  a: 1\n"),
    "an item that is nothing": ("l:\n-\n- b\n", first("x"), "l:\n- x\n-\n- b\n"),
    "an empty list": ("l: []\n", first("x"), "l:\n  - x\n"),
    "an empty one with a word": ("l: []   # none\nz: 1\n", first("x"), "l:   # none\n  - x\nz: 1\n"),
    "nothing": ("l:\nz: 1\n", putting("l", ["x"]), "l:\n  - x\nz: 1\n"),
    "a tilde": ("l: ~  # none\n", putting("l", ["x"]), "l:  # none\n  - x\n"),
    "the end of a text without one": ("a: 1", putting("b", 2), "a: 1\nb: 2"),
    "line ends of DOS": ("a: 1\r\nb: 2\r\n", putting("c", 3), "a: 1\r\nb: 2\r\nc: 3\r\n"),
    "behind a block of text": ("a: |\n  x\n\n\n", putting("b", 2), "a: |\n  x\nb: 2\n\n\n"),
    "behind one that keeps its end": ("a: |+\n  x\n\n", putting("b", 2), "a: |+\n  x\n\nb: 2\n"),
    "behind a text of two lines": ("a: x\n  y\n", putting("b", 2), "a: x\n  y\nb: 2\n"),
    "behind a comment": ("a: 1  # one\n", putting("b", 2), "a: 1  # one\nb: 2\n"),
    "a value": ("a:  5 # five\n", putting("a", 6), "a:  6 # five\n"),
    "a value where there was none": ("a:\nb: 1\n", putting("a", 6), "a: 6\nb: 1\n"),
    "quotes where they must be": ("'a': 'b'\n", putting("c", "yes"), "'a': 'b'\nc: \"yes\"\n"),
    "keys with a question mark": ("? a\n: 1\n", putting("b", 2), "? a\n: 1\nb: 2\n"),
    "one is not true": ("a: true\nb: 1\n", putting("a", 1), "a: 1\nb: 1\n"),
    "a text is not its number": ("a: '1'\n", putting("a", 1), "a: 1\n"),
    "an anchor of a value that changes": ("a: &x 1\nb: *x\n", putting("a", 2), "a: &x 2\nb: 1\n"),
    "an anchor of an empty list": ("a: &x []\n", putting("a", [1]), "a: &x\n  - 1\n"),
    "an alias that shall not change": (
        "a: &x\n  k: 1\nb: *x   # kept\nc: [*x]\n",
        updating("a", z=2),
        'a: &x\n  k: 1\n  z: 2\nb:   # kept\n  k: 1\nc: [{"k": 1}]\n',
    ),
    "an alias that shall change alone": (
        "a: &x {k: 1}\nb: *x\n",
        updating("b", z=2),
        "a: &x {k: 1}\nb:\n  k: 1\n  z: 2\n",
    ),
    "what is merged in is overridden beside it": (
        "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n",
        updating("b", k=2),
        "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n  k: 2\n",
    ),
    "what is not understood is written as it was": (
        "a: &x {m: 0644, n: yes, o: !t v, p: 1.5}\nb: *x\n",
        updating("b", q=1),
        'a: &x {m: 0644, n: yes, o: !t v, p: 1.5}\nb:\n  m: 0644\n  n: yes\n  o: !t "v"\n  p: 1.5\n  q: 1\n',
    ),
}


def test_new_parts_are_written_in_the_style_of_their_neighbours() -> None:
    made = {name: changed(before, change) for name, (before, change, _) in BY_LINES.items()}
    assert made == {name: after for name, (_, _, after) in BY_LINES.items()}


def test_values_in_brackets_are_changed_in_them() -> None:
    numbers = '{"l": [1, 2, 3]}'
    cases: list[tuple[str, Change, str]] = [
        ("l: [a]\n", first({"k": "yes"}), 'l: [{"k": "yes"}, a]\n'),
        ("{l: [ ]}\n", first("x"), '{l: ["x"]}\n'),
        ("{a: 1}  # c\n", putting("b", None), '{a: 1, "b": null}  # c\n'),
        (numbers, lambda document: document["l"].pop(2), '{"l": [1, 2]}'),
        (numbers, lambda document: document["l"].pop(0), '{"l": [2, 3]}'),
        ('{"l": [1]}', lambda document: document["l"].pop(0), '{"l": []}'),
        ('{"a": 1, "b": 2}', lambda document: document.pop("b"), '{"a": 1}'),
        ('{"a": 1}', lambda document: document.pop("a"), "{}"),
        (
            '{\n  "l": [\n    1\n  ]\n}\n',
            first({"k": []}),
            '{\n  "l": [\n    {\n      "k": []\n    },\n    1\n  ]\n}\n',
        ),
        ('{\n\t"a": 1\n}\n', putting("b", 2), '{\n\t"a": 1,\n\t"b": 2\n}\n'),
    ]
    assert [changed(before, change) for before, change, _ in cases] == [after for _, _, after in cases]


def test_an_alias_that_shall_change_as_its_anchor_does_stays() -> None:
    def change(document: Any) -> None:
        document["a"]["z"] = document["b"]["z"] = 2

    assert changed("a: &x\n  k: 1\nb: *x\n", change) == "a: &x\n  k: 1\n  z: 2\nb: *x\n"


def test_what_can_t_be_said_without_saying_more_is_refused() -> None:
    """A merged key can't be taken out of who takes it over."""
    before = "a: &x\n  k: 1\nb:\n  <<: *x\n  m: 1\n"
    with pytest.raises(EditError, match="because of its anchors or its layout") as caught:
        changed(before, lambda document: document["b"].pop("k"))
    assert caught.value.document == 1


# -- values --------------------------------------------------------------------------------------------------


def test_a_value_is_what_every_version_of_yaml_takes_it_for_or_kept_as_it_is() -> None:
    cases: list[tuple[str, object]] = [
        ("8085", 8085),
        ("-1", -1),
        ("true", True),
        ("~", None),
        ("''", ""),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int '1'", 1),
        ("a b", "a b"),
        ("0.0.0.0", "0.0.0.0"),
        *((text, Raw(text)) for text in ("0644", "1.5", "1e3", "yes", "2026-01-01", "12345678901234567890")),
        ("!x a", Raw("a", "!x")),
    ]
    found = [data(parse(f"a: {text}\n")[0].root)["a"] for text, _ in cases]  # type: ignore[call-overload,index]
    assert [(type(value), value) for value in found] == [(type(value), value) for _, value in cases]


def test_a_text_that_yaml_reads_otherwise_is_escaped() -> None:
    for text in ("\x7f", "\x85", "\u2028", "\ufeff", "\x9f", 'a"b\\c', "\t", "é😀"):
        made = changed("a: 1\n", putting("b", text))
        assert data(parse(made)[0].root) == {"a": 1, "b": text}


def test_a_text_that_is_no_yaml_is_reported_by_document_and_line() -> None:
    for text, document, line in (("a: [", 1, 0), ("a: 1\n---\n- b\nc: 1\n", 2, 3), ("a: *x\n", 1, 0)):
        with pytest.raises(NotYamlError) as caught:
            parse(text)
        assert (caught.value.document, caught.value.line) == (document, line)


SIDECAR = Sidecar("pilotfish:1", {"PILOTFISH_KAFKA_BOOTSTRAP_SERVERS": "kafka:9092"})
OTHER = Sidecar(
    "pilotfish:2",
    {"PILOTFISH_LOG_LEVEL": "debug"},
    secrets={"sasl": "kafka-sasl"},
    config_map="kafka",
    readiness=True,
    drain_timeout_ms=61_000,
)
#: Each drawn manifest goes through all that is said of it.
PROFILE = settings(deadline=None, max_examples=16, suppress_health_check=list(HealthCheck))

TEMPLATES = {"Pod": (), "CronJob": ("spec", "jobTemplate", "spec", "template")}
OURS = ("pilotfish-tmp", "pilotfish-config", "pilotfish-secret-sasl")


def meaning(text: str) -> list[Any]:
    """What PyYAML reads."""
    return [document for document in yaml.safe_load_all(text) if document is not None]


def injected(text: str, sidecar: Sidecar = SIDECAR) -> str:
    return inject([Source("x.yaml", text)], sidecar).texts[0]


def objects(documents: list[Any]) -> list[Any]:
    return [item for one in documents for item in (one["items"] if one.get("kind") == "List" else [one])]


def template_of(one: Any) -> Any:
    for step in TEMPLATES.get(one["kind"], ("spec", "template")):
        one = one[step]
    return one


def without_sidecar(one: Any) -> Any:
    """An object as it was, by hand."""
    one = copy.deepcopy(one)
    if one["kind"] == "ConfigMap":
        return one
    template = template_of(one)
    spec, metadata = template["spec"], template["metadata"]
    own_grace, _, _ = metadata["annotations"]["pilotfish-injected"].rpartition("Seconds=")[2].partition("->")
    if own_grace == "unset":
        del spec["terminationGracePeriodSeconds"]
    else:
        spec["terminationGracePeriodSeconds"] = int(own_grace)
    for key in ("initContainers", "containers"):
        spec[key] = [container for container in spec.get(key, []) if container["name"] != "pilotfish"]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in OURS]
    for name in ("pilotfish-injected", "kubectl.kubernetes.io/default-container"):
        metadata["annotations"].pop(name, None)
    del metadata["labels"]["pilotfish-sidecar"]
    return one


def without_empty(one: Any) -> Any:
    """An object without the lists and mappings of its pods that hold nothing."""
    one = copy.deepcopy(one)
    if one["kind"] == "ConfigMap":
        return one
    template = template_of(one)
    for value, names in (
        (template["spec"], ("initContainers", "volumes")),
        (template.get("metadata", {}), ("labels", "annotations")),
        (template, ("metadata",)),
    ):
        for name in names:
            if not value.get(name):
                value.pop(name, None)
    return one


@PROFILE
@given(manifests())
def test_whatever_a_manifest_looks_like_the_sidecar_goes_in_and_out_and_nothing_else_changes(
    text: str,
) -> None:
    once = injected(text)
    before, after = objects(meaning(text)), objects(meaning(once))
    assert [without_empty(without_sidecar(one)) for one in after] == [without_empty(one) for one in before]
    for template in (template_of(one) for one in after if one["kind"] != "ConfigMap"):
        names = [container["name"] for container in template["spec"]["initContainers"]]
        assert (names[0], names.count("pilotfish")) == ("pilotfish", 1)
        assert template["metadata"]["labels"]["pilotfish-sidecar"] == "true"
    assert injected(once) == once
    assert meaning(injected(once, OTHER)) == meaning(injected(text, OTHER))
    # A list or mapping that held nothing is not there again when it is taken out: it says nothing.
    # Nor is a tag, where the grace period was raised.
    if before == [without_empty(one) for one in before] and "!!int" not in text:
        assert uninject([Source("x.yaml", once)]).texts == [text]
    assert_no_line_goes(text, once)


def assert_no_line_goes(text: str, made: str) -> None:
    """And none moves, except those that are written anew: the grace period, and empty ones."""
    if "!!int" in text or "{" in text.replace("{}", "") or "[" in text.replace("[]", ""):
        return
    anew = ("terminationGracePeriodSeconds", "{}", "[]")
    kept = [line for line in text.splitlines() if not any(word in line for word in anew)]
    found = iter(made.splitlines())
    assert [line for line in kept if line not in found] == []


@PROFILE
@given(manifests(), st.integers(0, 1000), st.integers(1, 20))
def test_a_text_that_breaks_off_is_refused_or_read_and_never_a_bug(text: str, start: int, count: int) -> None:
    cut = text[: start % (len(text) + 1)] + text[start % (len(text) + 1) + count :]
    with contextlib.suppress(ManifestError):
        made = injected(cut)
        assert injected(made) == made
