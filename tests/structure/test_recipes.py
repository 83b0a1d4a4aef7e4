"""Each recipe of CONTRIBUTING.md is guarded: a change that leaves out a step is one line that names the file.

A change is made in memory. Whole, it gives no line; without any one step it gives the line of that step.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from client_core.protocol import messages as message_modules
from client_core.protocol.api_keys import API_KEYS
from service.base.settings import OWN_NAMES, Settings
from tests.chaos.faults import all_faults
from tests.structure import recipes
from tests.structure.recipes import PROOFS, ROOT, RULES, Tree
from tests.support.http_app import HttpApp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Check = Callable[[Tree], Iterable[str]]


def _own_settings() -> dict[str, Any]:
    properties = Settings.model_json_schema()["properties"]
    return {name: properties[name] for name in OWN_NAMES}


def _document() -> dict[str, Any]:
    return dict(HttpApp().app.api.openapi())


def _messages() -> Iterator[tuple[str, tuple[int, int, list[str]]]]:
    for found in pkgutil.iter_modules(message_modules.__path__):
        module = importlib.import_module(f"{message_modules.__name__}.{found.name}")
        name = "".join(part.title() for part in found.name.split("_"))
        if name.endswith(("Request", "Response")):
            yield name, (module.MIN_VERSION, module.MAX_VERSION, [])


def _apis() -> dict[str, tuple[int, int]]:
    return {api.name: (api.min_version, api.max_version) for api in API_KEYS}


def _faults() -> list[str]:
    seed = json.loads((ROOT / "tests/chaos/results.json").read_text())["seed"]
    return [fault.name for fault in all_faults(seed)]


#: The lines of each recipe for the project as it is.
PROJECT: Final[Mapping[str, Check]] = {
    "a setting": lambda tree: recipes.of_settings(tree, _own_settings()),
    "a metric": recipes.of_documented_metrics,
    "an alert": recipes.of_alerts,
    "a query parameter": lambda tree: recipes.of_query_parameters(tree, _document()),
    "a dialect": recipes.of_dialects,
    "a version of a Kafka API": lambda tree: recipes.of_api_versions(tree, _apis(), dict(_messages())),
    "a gold table": recipes.of_gold_tables,
    "a command": recipes.of_commands,
    "a fault": lambda tree: recipes.of_faults(tree, _faults()),
    "a benchmark": recipes.of_benchmarks,
}


def test_the_project_has_every_step_of_every_recipe() -> None:
    lacking = [f"{recipe}: {line}" for recipe, check in PROJECT.items() for line in check(Tree())]
    assert not lacking, "\n".join(lacking)


def test_there_is_a_guard_for_each_recipe_of_the_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## Recipes")[2]
    titles = [line.strip("*") for line in page.splitlines() if line.startswith("**")]
    assert [title.split(" of the ")[0].split(" of `")[0].split(" for ")[0].lower() for title in titles] == [
        recipe.lower() for recipe in PROJECT
    ]


class Step(NamedTuple):
    """A step of a change: the file, its new text, and what is said where the step is left out."""

    path: str
    edit: Callable[[str], str]
    line: str


class Change(NamedTuple):
    """A change by a recipe, on top of the project."""

    name: str
    check: Check
    steps: tuple[Step, ...]


def _after(there: str, more: str) -> Callable[[str], str]:
    """Adds behind the start of a list or table: real changes add at its end."""

    def edit(text: str) -> str:
        assert there in text, f"tests/structure/test_recipes.py adds after {there!r}, which is gone"
        return text.replace(there, there + more, 1)

    return edit


def _added(more: str) -> Callable[[str], str]:
    return lambda text: text + more


_NEW_SETTING: Final = {"new_limit": {"type": "integer", "minimum": 1, "description": "A limit."}}

_SETTING: Final = Change(
    "a setting",
    lambda tree: recipes.of_settings(tree, _NEW_SETTING),
    (
        Step(
            "service/process/new.py",
            _added("limit = settings.new_limit\n"),
            "service/ lacks a use of `new_limit`: no module but service/base/settings.py reads it",
        ),
        Step(
            "docs/settings.md",
            _added("| `--new-limit` | 1 | A limit. |\n"),
            "docs/settings.md lacks the row of `--new-limit`: run `make docs`",
        ),
        Step(
            "helm/pilotfish/values.schema.json",
            _added('"new_limit": {'),
            "helm/pilotfish/values.schema.json lacks `new_limit`: run `make docs`",
        ),
        Step(
            "helm/pilotfish-lib/templates/_names.tpl",
            _added("- new_limit\n"),
            "helm/pilotfish-lib/templates/_names.tpl lacks `new_limit`: run `make docs`",
        ),
        Step(
            "tests/service/process/test_new.py",
            _added("HttpApp(new_limit=1)\n"),
            "tests/service/ lacks a test that sets `new_limit`",
        ),
    ),
)

_METRIC: Final = Change(
    "a metric",
    lambda tree: recipes.of_metrics(
        tree, [*_page_metrics(Tree()), ("pilotfish_new_things_total", "counter")]
    ),
    (
        Step(
            "docs/metrics.md",
            _added("| `pilotfish_new_things_total` | counter | | New things. | |\n"),
            "docs/metrics.md lacks the row of `pilotfish_new_things_total`, a counter",
        ),
        Step(
            "tests/service/observe/test_new.py",
            _added('value("new_things_total")\n'),
            "tests/service/observe/ lacks a test that looks at `pilotfish_new_things_total`",
        ),
    ),
)


def _page_metrics(tree: Tree) -> list[tuple[str, str]]:
    return recipes.metric_rows(tree)


_ALERT: Final = Change(
    "an alert",
    recipes.of_alerts,
    (
        Step(
            RULES,
            _added("\n  - name: new\n    rules:\n      - alert: PilotfishNew\n        expr: vector(1)\n"),
            f"{RULES} lacks the alert PilotfishNew, which rules_test.yaml tries",
        ),
        Step(
            PROOFS,
            _added(
                "  - name: new\n"
                "    alert_rule_test:\n"
                "      - {alertname: PilotfishNew, eval_time: 1m, exp_alerts: [{exp_labels: {}}]}\n"
                "      - {alertname: PilotfishNew, eval_time: 2m, exp_alerts: []}\n"
            ),
            f"{PROOFS} lacks a case in which PilotfishNew fires",
        ),
        Step(
            "docs/alerts.md",
            _added("\n## PilotfishNew\n"),
            "docs/alerts.md lacks the section `## PilotfishNew`",
        ),
        Step(
            "docs/alerts.md",
            _added("\n| [PilotfishNew](#pilotfishnew) | warning |\n"),
            "docs/alerts.md lacks the row of [PilotfishNew](#pilotfishnew) in its first table",
        ),
    ),
)

_NEW_DOCUMENT: Final = {
    "paths": {"/v1/topics": {"get": {"parameters": [{"in": "query", "name": "new_filter"}]}}},
}

_QUERY: Final = Change(
    "a query parameter",
    lambda tree: recipes.of_query_parameters(tree, _NEW_DOCUMENT),
    (
        Step(
            "service/lookup/new.py",
            _added("listing = listed(query.new_filter)\n"),
            "service/native/ lacks a use of `new_filter` of `GET /v1/topics`: no route reads it",
        ),
        Step(
            "docs/http.md",
            _added("`new_filter` picks new ones.\n"),
            "docs/http.md lacks the query parameter `new_filter` of `GET /v1/topics`",
        ),
        Step(
            "tests/service/lookup/test_new.py",
            _added('web.get("/v1/topics?new_filter=1")\n'),
            "tests/service/native/ lacks a test that asks `GET /v1/topics` with `new_filter`",
        ),
    ),
)

_DIALECT: Final = Change(
    "a dialect",
    recipes.of_dialects,
    (
        Step(
            "service/dialects/new_one/__init__.py",
            _added("def dialect(sidecar: Sidecar) -> Dialect: ...\n"),
            "service/dialects/new_one/__init__.py lacks the function `dialect`",
        ),
        Step(
            "service/base/settings.py",
            _after('Dialect = Literal["rest-v2"', ', "new-one"'),
            'service/base/settings.py lacks "new-one" in Dialect',
        ),
        Step(
            "service/dialects/table.py",
            _after("rest_v2.dialect", ", new_one.dialect"),
            "service/dialects/table.py lacks new_one.dialect in _MAKE",
        ),
        Step(
            "docs/new-one.md",
            _added("# New one\n"),
            "docs/new-one.md is missing: the page of the dialect new-one",
        ),
        Step(
            "README.md",
            _added("[new](docs/new-one.md)\n"),
            "README.md lacks a link to docs/new-one.md",
        ),
        Step(
            "tests/service/dialects/new_one/test_new_one.py",
            _added("def test_it() -> None: ...\n"),
            "tests/service/dialects/new_one/ lacks a test",
        ),
        Step(
            "docs/settings.md",
            _added("new-one\n"),
            "docs/settings.md lacks new-one in the row of `--dialects`: run `make docs`",
        ),
    ),
)

_NEW_API: Final = {"NewThing": (0, 1)}
_NEW_MESSAGES: Final = {
    "NewThingRequest": (0, 1, ("new_field",)),
    "NewThingResponse": (0, 1, ()),
}


def _java_has(text: str) -> str:
    return json.dumps([*json.loads(text), {"name": "NEW_THING", "oldest": 0, "latest_stable": 1}])


_VECTORS: Final = json.dumps(
    [{"type": kind, "version": version} for kind in ("request", "response") for version in (0, 1)]
)

_API: Final = Change(
    "a version of a Kafka API",
    lambda tree: recipes.of_api_versions(tree, _NEW_API, _NEW_MESSAGES),
    (
        Step(
            "tests/golden/data/tables/api_keys.json",
            _java_has,
            "tests/golden/data/tables/api_keys.json lacks NewThing at versions 0-1: "
            "it is Java's table, made anew with another Kafka",
        ),
        Step(
            "tests/golden/data/messages/NewThing.json",
            _added(_VECTORS),
            "tests/golden/data/messages/NewThing.json lacks a request of version 0",
        ),
        Step(
            "client_core/client/new_thing.py",
            _added("request = NewThingRequest(new_field=1)\n"),
            "client_core/ lacks a use of NewThingRequest.new_field: no module reads or sets it",
        ),
    ),
)

_GOLD: Final = Change(
    "a gold table",
    recipes.of_gold_tables,
    (
        Step(
            "pipeline/tables.py",
            _added('GOLD_NEW: Final = "gold_new"\n'),
            "pipeline/tables.py lacks GOLD_NEW",
        ),
        Step(
            "pipeline/gold/__init__.py",
            _after("\nGOLD: Final[Mapping[str, GoldTable]] = {\n", "    tables.GOLD_NEW: new,\n"),
            "pipeline/gold/__init__.py lacks tables.GOLD_NEW in GOLD",
        ),
        Step(
            "docs/pipeline-tables.md",
            _added("\n## `gold_new`\n"),
            "docs/pipeline-tables.md lacks the section of `gold_new`",
        ),
        Step(
            "tests/pipeline/gold_samples.py",
            _after("\nSCHEMAS: Final[dict[str, dict[str, pa.DataType]]] = {\n", "    tables.GOLD_NEW: {},\n"),
            "tests/pipeline/gold_samples.py lacks the columns of tables.GOLD_NEW in SCHEMAS",
        ),
        Step(
            "tests/pipeline/test_new.py",
            _added("assert rows(tables.GOLD_NEW)\n"),
            "tests/pipeline/ lacks a test of GOLD_NEW",
        ),
    ),
)

_COMMAND: Final = Change(
    "a command",
    recipes.of_commands,
    (
        Step(
            "service/cli/newly.py",
            _added("@click.command()\ndef newly() -> None: ...\n"),
            "service/cli/newly.py lacks the command `newly`",
        ),
        Step(
            "service/__main__.py",
            _after("] = {\n", '    "newly": ("service.cli.newly", "newly"),\n'),
            "service/__main__.py lacks `newly` of service.cli.newly in _COMMANDS",
        ),
        Step(
            "docs/cli.md",
            _added("`pilotfish newly`\n"),
            "docs/ lacks `pilotfish newly`: write it into the page of its subject, or README.md",
        ),
        Step(
            "tests/service/cli/test_newly.py",
            _added('run("newly")\n'),
            'tests/service/cli/ lacks a test that calls "newly"',
        ),
    ),
)


def _played(text: str) -> str:
    run = json.loads(text)
    return json.dumps(run | {"rows": [*run["rows"], {"fault": "a new fault"}]})


_FAULT: Final = Change(
    "a fault",
    lambda tree: recipes.of_faults(tree, [*_faults(), "a new fault"]),
    (
        Step(
            "tests/chaos/results.json",
            _played,
            "docs/reliability.md lacks the row of the fault “a new fault”: run `make chaos`",
        ),
        Step(
            "docs/reliability.md",
            _added("\n| a new fault |\n"),
            "docs/reliability.md lacks the row of the fault “a new fault”: run `make chaos`",
        ),
    ),
)


def _measured(text: str) -> str:
    run = json.loads(text)
    return json.dumps(run | {"goals": [*run["goals"], {"name": "new thing, CPU"}]})


_BENCHMARK: Final = Change(
    "a benchmark",
    recipes.of_benchmarks,
    (
        Step(
            "benchmarks/newly.py",
            _added('goal("new thing, CPU", 1, 2)\nif __name__ == "__main__": ...\n'),
            "benchmarks/newly.py is missing, which benchmarks/__main__.py has in ALL",
        ),
        Step(
            "benchmarks/__main__.py",
            _after("ALL: Final = (\n", '    "newly",\n'),
            'benchmarks/__main__.py lacks "newly" in ALL',
        ),
        Step(
            "benchmarks/README.md",
            _added("| `newly.py` | new |\n"),
            "benchmarks/README.md lacks the row of `newly.py`",
        ),
        Step(
            "benchmarks/results.json",
            _measured,
            "benchmarks/README.md lacks the figures of `newly.py`: run `make bench`, then `make docs`",
        ),
    ),
)

CHANGES: Final = (
    *(_SETTING, _METRIC, _ALERT, _QUERY, _DIALECT),
    *(_API, _GOLD, _COMMAND, _FAULT, _BENCHMARK),
)


def _tree_after(steps: Iterable[Step]) -> Tree:
    changed: dict[str, str] = {}
    for step in steps:
        changed[step.path] = step.edit(Tree(changed).text(step.path))
    return Tree(changed)


def test_a_change_with_every_step_is_complete() -> None:
    for change in CHANGES:
        assert list(change.check(_tree_after(change.steps))) == [], change.name


def test_a_step_that_is_left_out_is_named_with_its_file() -> None:
    for change in CHANGES:
        for left_out in change.steps:
            steps = [step for step in change.steps if step is not left_out]
            assert left_out.line in list(change.check(_tree_after(steps))), (change.name, left_out.path)


def test_a_setting_without_a_description_or_a_range_is_named() -> None:
    cases: dict[str, dict[str, Any]] = {
        "the description of `poll_timeout_ms`": {"type": "integer", "minimum": 1},
        "the range of `poll_timeout_ms`: Field(ge=…, le=…)": {"type": "integer", "description": "A time."},
    }
    for lacks, said in cases.items():
        lines = list(recipes.of_settings(Tree(), {"poll_timeout_ms": said}))
        assert f"service/base/settings.py lacks {lacks}" in lines


def test_a_metric_that_no_scrape_has_is_named() -> None:
    gone, *others = _page_metrics(Tree())
    assert list(recipes.of_metrics(Tree(), others)) == [
        f"service/ lacks the metric `{gone[0]}`: no scrape has it, docs/metrics.md does"
    ]


def test_a_gold_table_whose_treatment_of_wrong_clocks_is_not_described_is_named() -> None:
    page = "docs/pipeline-tables.md"
    without = Tree({page: Tree().text(page).replace("| `gold_urp`, ", "| ")})
    assert list(recipes.of_gold_tables(without)) == [
        f"{page} lacks a table of pipeline/gold/under_replicated.py under Clocks: it uses clocks.py"
    ]


def test_an_api_whose_table_was_not_extended_is_named() -> None:
    messages = {"MetadataRequest": (0, 99, ())}
    lines = list(recipes.of_api_versions(Tree(), _apis(), messages))
    assert "client_core/protocol/api_keys.py lacks Metadata at versions 0-99" in lines


def test_an_api_whose_messages_were_not_generated_is_named() -> None:
    assert (
        "client_core/protocol/messages/ lacks NewThing: run `python -m client_core.protocol.generate`"
        in recipes.of_api_versions(Tree(), _NEW_API, {})
    )
    apis = _apis()
    first, last = apis["Metadata"]
    lines = list(
        recipes.of_api_versions(
            Tree(), {"Metadata": (first, last)}, {"MetadataRequest": (first, last - 1, ())}
        )
    )
    assert lines == [
        f"client_core/protocol/messages/metadata_request.py lacks versions {first}-{last}: "
        "run `python -m client_core.protocol.generate`"
    ]
