"""Requests that the OpenAPI document allows, and some that it forbids, by schemathesis, for each operation.

    for operation in operations(): ask(document, operation, there, examples=25)
    follow_links(document, there, chains=15, seed=1)      # one request's answer is the next one's input

Each answer is checked against the document: its status and media type are listed, its body fits the schema,
forbidden requests are refused, and allowed ones are not, once the rules that the document has no words for
are kept (`openapi_grants.py`). `tests/service/native/test_openapi.py` runs some cases, and
`make fuzz` many.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hypothesis
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from tests.fuzz.openapi_grants import make_grantable
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemathesis import Case
    from schemathesis.core.transport import Response
    from schemathesis.generation.stateful.state_machine import StepInput, StepOutput

#: Waits as short as they can be: hardly any topic that is made up exists.
WAIT_MS: Final = 50
FLAGS: Final = ("--unknown-topic-wait-ms", str(WAIT_MS), "--log-level", "warning")
LIMITS: Final = {"lookup_wait_ms": WAIT_MS, "unknown_topics_per_second": 100_000}
#: The topic that the document's examples speak of.
TOPIC: Final = "orders"
#: What exists, by parameter: a sidecar's name by default, and what a cluster of three brokers has.
THERE: Final = {
    "topic": TOPIC,
    "partition": "1",
    "partition_id": "1",
    "broker_id": "2",
    "metadata.partitionNumber": "1",
    "appid": "pilotfish",
}
_PATIENCE_S: Final = 30
_LINKS_IN_A_CHAIN: Final = 6


class Operation(NamedTuple):
    """What is asked: with data that the document allows, or such as it forbids."""

    path: str
    method: str
    mode: GenerationMode

    def __str__(self) -> str:
        how = "allowed" if self.mode is GenerationMode.POSITIVE else "forbidden"
        return f"{self.method.upper()} {self.path} {how}"


def operations() -> Iterator[Operation]:
    """Every operation of the document, all dialects among them, with what it allows and what it forbids."""
    for path, methods in sorted(HttpApp().app.api.openapi()["paths"].items()):
        for method, operation in sorted(methods.items()):
            yield Operation(path, method, GenerationMode.POSITIVE)
            if _forbids_something(operation):
                yield Operation(path, method, GenerationMode.NEGATIVE)


def _forbids_something(operation: Mapping[str, Any]) -> bool:
    """Whether some request is against the document: not if it takes any text and any bytes."""
    free = {"type": "string"}
    schemas = [
        parameter["schema"] for parameter in operation.get("parameters", ()) if parameter["in"] != "path"
    ]
    schemas += [content["schema"] for content in operation.get("requestBody", {}).get("content", {}).values()]
    return any(schema != free and schema.get("format") != "binary" for schema in schemas) or any(
        "pattern" in parameter["schema"] or parameter["schema"].get("type") == "integer"
        for parameter in operation.get("parameters", ())
    )


def ask(
    document: Any, operation: Operation, there: Mapping[str, str], *, examples: int, seed: int | None = None
) -> int:
    """Asks so many made-up requests, and the document's own; how many altogether.

    `there` are parameters of existing resources: made-up names don't exist. Without a seed the requests
    are the same each time. Raises the errors of schemathesis.
    """
    asked = 0
    strategy = document[operation.path][operation.method].as_strategy(generation_mode=operation.mode)

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=seed is None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=strategy)
    def try_one(case: Case[Any]) -> None:
        nonlocal asked
        asked += 1
        _hurry(case)
        if operation.mode is GenerationMode.POSITIVE:
            make_grantable(case, there)
        answer = case.call(timeout=_PATIENCE_S)
        case.validate_response(answer, excluded_checks=_checks_left_out(case, answer))

    (try_one if seed is None else hypothesis.seed(seed)(try_one))()
    return asked


def follow_links(document: Any, there: Mapping[str, str], *, chains: int, seed: int) -> Counter[str]:
    """Makes at most so many chains of requests along the links; how many requests each operation got.

    The checks are those of `ask`, and those of states: what was made is there, and so on.
    """
    asked: Counter[str] = Counter()
    found: list[BaseException] = []

    class Chain(document.as_state_machine()):  # type: ignore[misc]  # schemathesis makes it
        linked: frozenset[str | None] = frozenset()

        def step(self, input: StepInput) -> StepOutput:
            self.linked = frozenset(name for _, name in input.applied_parameters)
            output: StepOutput = super().step(input)
            return output

        def before_call(self, case: Case[Any]) -> None:
            asked[f"{case.method} {case.path}"] += 1
            _hurry(case)
            if case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE:
                make_grantable(case, there, self.linked)

        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:
            return {"timeout": _PATIENCE_S}

        def validate_response(self, response: Response, case: Case[Any], *_: Any, **__: Any) -> None:
            not_asked = _checks_left_out(case, response)
            try:
                case.validate_response(response, excluded_checks=not_asked, recorder=self.recorder)
            except (AssertionError, BaseExceptionGroup) as error:
                found.append(error)

    run = hypothesis.settings(
        max_examples=chains,
        stateful_step_count=_LINKS_IN_A_CHAIN,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    # Which links can be followed depends on the answers, which hypothesis takes for an error of the test.
    with contextlib.suppress(hypothesis.errors.FlakyStrategyDefinition):
        hypothesis.seed(seed)(Chain).run(settings=run)
    if found:
        raise found[0]
    return asked


def _checks_left_out(case: Case[Any], answer: Response) -> Any:
    left_out = []
    # Time ran out, mostly since waits are so short. That the operation's statuses are in the document is
    # checked, too.
    if answer.status_code in (503, 504) or (answer.status_code == 500 and _is_daprs(answer)):
        left_out.append("not_a_server_error")
    # The body came later than its head, and later than these short waits allow: it was not judged.
    if answer.status_code == 408:
        left_out += ["positive_data_acceptance", "negative_data_rejection"]
    if case.path == "/v1/watch":  # asked for JSON, since the stream has no end; the document says stream
        left_out.append("content_type_conformance")
    return CHECKS.get_by_names(left_out)


def _is_daprs(answer: Response) -> bool:
    """Whether a 500 is Dapr's own answer for a failed delivery, and not an unexpected exception."""
    reported = answer.json()
    return isinstance(reported, dict) and reported.get("errorCode") not in (None, "ERR_INTERNAL")


def _hurry(case: Case[Any]) -> None:
    """Shortens waits, and has streams answered as a whole."""
    for name in ("max_block_ms", "timeout_ms"):
        if isinstance(case.query.get(name), int):
            case.query[name] = min(case.query[name], WAIT_MS)
    if case.query.get("timeout_ms") == 0:  # the body would be late, whatever it is
        case.query["timeout_ms"] = WAIT_MS
    if case.path in ("/v1/watch", "/v1/watch/changes"):
        case.headers["Accept"] = "application/json"
        case.query.setdefault("max_block_ms", WAIT_MS)
