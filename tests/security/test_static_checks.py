"""Checks of the code and its pins without running it, and without the internet."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from client_core.network.sasl.scram_sasl_client import ScramMechanism
from requirements.audit import COMPARED_OFFLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parents[2]
PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
ADVISORIES: Final[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "advisories.toml").read_text())

#: What runs in the sidecar's process.
SOURCES: Final = sorted(
    path
    for room in ("service", "client_core")
    for path in (ROOT / room).rglob("*.py")
    if path.parent.name != "messages"
)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def place(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


#: The kinds of nodes that a check looks at.
_LOOKED_AT: Final = (
    *(ast.Assign, ast.Attribute, ast.Call, ast.Compare, ast.Constant),
    *(ast.Import, ast.ImportFrom, ast.keyword),
)


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    return [
        (path, node) for path in SOURCES for node in ast.walk(tree_of(path)) if isinstance(node, _LOOKED_AT)
    ]


# -- the code ------------------------------------------------------------------------------------------------

#: Turns text or bytes into running code, or runs them in a shell.
_RUNS_TEXT: Final = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "runpy.run_path"}
_UNSAFE_MODULES: Final = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "xmlrpc",
    "telnetlib",
    "ftplib",
}
_WEAK_HASHES: Final = {"md5", "sha1", "md4"}


def test_nothing_that_was_read_is_ever_run() -> None:
    found = [
        place(path, node)
        for path, node in nodes()
        if isinstance(node, ast.Call) and dotted(node.func) in _RUNS_TEXT
    ]
    assert found == []


def imported() -> Iterator[tuple[Path, ast.AST, str]]:
    for path, node in nodes():
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield path, node, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield path, node, node.module or ""


def test_no_module_that_runs_what_it_reads_is_imported() -> None:
    found = [
        place(path, node) for path, node, module in imported() if module.partition(".")[0] in _UNSAFE_MODULES
    ]
    assert found == []


def test_yaml_is_read_by_the_round_trip_reader_only() -> None:
    """ruamel's `rt` and `safe` make no objects; `unsafe` would. PyYAML is not there at all."""
    assert not [place(path, node) for path, node, module in imported() if module == "yaml"]
    kinds = {
        keyword.value.value
        for _, node in nodes()
        if isinstance(node, ast.Call) and dotted(node.func).endswith("YAML")
        for keyword in node.keywords
        if keyword.arg == "typ" and isinstance(keyword.value, ast.Constant)
    }
    assert kinds <= {"rt", "safe"}


def test_no_process_is_started_and_no_shell_asked() -> None:
    assert not [place(path, node) for path, node, module in imported() if module == "subprocess"]
    assert not [
        place(path, node) for path, node in nodes() if isinstance(node, ast.keyword) and node.arg == "shell"
    ]


def test_no_certificate_goes_unverified() -> None:
    found = [
        place(path, node)
        for path, node in nodes()
        if dotted(node).endswith((".CERT_NONE", "._create_unverified_context"))
        or (isinstance(node, ast.keyword) and node.arg == "verify" and _is(node.value, False))
        or (
            isinstance(node, ast.Assign)
            and dotted(node.targets[0]).endswith(".check_hostname")
            and _is(node.value, False)
        )
    ]
    assert found == []


