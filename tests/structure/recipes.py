"""Missing steps of a recipe of CONTRIBUTING.md: a function per recipe, which returns "FILE lacks X" lines.

Each function takes the tree to read, and the program's own lists of settings, metrics and so on. One test
passes the project and expects no line. Another passes a change that lacks one step of the recipe, and expects
the one line that names its file. Everything is read as text or as Python's syntax: nothing is started.
"""

from __future__ import annotations

import ast
import json
import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
RULES: Final = "helm/pilotfish/files/rules.yaml"
PROOFS: Final = "helm/pilotfish/files/rules_test.yaml"

#: One test, which builds their names, compares each of these with the counted events: test_spool_faults.py
#: (test_each_number_of_the_spool_is_a_metric) and test_event_log.py.
_TESTED_TOGETHER: Final = ("pilotfish_spool_", "pilotfish_events_")

#: Benchmarks that were added after the last whole `make bench`. It empties this.
_NEWER_THAN_THE_RESULTS: Final = ("deadlines",)

_NO_FILES: Final[Mapping[str, str]] = {}


class Tree:
    """The project's text files by their paths. Those in `changed` have another text, or are new."""

    def __init__(self, changed: Mapping[str, str] = _NO_FILES) -> None:
        self._changed = changed

    def text(self, path: str) -> str:
        """A file's text, empty where there is no such file."""
        return self._changed.get(path) or _text_on_disk(path)

    def paths(self, folder: str, suffix: str = ".py") -> list[str]:
        """The files below a folder, sorted."""
        changed = [path for path in self._changed if path.startswith(folder + "/") and path.endswith(suffix)]
        return sorted({*_paths_on_disk(folder, suffix), *changed})

    def words(self, folder: str) -> set[str]:
        """Every word of a folder's Python files, with dashes inside: names, flags, headers.

        The tests of the project's structure are left out: a name in them is no test of its effect.
        """
        paths = [path for path in self.paths(folder) if not path.startswith("tests/structure/")]
        return set().union(*(_words(self.text(path)) for path in paths))

    def code_names(self, folder: str, but: str = "") -> set[str]:
        """Attributes, keywords and whole strings of a folder's code: docstrings and comments don't count."""
        return set().union(*(_code_names(self.text(path)) for path in self.paths(folder) if path != but))


@cache
def _text_on_disk(path: str) -> str:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@cache
def _paths_on_disk(folder: str, suffix: str) -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(f"*{suffix}"))


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(word.strip("-") for word in re.findall(r"[\w-]+", text))


@cache
def _asked_names(text: str) -> frozenset[str]:
    """What a test may ask with: a name in a query string, a dictionary or a keyword. A bare word is none."""
    return frozenset(re.findall(r"[?&](\w+)=", text) + re.findall(r"\"(\w+)\": ", text)) | {
        node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword) and node.arg
    }


