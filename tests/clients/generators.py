"""Clients that are generated from the OpenAPI document, by the generators that people use.

    client = generate_python(document, folder)        # openapi-python-client
    client.check()                                    # mypy --strict
    client.call(calls, token)                         # what each answered

Each generator is fetched once, in the version that is pinned here, into .cache. GeneratorMissingError names
one that can't be had. Blocks, on the caller's thread.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from pipeline.jars.connector_jars import WantedJars, ensure_jars
from tests.support import npm_packages
from tests.support.java import find_java, require_compiler
from tests.support.waiting import patient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HERE: Final = Path(__file__).parent
_ROOT: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = _ROOT / ".cache"
_TIMEOUT_S: Final = patient(600)
#: The client's package, in each language.
PACKAGE: Final = "pilotfish_api"

_GENERATOR: Final = WantedJars("OpenAPI Generator", ("org.openapitools:openapi-generator-cli:7.25.0",))
#: What its Java clients need.
_JAVA_NEEDS: Final = WantedJars(
    "the jars of generated Java clients",
    (
        "com.fasterxml.jackson.core:jackson-databind:2.21.5",
        "com.fasterxml.jackson.datatype:jackson-datatype-jsr310:2.21.5",
        "com.google.code.findbugs:jsr305:3.0.2",
        "jakarta.annotation:jakarta.annotation-api:1.3.5",
    ),
)
#: As the generators write it: `WARN`, `Warning(s)`; not in the name of a file.
_COMPLAINT: Final = re.compile(r"\b(WARN|ERROR|Warning|Error)\b")
#: Jackson's own deprecations, and a wrapper of two simple types without an id for serialization.
_LINT: Final = "-Xlint:all,-deprecation,-serial"


class Client(Protocol):
    """A generated client with a driver."""

    def call(self, calls: Sequence[Mapping[str, Any]], token: str) -> list[dict[str, Any]]:
        """Makes these calls (`Call.written_out`); for each the answer's status, type and body."""


class GeneratorMissingError(RuntimeError):
    """A generator, or what it needs, can't be had; the message names it."""


class ClientError(AssertionError):
    """A program complained; the message has its output."""