def _is(node: ast.AST, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


#: A repeated group that is possessive, and an atomic one.
_POSSESSIVE_GROUP: Final = re.compile(r"(?<!\\)\)(?:[*+?]|\{[\d,]+\})\+|\(\?>")


def test_groups_of_patterns_are_possessive_only_where_python_can() -> None:
    """Before 3.11.5 they match wrongly (CPython gh-106052), and JSON of 64 KiB was none: POSSESSIVE."""
    found = []
    for path, node in nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if _POSSESSIVE_GROUP.search(text) and "(?:" in text:
                found.append(place(path, node))
    assert found == []
    assert _POSSESSIVE_GROUP.search(r"(?:[^a]++|b)*+")


def test_no_weak_hash_is_used() -> None:
    found = [
        place(path, node)
        for path, node in nodes()
        if (isinstance(node, ast.Attribute) and dotted(node) in {f"hashlib.{name}" for name in _WEAK_HASHES})
        or (
            isinstance(node, ast.Call)
            and dotted(node.func) in {"hashlib.new", "hmac.new", "hmac.digest", "hashlib.pbkdf2_hmac"}
            and any(isinstance(each, ast.Constant) and each.value in _WEAK_HASHES for each in ast.walk(node))
        )
    ]
    assert found == []


def test_scram_knows_no_weak_hash() -> None:
    assert {mechanism.hash_name for mechanism in ScramMechanism} == {"sha256", "sha512"}


#: Modules that make values that must not be guessed: tokens, boot ids, SCRAM's nonce, ids of spans' requests.
_MAKES_SECRETS: Final = {
    "service/admission/tokens_file.py": "secrets",
    "client_core/network/sasl/scram_sasl_client.py": "secrets",
}


def test_values_that_must_not_be_guessed_come_from_secrets() -> None:
    for file, module in _MAKES_SECRETS.items():
        modules = {name for path, _, name in imported() if path == ROOT / file}
        assert module in modules, file
        assert "random" not in modules, file


_SECRET_NAME: Final = re.compile(r"(?:^|_)(token|password|secret|digest|signature|nonce|authorization)s?$")
#: Compared as they are, since they are not secret.
_NO_SECRET: Final = {
    "service/produce/idempotency.py": "the digest of a body, which distinguishes two requests of one caller",
    "client_core/network/sasl/scram_sasl_client.py": "the nonce, which both sides send in the clear",
    "service/lookup/paging.py": "a page's token, which names the last item of the page before",
}


def test_no_secret_is_compared_in_a_time_that_depends_on_the_secret() -> None:
    found = [
        place(path, node)
        for path, node in nodes()
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops)
        and any(_names_secret(side) for side in (node.left, *node.comparators))
        and str(path.relative_to(ROOT)) not in _NO_SECRET
    ]
    assert found == []


def _names_secret(node: ast.AST) -> bool:
    return _SECRET_NAME.search(dotted(node).rpartition(".")[2].lower()) is not None


def test_secrets_that_are_compared_are_compared_in_constant_time() -> None:
    for file in ("service/admission/drain.py", "client_core/network/sasl/scram_sasl_client.py"):
        calls = {dotted(node.func) for node in ast.walk(tree_of(ROOT / file)) if isinstance(node, ast.Call)}
        assert "hmac.compare_digest" in calls, file


def test_a_callers_token_is_found_by_its_digest() -> None:
    """A look-up in a table of SHA-256s: its time depends only on a digest that nobody can choose."""
    tree = tree_of(ROOT / "service/admission/access.py")
    (judge,) = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "judge"]
    gets = [n for n in ast.walk(judge) if isinstance(n, ast.Call) and dotted(n.func).endswith(".get")]
    assert [dotted(argument) for call in gets for argument in call.args] == ["digest"]
    assert not [n for n in ast.walk(judge) if isinstance(n, ast.Compare) and "token" in ast.unparse(n)]


def test_the_linters_rules_of_security_are_on_for_what_runs_in_the_sidecar() -> None:
    lint = PYPROJECT["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    assert lint["ignore"] == ["S101"]
    left_out = {
        room for room, rules in lint["per-file-ignores"].items() if any(r.startswith("S") for r in rules)
    }
    assert left_out == {"pipeline/**", "{benchmarks,examples,tests}/**"}


def test_every_exception_from_them_says_why() -> None:
    excused = re.compile(r"# noqa: (?P<rules>[A-Z0-9, ]*\bS\d{3}[A-Z0-9, ]*)(?P<why>.*)$", re.MULTILINE)
    found = [match for path in SOURCES for match in excused.finditer(path.read_text())]
    assert found
    assert not [match[0] for match in found if not re.match(r" ?-+ \w", match["why"])]


# -- the pins ------------------------------------------------------------------------------------------------


class Pin(NamedTuple):
    """One line of a requirements file, with those that go on with it."""

    requirement: Requirement
    hashes: list[str]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> Version:
        (only,) = self.requirement.specifier
        return Version(only.version)


FILES: Final = sorted((ROOT / "requirements").glob("*.txt"), key=lambda path: path.name)
#: What each file is compiled of: extras of pyproject, or a file of its own.
EXTRAS: Final = {
    "run.txt": (),
    "otel.txt": ("otel",),
    "oauth.txt": ("oauth",),
    "msk-iam.txt": ("msk-iam",),
    "pipeline.txt": ("pipeline",),
    "dev.txt": ("oauth", "otel", "pipeline", "test", "check", "build"),
    "lowest.txt": ("oauth", "otel", "pipeline", "test", "check", "build"),
    "bench.txt": ("bench", "build"),
}
#: What the image may be made of.
IMAGES: Final = ("run.txt", "otel.txt", "oauth.txt", "msk-iam.txt")
#: botocore wants an older python-dateutil than the pipeline's tests have, so these are not in dev.txt.
#: test_distributions_installed.py installs them in an environment of their own.
_MSK_IAM: Final = {
    *("aws-msk-iam-sasl-signer-python", "boto3", "botocore", "jmespath", "s3transfer"),
    "python-dateutil",
}


@cache
def pins_of(path: Path) -> list[Pin]:
    text = "".join(
        line for line in path.read_text().splitlines(keepends=True) if not line.lstrip().startswith("#")
    )
    pins: list[Pin] = []
    for line in text.replace("\\\n", " ").splitlines():
        written, *hashes = line.split("--hash=")
        if written.strip():
            pins.append(Pin(Requirement(written.strip()), [each.strip() for each in hashes]))
    return pins


def test_everything_is_pinned_to_one_version_with_hashes() -> None:
    for path in FILES:
        assert pins_of(path), path
        for pin in pins_of(path):
            assert [each.operator for each in pin.requirement.specifier] == ["=="], (path, pin)
            assert pin.hashes, (path, pin)
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in pin.hashes), (path, pin)
            assert pin.requirement.url is None, (path, pin)