@cache
def _code_names(text: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                names.add(name)
            case _:
                pass
    return frozenset(names)


def value_of(text: str, name: str) -> ast.expr:
    """What a module assigns to a name. LookupError where it does not."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return value
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                return value
            case _:
                pass
    raise LookupError(name)


def _strings(text: str, name: str) -> list[str]:
    """The strings of a tuple."""
    return [str(node.value) for node in ast.walk(value_of(text, name)) if isinstance(node, ast.Constant)]


def _keys(text: str, name: str) -> list[str]:
    """The keys of a dict: strings, and the names of constants of other modules."""
    written = value_of(text, name)
    assert isinstance(written, ast.Dict), name
    return [
        key.attr if isinstance(key, ast.Attribute) else str(ast.literal_eval(key))
        for key in written.keys
        if key is not None
    ]


def _values(text: str, name: str) -> list[ast.expr]:
    """The values of a dict."""
    written = value_of(text, name)
    assert isinstance(written, ast.Dict), name
    return written.values


# -- the recipes, in CONTRIBUTING.md's order -----------------------------------------------------------------


def of_settings(tree: Tree, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """`settings` are the properties of the JSON schema of Settings."""
    read = tree.code_names("service", but="service/base/settings.py")
    tested = tree.words("tests")
    for name, said in settings.items():
        flag = name.replace("_", "-")
        if tested.isdisjoint({name, flag, f"no-{flag}", f"PILOTFISH_{name.upper()}"}):
            yield f"tests/service/ lacks a test that sets `{name}`"
        if not said.get("description"):
            yield f"service/base/settings.py lacks the description of `{name}`"
        for shape in (said, *said.get("anyOf", ())):
            is_bounded = "minimum" in shape or "exclusiveMinimum" in shape
            if shape.get("type") in {"integer", "number"} and not is_bounded:
                yield f"service/base/settings.py lacks the range of `{name}`: Field(ge=…, le=…)"
        if name not in read:
            yield f"service/ lacks a use of `{name}`: no module but service/base/settings.py reads it"
        if f"| `--{flag}` |" not in tree.text("docs/settings.md"):
            yield f"docs/settings.md lacks the row of `--{flag}`: run `make docs`"
        for made, spelled in (
            ("helm/pilotfish/values.schema.json", f'"{name}": {{'),
            ("helm/pilotfish-lib/templates/_names.tpl", f"- {name}\n"),
        ):
            if spelled not in tree.text(made):
                yield f"{made} lacks `{name}`: run `make docs`"


def of_metrics(tree: Tree, metrics: Collection[tuple[str, str]]) -> Iterator[str]:
    """`metrics` are names and types, as a scrape has them."""
    rows = set(metric_rows(tree))
    names = {name for name, _ in metrics}
    for name, kind in sorted(set(metrics) - rows):
        other = [of_page for found, of_page in rows if found == name]
        if other:
            yield f"docs/metrics.md has `{name}` as a {other[0]}, it is a {kind}"
        else:
            yield f"docs/metrics.md lacks the row of `{name}`, a {kind}"
    for name, _ in sorted(row for row in rows if row[0] not in names):
        yield f"service/ lacks the metric `{name}`: no scrape has it, docs/metrics.md does"
    yield from _untested_metrics(tree, sorted(names))


def of_documented_metrics(tree: Tree) -> Iterator[str]:
    """What can be seen without a scrape: of the metrics that docs/metrics.md has."""
    yield from _untested_metrics(tree, [name for name, _ in metric_rows(tree)])


def metric_rows(tree: Tree) -> list[tuple[str, str]]:
    """Names and types, as docs/metrics.md has them."""
    return re.findall(r"^\| `(pilotfish_\w+)` \| (\w+)", tree.text("docs/metrics.md"), re.MULTILINE)


def _untested_metrics(tree: Tree, names: Iterable[str]) -> Iterator[str]:
    tested = {_stem(word) for word in tree.words("tests")}
    for name in names:
        if not name.startswith(_TESTED_TOGETHER) and _stem(name) not in tested:
            yield f"tests/service/observe/ lacks a test that looks at `{name}`"


def _stem(name: str) -> str:
    """A metric's name as tests write it: some leave out the prefix, some the suffix."""
    for suffix in ("_total", "_count", "_sum", "_bucket"):
        name = name.removesuffix(suffix)
    return name.removeprefix("pilotfish_")


def of_alerts(tree: Tree) -> Iterator[str]:
    page = tree.text("docs/alerts.md").splitlines()
    proofs = [
        proof
        for test in yaml.safe_load(tree.text(PROOFS))["tests"]
        for proof in test.get("alert_rule_test", ())
    ]
    rules = [rule for group in yaml.safe_load(tree.text(RULES))["groups"] for rule in group["rules"]]
    for name in dict.fromkeys(rule["alert"] for rule in rules):
        of_alert = [bool(proof.get("exp_alerts")) for proof in proofs if proof["alertname"] == name]
        if True not in of_alert:
            yield f"{PROOFS} lacks a case in which {name} fires"
        if False not in of_alert:
            yield f"{PROOFS} lacks a case in which {name} does not fire"
        if f"## {name}" not in page:
            yield f"docs/alerts.md lacks the section `## {name}`"
        if not any(line.startswith(f"| [{name}](#{name.lower()}) |") for line in page):
            yield f"docs/alerts.md lacks the row of [{name}](#{name.lower()}) in its first table"
    alerts = {rule["alert"] for rule in rules}
    for proof in proofs:
        if proof["alertname"] not in alerts:
            yield f"{RULES} lacks the alert {proof['alertname']}, which rules_test.yaml tries"


def of_query_parameters(tree: Tree, document: Mapping[str, Any]) -> Iterator[str]:
    """`document` is the OpenAPI document. A parameter is explained on a page that has its call."""
    pages = {path: tree.text(path) for path in tree.paths("docs", ".md")}
    tested = {name for path in tree.paths("tests/service") for name in _asked_names(tree.text(path))}
    read = tree.code_names("service")
    for path, calls in document["paths"].items():
        for method, operation in calls.items() if path.startswith("/v1/") else ():
            call = f"{method.upper()} {path}"
            own = {page: text for page, text in pages.items() if f"`{call}`" in text}
            if not own:
                yield f"docs/http.md lacks the call `{call}`"
                continue
            page = "docs/http.md" if "docs/http.md" in own else min(own)
            for name in (p["name"] for p in operation.get("parameters", ()) if p["in"] == "query"):
                spelled = (f"`{name}`", f"`{name}=", f"?{name}=", f"&{name}=")
                if not any(way in text for text in own.values() for way in spelled):
                    yield f"{page} lacks the query parameter `{name}` of `{call}`"
                if name not in read:
                    yield f"service/native/ lacks a use of `{name}` of `{call}`: no route reads it"
                if name not in tested:
                    yield f"tests/service/native/ lacks a test that asks `{call}` with `{name}`"


def of_dialects(tree: Tree) -> Iterator[str]:
    """A dialect is a package in service/dialects/; rest_v2 is the name rest-v2."""
    folders = {path.split("/")[2] for path in tree.paths("service/dialects") if path.count("/") > 2}
    named = _strings(tree.text("service/base/settings.py"), "Dialect")
    table = ast.unparse(value_of(tree.text("service/dialects/table.py"), "_MAKE"))
    for folder in sorted({*folders, *(name.replace("-", "_") for name in named)}):
        name = folder.replace("_", "-")
        package = f"service/dialects/{folder}/__init__.py"
        if "def dialect(" not in tree.text(package):
            yield f"{package} lacks the function `dialect`"
        if f"{folder}.dialect" not in table:
            yield f"service/dialects/table.py lacks {folder}.dialect in _MAKE"
        if name not in named:
            yield f'service/base/settings.py lacks "{name}" in Dialect'
        if not tree.text(f"docs/{name}.md"):
            yield f"docs/{name}.md is missing: the page of the dialect {name}"
        if f"(docs/{name}.md)" not in tree.text("README.md"):
            yield f"README.md lacks a link to docs/{name}.md"
        if not any("/test_" in path for path in tree.paths(f"tests/service/dialects/{folder}")):
            yield f"tests/service/dialects/{folder}/ lacks a test"
        if name not in _words(tree.text("docs/settings.md")):
            yield f"docs/settings.md lacks {name} in the row of `--dialects`: run `make docs`"


def of_api_versions(
    tree: Tree, apis: Mapping[str, tuple[int, int]], messages: Mapping[str, tuple[int, int, Sequence[str]]]
) -> Iterator[str]:
    """`apis` are first and last versions by an API's name, `messages` those of a message, and its fields."""
    by_hand = tree.text("tests/protocol/test_messages.py")
    rows = json.loads(tree.text("tests/golden/data/tables/api_keys.json"))
    javas = {row["name"].replace("_", "").lower(): (row["oldest"], row["latest_stable"]) for row in rows}
    named = tree.words("client_core/client") | tree.words("client_core/metadata")
    named |= tree.words("client_core/producer") | tree.words("client_core/network")
    for api, versions in apis.items():
        if f"{api}Request" not in messages:
            yield f"client_core/protocol/messages/ lacks {api}: run `python -m client_core.protocol.generate`"
        if javas.get(api.lower()) != versions:
            yield (
                f"tests/golden/data/tables/api_keys.json lacks {api} at versions {_span(versions)}: "
                "it is Java's table, made anew with another Kafka"
            )
    for message, (first, last, fields) in messages.items():
        api, kind = _api_and_kind(message)
        module = f"client_core/protocol/messages/{_snake_case(message)}.py"
        of_api = apis.get(api)
        if of_api is None:
            yield f"client_core/protocol/api_keys.py lacks {api}, which {module} has"
        elif last > of_api[1] or first < of_api[0]:
            yield f"client_core/protocol/api_keys.py lacks {api} at versions {_span((first, last))}"
        elif of_api != (first, last):
            yield f"{module} lacks versions {_span(of_api)}: run `python -m client_core.protocol.generate`"
        data = f"tests/golden/data/messages/{api}.json"
        cases = json.loads(tree.text(data) or "[]")
        seen = {case["version"] for case in cases if case["type"] == kind}
        missing = [version for version in range(first, last + 1) if version not in seen]
        if missing and f"{message}(" not in by_hand:
            yield f"{data} lacks a {kind} of version {missing[0]}"
        for field in fields:
            if field not in named:
                yield f"client_core/ lacks a use of {message}.{field}: no module reads or sets it"


def _api_and_kind(message: str) -> tuple[str, str]:
    for kind in ("Request", "Response"):
        if message.endswith(kind):
            return message.removesuffix(kind), kind.lower()
    raise LookupError(message)


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _span(versions: tuple[int, int]) -> str:
    return f"{versions[0]}-{versions[1]}"


def of_gold_tables(tree: Tree) -> Iterator[str]:
    """A table is a constant GOLD_… of pipeline/tables.py."""
    constants = {
        node.target.id: ast.literal_eval(node.value)
        for node in ast.parse(tree.text("pipeline/tables.py")).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }
    gold = {name: table for name, table in constants.items() if name.startswith("GOLD_")}
    made = _keys(tree.text("pipeline/gold/__init__.py"), "GOLD")
    samples = _keys(tree.text("tests/pipeline/gold_samples.py"), "SCHEMAS")
    page = tree.text("docs/pipeline-tables.md")
    clocks = page.partition("\n### Clocks\n")[2].partition("\n## ")[0]
    tests = [p for p in tree.paths("tests/pipeline") if "/test_" in p]
    tested = set().union(*(_words(tree.text(path)) for path in tests))
    for node in ast.parse(tree.text("pipeline/gold/__init__.py")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline.gold."):
            module = f"{str(node.module).replace('.', '/')}.py"
            for function in (alias.name for alias in node.names):
                if f"\ndef {function}(" not in tree.text(module):
                    yield f"{module} lacks the function `{function}`"
            if "from pipeline.gold.clocks import" in tree.text(module) and not any(
                f"`gold_{alias.name}" in clocks for alias in node.names
            ):
                yield f"docs/pipeline-tables.md lacks a table of {module} under Clocks: it uses clocks.py"
    for name in sorted({*gold, *made}):
        table = gold.get(name, name.lower())
        if name not in gold:
            yield f"pipeline/tables.py lacks {name}"
        if name not in made:
            yield f"pipeline/gold/__init__.py lacks tables.{name} in GOLD"
        if f"\n## `{table}`\n" not in page and f" explains `{table}`" not in page:
            yield f"docs/pipeline-tables.md lacks the section of `{table}`"
        elif name not in samples and f"\n## `{table}`\n" in page:
            yield f"tests/pipeline/gold_samples.py lacks the columns of tables.{name} in SCHEMAS"
        if name not in tested and table not in tested:
            yield f"tests/pipeline/ lacks a test of {name}"


def of_commands(tree: Tree) -> Iterator[str]:
    """A command is a function of service/cli/ under @click.command or @click.group."""
    commands = _keys(tree.text("service/__main__.py"), "_COMMANDS")
    places = {ast.literal_eval(place) for place in _values(tree.text("service/__main__.py"), "_COMMANDS")}
    there = {
        (path.removesuffix(".py").replace("/", "."), function)
        for path in tree.paths("service/cli")
        for function in _commands_of(tree.text(path))
    }
    for module, function in sorted(there - places):
        yield f"service/__main__.py lacks `{function}` of {module} in _COMMANDS"
    for module, function in sorted(places - there):
        yield f"{module.replace('.', '/')}.py lacks the command `{function}`"
    pages = "".join(tree.text(path) for path in ("README.md", *tree.paths("docs", ".md")))
    tested = set().union(*(_code_names(tree.text(path)) for path in tree.paths("tests/service")))
    for name in commands:
        if re.search(rf"\bpilotfish {name}\b", pages) is None:
            yield f"docs/ lacks `pilotfish {name}`: write it into the page of its subject, or README.md"
        if name not in tested:
            yield f'tests/service/cli/ lacks a test that calls "{name}"'


def _commands_of(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            of_click = [ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list]
            if not {"click.command", "click.group"}.isdisjoint(of_click):
                yield node.name


def of_faults(tree: Tree, faults: Sequence[str]) -> Iterator[str]:
    """`faults` are the names of all faults, of the seed of the last run that was kept."""
    played = [row["fault"] for row in json.loads(tree.text("tests/chaos/results.json"))["rows"]]
    page = tree.text("docs/reliability.md")
    for name in faults:
        if name not in played or f"\n| {name}" not in page:
            yield f"docs/reliability.md lacks the row of the fault “{name}”: run `make chaos`"
    for name in played:
        if name not in faults:
            yield f"tests/chaos/ lacks the fault “{name}”, which docs/reliability.md has: run `make chaos`"


def of_benchmarks(tree: Tree) -> Iterator[str]:
    """A benchmark is a module of benchmarks/ that sets goals, and can be run."""
    run_all = _strings(tree.text("benchmarks/__main__.py"), "ALL")
    page = tree.text("benchmarks/README.md")
    recorded = [goal["name"] for goal in json.loads(tree.text("benchmarks/results.json"))["goals"]]
    for path in tree.paths("benchmarks"):
        name, text = path.removeprefix("benchmarks/").removesuffix(".py"), tree.text(path)
        goals = _goals_of(text)
        if not goals or "__main__" not in text:
            continue
        if name not in run_all and f"-m benchmarks.{name}\n" not in tree.text("Makefile"):
            yield f'benchmarks/__main__.py lacks "{name}" in ALL'
            continue
        if f"| `{name}.py` |" not in page and name in run_all:
            yield f"benchmarks/README.md lacks the row of `{name}.py`"
        is_measured = any(fnmatchcase(goal, pattern) for goal in recorded for pattern in goals)
        if name in run_all and not is_measured and name not in _NEWER_THAN_THE_RESULTS:
            yield f"benchmarks/README.md lacks the figures of `{name}.py`: run `make bench`, then `make docs`"
    for name in run_all:
        if not tree.text(f"benchmarks/{name}.py"):
            yield f"benchmarks/{name}.py is missing, which benchmarks/__main__.py has in ALL"


def _goals_of(text: str) -> list[str]:
    """The names of goals; an asterisk where a part of one is computed."""
    return [
        "".join(
            str(part.value) if isinstance(part, ast.Constant) else "*"
            for part in (name.values if isinstance(name, ast.JoinedStr) else [name])
        )
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "goal"
        for name in node.args[:1]
    ]