def ran(command: Sequence[object], folder: Path, sent: str = "", **environment: str) -> str:
    """Runs a program in the folder; returns what it printed. Raises ClientError."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={**os.environ, **environment},
        input=sent,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise ClientError(
            f"{command[0]} ended with {done.returncode}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
        )
    return done.stdout + ("" if sent else done.stderr)


def _refuse_warnings(printed: str) -> None:
    found = [line for line in printed.splitlines() if _COMPLAINT.search(line)]
    if found:
        raise ClientError("the generator warns:\n" + "\n".join(found))


def _write(document: Mapping[str, Any], folder: Path) -> Path:
    path = folder / "openapi.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def _answers(
    command: Sequence[object],
    folder: Path,
    calls: Sequence[Mapping[str, Any]],
    token: str,
    **environment: str,
) -> list[dict[str, Any]]:
    """What a driver prints: for each call the status, the type of the parsed body if any, and that body."""
    sent = json.dumps({"token": token, "calls": calls})
    answers: list[dict[str, Any]] = json.loads(ran(command, folder, sent, **environment))
    return answers


# -- Python --------------------------------------------------------------------------------------------------


def python_environment() -> Path:
    """The folder of programs of requirements/clients.txt. Raises GeneratorMissingError."""
    home, pins = _CACHE / "clients-venv", _ROOT / "requirements" / "clients.txt"
    stamp = home / ".complete"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        uv = shutil.which("uv", path=str(Path(sys.executable).parent))
        if uv is None:
            raise GeneratorMissingError("openapi-python-client needs uv beside Python: `make setup`")
        try:
            ran([uv, "venv", "--quiet", "--clear", "--python", sys.executable, home], _ROOT)
            sync = ("pip", "sync", "--quiet", "--require-hashes", "--python", home / "bin" / "python")
            ran([uv, *sync, pins], _ROOT)
        except ClientError as error:
            raise GeneratorMissingError(f"openapi-python-client can't be installed: {error}") from error
        stamp.write_text(pins.read_text())
    return home / "bin"


@dataclass(frozen=True, slots=True)
class PythonClient:
    """The generated package, below its folder."""

    folder: Path
    programs: Path

    def check(self) -> None:
        """Raises ClientError for an error of `mypy --strict`, but those of the generator's own client.py.

        That file is the same for every document: its `__exit__` takes `*args`.
        """
        mypy: list[str | Path] = [
            self.programs / "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            self.folder / "mypy",
        ]
        try:
            ran([*mypy, PACKAGE, "use_client.py"], self.folder)
        except ClientError as error:
            lines = str(error).splitlines()[1:]
            ours = [line for line in lines if not line.startswith(f"{PACKAGE}/client.py:")]
            if ours:
                raise ClientError("\n".join(ours)) from error

    def use(self, url: str, token: str) -> None:
        """Runs use_client.py: typed calls, as a user writes them."""
        ran([self.programs / "python", "use_client.py", url, token], self.folder)

    def call(self, calls: Sequence[Mapping[str, Any]], token: str) -> list[dict[str, Any]]:
        driver = [self.programs / "python", _HERE / "python_driver.py"]
        return _answers(driver, self.folder, calls, token, PYTHONPATH=str(self.folder))


def generate_python(document: Mapping[str, Any], folder: Path) -> PythonClient:
    """By openapi-python-client. Raises GeneratorMissingError, or ClientError for a warning."""
    programs = python_environment()
    generate = ("generate", "--meta", "none", "--output-path", PACKAGE, "--path", _write(document, folder))
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    _refuse_warnings(ran([programs / "openapi-python-client", *generate], folder, PATH=path))
    shutil.copy(_HERE / "use_client.py", folder)
    return PythonClient(folder, programs)


# -- TypeScript ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeScriptClient:
    """The generated types, and the packages that they need."""

    folder: Path
    node: Path
    packages: Path

    def use(self, url: str, token: str) -> None:
        """`tsc --strict`, and use_client.ts with openapi-fetch."""
        self._compile()
        ran([self.node, "out/use_client.js", url, token], self.folder)

    def call(self, calls: Sequence[Mapping[str, Any]], token: str) -> list[dict[str, Any]]:
        """Each call is written out in TypeScript, so that the compiler checks it too."""
        lines = [f"  () => {_in_typescript(one)}," for one in calls]
        listed = "\n".join(["const calls: (() => Promise<Answer>)[] = [", *lines, "];", ""])
        driver = (_HERE / "typescript_client" / "typescript_driver.ts").read_text(encoding="utf-8")
        (self.folder / "typescript_driver.ts").write_text(driver.replace(_NO_CALLS, listed), encoding="utf-8")
        self._compile()
        return _answers([self.node, "out/typescript_driver.js"], self.folder, calls, token)

    def _compile(self) -> None:
        ran([self.node, self.packages / ".bin" / "tsc", "--project", self.folder], self.folder)


#: The line of the driver that is replaced.
_NO_CALLS: Final = "const calls: (() => Promise<Answer>)[] = [];\n"


def generate_typescript(document: Mapping[str, Any], folder: Path) -> TypeScriptClient:
    """By openapi-typescript. Raises NodeMissingError, or ClientError for a warning."""
    node = npm_packages.find_node()
    packages = npm_packages.install(_HERE / "typescript_client") / "node_modules"
    (folder / "node_modules").symlink_to(packages)
    for path in (_HERE / "typescript_client").iterdir():
        shutil.copy(path, folder)
    # By default a member with a default value would be required, in what is sent, too.
    options = ("--default-non-nullable", "false", "-o", "schema.d.ts")
    schema: list[str | Path] = [*options, _write(document, folder)]
    _refuse_warnings(ran([node, packages / ".bin" / "openapi-typescript", *schema], folder))
    return TypeScriptClient(folder, node, packages)


def _in_typescript(one: Mapping[str, Any]) -> str:
    options = [f"baseUrl: {json.dumps(one['base'])}", f"params: {json.dumps(one['places'])}"]
    if "body" in one:
        options.append(f"body: {json.dumps(one['body'])}")
        options.append(f"headers: {json.dumps({'content-type': one['media_type']})}")
        if isinstance(one["body"], str):
            options.append("bodySerializer: (body) => body")
    if one["answer"] == "text":
        options.append('parseAs: "text"')
    return f"client.{one['method']}({json.dumps(one['path'])}, {{ {', '.join(options)} }})"


# -- Java and Go, by OpenAPI Generator -----------------------------------------------------------------------


def _generate(language: str, document: Mapping[str, Any], folder: Path, *more: str) -> None:
    (jar,) = ensure_jars(_GENERATOR, _CACHE / "openapi-generator")
    java: list[str | Path] = [
        find_java().path,
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-jar",
        jar,
        "generate",
    ]
    what: list[str | Path] = ["-g", language, "-i", _write(document, folder), "-o", folder, *more]
    _refuse_warnings(ran([*java, *what], folder))


@dataclass(frozen=True, slots=True)
class JavaClient:
    """The generated sources, and the jars that they need."""

    folder: Path
    java: Path
    jars: Sequence[Path]

    def use(self, url: str, token: str) -> None:
        """javac with all warnings as errors, and UseClient.java."""
        self._compile()
        ran([*self._java(), "UseClient", url, token], self.folder)

    def call(self, calls: Sequence[Mapping[str, Any]], token: str) -> list[dict[str, Any]]:
        self._compile()
        return _answers([*self._java(), "JavaDriver"], self.folder, calls, token)

    def _java(self) -> list[str | Path]:
        return [
            self.java,
            "-XX:TieredStopAtLevel=1",
            "-cp",
            os.pathsep.join([*map(str, self.jars), "classes"]),
        ]

    def _compile(self) -> None:
        if (self.folder / "classes").exists():
            return
        sources = [*(self.folder / "src" / "main").rglob("*.java"), *_HERE.glob("*.java")]
        javac: list[str | Path] = [
            self.java.with_name("javac"),
            _LINT,
            "-Werror",
            "-proc:none",
            "-parameters",
        ]
        places: list[str | Path] = ["-cp", os.pathsep.join(map(str, self.jars)), "-d", "classes"]
        ran([*javac, *places, *sources], self.folder)


def generate_java(document: Mapping[str, Any], folder: Path) -> JavaClient:
    """By OpenAPI Generator. Raises JavaMissingError, JarsMissingError, or ClientError for a warning."""
    java = find_java().path
    require_compiler(java)
    jars = ensure_jars(_JAVA_NEEDS, _CACHE / "java-client")
    names = f"invokerPackage={PACKAGE},apiPackage={PACKAGE}.api,modelPackage={PACKAGE}.model"
    more = ("--library", "native", f"--additional-properties={names},openApiNullable=false")
    _generate("java", document, folder, *more)
    return JavaClient(folder, java, jars)


@dataclass(frozen=True, slots=True)
class GoClient:
    """The generated module, with the two programs that use it."""

    folder: Path
    go: str

    def use(self, url: str, token: str) -> None:
        """`go vet`, and use_client.go."""
        ran([self.go, "vet", "./..."], self.folder, **_OFFLINE)
        ran([self.go, "run", "./use_client", url, token], self.folder, **_OFFLINE)

    def call(self, calls: Sequence[Mapping[str, Any]], token: str) -> list[dict[str, Any]]:
        return _answers([self.go, "run", "./go_driver"], self.folder, calls, token, **_OFFLINE)


_OFFLINE: Final = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local"}


def generate_go(document: Mapping[str, Any], folder: Path) -> GoClient:
    """By OpenAPI Generator. Raises GeneratorMissingError, or ClientError for a warning."""
    go = shutil.which("go")
    if go is None:
        raise GeneratorMissingError("Go is not on PATH: https://go.dev/dl, or `apt-get install golang`")
    _generate("go", document, folder, f"--additional-properties=packageName={PACKAGE},withGoMod=false")
    shutil.rmtree(folder / "test", ignore_errors=True)  # its tests need a package that is not here
    (folder / "go.mod").write_text(f"module {PACKAGE}\n\ngo 1.21\n")
    for program in _HERE.glob("*.go"):
        (folder / program.stem).mkdir()
        shutil.copy(program, folder / program.stem)
    return GoClient(folder, go)