def test_no_address_and_no_registry_is_named() -> None:
    for line in [line.lstrip() for path in FILES for line in path.read_text().splitlines()]:
        assert not line.startswith(("-", "git+")) or line.startswith("--hash="), line
        assert "://" not in line
        assert " @ " not in line


def asked_for(extras: tuple[str, ...]) -> list[Requirement]:
    project = PYPROJECT["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def test_the_pins_are_what_the_project_asks_for() -> None:
    for file in EXTRAS:
        pinned = {pin.name: pin for pin in pins_of(ROOT / "requirements" / file)}
        for wanted in asked_for(EXTRAS[file]):
            pin = pinned[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(pin.version, prereleases=True), (
                f"{file}: {wanted} and {pin.version}"
            )


def test_a_pin_that_is_no_longer_needed_is_found() -> None:
    for file, extras in EXTRAS.items():
        own = {canonicalize_name(wanted.name) for wanted in asked_for(extras)}
        text = (ROOT / "requirements" / file).read_text()
        direct = {
            canonicalize_name(match["name"])
            for match in re.finditer(
                r"^(?P<name>[\w.-]+)(?:\[[\w,]*\])?==(?:(?!^\S).)*?pilotfish \(pyproject\.toml\)",
                text,
                re.MULTILINE | re.DOTALL,
            )
        }
        assert direct == own, file


def test_every_file_of_pins_is_known_here() -> None:
    own = {path.name.removesuffix(".in") + ".txt" for path in (ROOT / "requirements").glob("*.in")}
    assert {path.name for path in FILES} == {*EXTRAS, *own}


def test_the_image_installs_the_tested_versions() -> None:
    tested = {pin.name: pin.version for pin in pins_of(ROOT / "requirements" / "dev.txt")}
    for file in IMAGES:
        for pin in pins_of(ROOT / "requirements" / file):
            if file != "msk-iam.txt" or pin.name not in _MSK_IAM:
                assert tested[pin.name] == pin.version, f"{file}: {pin.name}"


def test_the_lowest_versions_are_those_that_the_project_allows() -> None:
    pinned = {pin.name: pin.version for pin in pins_of(ROOT / "requirements" / "lowest.txt")}
    for wanted in asked_for(("oauth", "otel", "pipeline")):
        (bound,) = (each.version for each in wanted.specifier if each.operator in {">=", "=="})
        assert pinned[canonicalize_name(wanted.name)] == Version(bound), wanted


def test_no_pin_of_the_image_is_a_version_with_a_known_vulnerability(
    record_property: Callable[[str, object], None],
) -> None:
    """Those known at the table's date; `make audit` looks for newer ones."""
    record_property("advisories_as_of", str(ADVISORIES["as_of"]))
    assert {*IMAGES, "lowest.txt"} == {*COMPARED_OFFLINE}
    for file in COMPARED_OFFLINE:
        pinned = {pin.name: pin.version for pin in pins_of(ROOT / "requirements" / file)}
        for advisory in ADVISORIES["advisory"]:
            version = pinned.get(advisory["package"])
            if version is None:
                continue
            is_affected = Version(advisory.get("since", "0")) <= version < Version(advisory["fixed"])
            assert not is_affected, (
                f"{file}: {advisory['package']} {version} has {advisory['id']}; "
                f"take {advisory['fixed']} or later (as of {ADVISORIES['as_of']})"
            )


def test_the_table_of_advisories_is_of_packages_that_are_installed() -> None:
    pinned = {pin.name for file in IMAGES for pin in pins_of(ROOT / "requirements" / file)}
    assert {advisory["package"] for advisory in ADVISORIES["advisory"]} <= pinned
