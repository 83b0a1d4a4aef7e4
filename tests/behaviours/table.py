"""The table of behaviours as Markdown, and what is wrong with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.behaviours.catalogue import Behaviour, JavaTestClass
    from tests.behaviours.scan import Shown

_HEAD = """# Behaviours, and the tests that show them

Made by `make behaviours` from the markers of the tests; do not edit.
"""


def complaints(
    behaviours: Mapping[str, Behaviour], classes: Mapping[str, JavaTestClass], shown: Shown
) -> Iterator[str]:
    """What is missing or contradictory, a line each."""
    known = {*behaviours, *(case for java in classes.values() for case in java.cases())}
    for id_, tests in shown.tests.items():
        if id_ not in known:
            yield f"{tests[0]} is marked with {id_}, which no catalogue has"
        if id_ in shown.left_out:
            yield f"{id_} is left out, and shown by {tests[0]}"
    for id_, reason in shown.left_out.items():
        if id_ not in known:
            yield f"{id_} is left out, but no catalogue has it"
        if not reason.strip():
            yield f"{id_} is left out without a reason"
    for id_, behaviour in behaviours.items():
        if id_ in shown.tests:
            continue
        if behaviour.rank == 1:
            yield f"{id_} is of first rank and has no test"
        elif id_ not in shown.left_out:
            yield f"{id_} has no test, and no reason why"
    for java in classes.values():
        for name in java.applicable:
            case = f"{java.name}.{name}"
            if case not in shown.tests and case not in shown.left_out:
                yield f"{case} has no twin, and no reason why"


def table(behaviours: Mapping[str, Behaviour], classes: Mapping[str, JavaTestClass], shown: Shown) -> str:
    """The whole document."""
    lines = [_HEAD, *_totals(behaviours, classes, shown), "", "## Behaviours", ""]
    lines += ["| id | rank | rule | shown by |", "|---|---|---|---|"]
    for behaviour in behaviours.values():
        rule = behaviour.rule.replace("|", "\\|")
        lines.append(f"| {behaviour.id} | {behaviour.rank} | {rule} | {_shown_by(behaviour.id, shown)} |")
    lines += ["", "## Kafka's own tests, and their twins", ""]
    for java in classes.values():
        lines += _java_section(java, shown)
    return "\n".join(lines) + "\n"


def _totals(
    behaviours: Mapping[str, Behaviour], classes: Mapping[str, JavaTestClass], shown: Shown
) -> Iterator[str]:
    for rank, word in ((1, "first"), (2, "second")):
        ids = [b.id for b in behaviours.values() if b.rank == rank]
        tested = sum(id_ in shown.tests for id_ in ids)
        yield f"- {tested} of {len(ids)} behaviours of {word} rank have a test."
    cases = [f"{java.name}.{name}" for java in classes.values() for name in java.applicable]
    twins = sum(case in shown.tests for case in cases)
    yield (
        f"- {twins} of the {len(cases)} test methods of Kafka's own that concern this client have a twin; "
        f"{sum(case in shown.left_out for case in cases)} are left out, each with its reason."
    )


def _java_section(java: JavaTestClass, shown: Shown) -> Iterator[str]:
    yield f"### {java.name}"
    yield ""
    yield "| case | twin |"
    yield "|---|---|"
    for name in java.applicable:
        yield f"| {name} | {_shown_by(f'{java.name}.{name}', shown)} |"
    for name in java.optional:
        case = f"{java.name}.{name}"
        if case in shown.tests or case in shown.left_out:
            yield f"| {name} (optional) | {_shown_by(case, shown)} |"
    yield ""
    unshown = [
        name for name in java.optional if not {f"{java.name}.{name}"} & {*shown.tests, *shown.left_out}
    ]
    if unshown:
        yield f"Optional, not taken: {', '.join(unshown)}."
        yield ""
    if java.not_applicable:
        yield f"About what this client does not have: {', '.join(java.not_applicable)}."
        yield ""


def _shown_by(id_: str, shown: Shown) -> str:
    tests = shown.tests.get(id_)
    if tests is None:
        return f"*left out:* {shown.left_out[id_]}" if id_ in shown.left_out else "**nothing**"
    return "<br>".join(f"`{test}`" for test in tests)
