"""Injects the sidecar into all manifests of a call, or removes it.

Input and output are texts, with a report per object. All or nothing: every fault of every document is found
before anything is written. Each result is parsed again and must equal the wanted values exactly; a text that
can't be edited so is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.cli.inject.container import Sidecar
from service.cli.inject.faults import AskedError, EditError, ManifestError, Place
from service.cli.inject.plain_data import data
from service.cli.inject.pod import put_in, take_out
from service.cli.inject.pod_checks import (
    Fault,
    Path,
    config_map_faults,
    faults,
    is_for_windows,
    shape_faults,
    warnings,
)
from service.cli.inject.rewriting import rewritten, value_at, with_value_at
from service.cli.inject.tree import Document, NotYamlError, at, parse
from service.cli.inject.values import Data, same
from service.cli.inject.workloads import ConfigMap, Found, Left, Workload, objects
from service.cli.inject.yaml_text import flow_text

_BOM: Final = "\ufeff"


class Source(NamedTuple):
    """A file's displayed name, and its text."""

    file: str
    text: str


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The result for one object."""

    title: str
    place: Place
    did: str
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The texts in the order of the sources, a report per object, and warnings."""

    texts: list[str]
    reports: list[ManifestReport]
    warnings: list[str]


def inject(sources: Sequence[Source], sidecar: Sidecar, only: Sequence[str] = ()) -> Result:
    """Returns the sources with the sidecar. Raises ManifestError with all faults, AskedError for `only`."""
    manifests = _Manifests(sources, only)
    config_maps = manifests.config_maps(sidecar)

    def with_sidecar(workload: Workload, template: Data, say: _Say) -> tuple[Data, str]:
        assert isinstance(template, dict)
        if is_for_windows(template):
            return template, "left as it is: its pods run on Windows"
        taken = take_out(template)
        if say.all_faults(shape_faults(taken.template)):
            return template, ""
        if say.all_faults(faults(workload.kind, taken, sidecar)):
            return template, ""
        for warning in warnings(workload.kind, taken.template, sidecar):
            say.warning(warning)
        made = put_in(taken, sidecar, _checksum(config_maps, workload))
        if not taken.had_sidecar:
            return made, "injected"
        return made, "is up to date" if same(made, template) else "brought up to date"

    return manifests.changed(with_sidecar)


def uninject(sources: Sequence[Source], only: Sequence[str] = ()) -> Result:
    """Returns all sources without the sidecar. Raises as `inject` does."""

    def without_sidecar(workload: Workload, template: Data, say: _Say) -> tuple[Data, str]:
        assert isinstance(template, dict)
        taken = take_out(template)
        if not taken.had_sidecar:
            return template, "left as it is: it has no sidecar"
        if say.all_faults(shape_faults(taken.template)):
            return template, ""
        return taken.template, "taken out"

    return _Manifests(sources, only).changed(without_sidecar)


_Change = Callable[[Workload, Data, "_Say"], tuple[Data, str]]


@dataclass(slots=True)
class _Say:
    """Collects one workload's faults and warnings."""

    document: Document
    workload: Workload
    faults: list[str]
    warnings: list[str]

    def all_faults(self, found: Iterable[Fault]) -> bool:
        """Adds the faults; returns whether there were any."""
        lines = [self._line(fault) for fault in found]
        self.faults.extend(lines)
        return bool(lines)

    def warning(self, warning: Fault) -> None:
        self.warnings.append(self._line(warning))

    def _line(self, found: Fault) -> str:
        return f"{_place(self.document, self.workload, found.path)}: {found.text}"


def _place(document: Document, found: Workload | ConfigMap, path: Path) -> Place:
    node = at(document.root, (*found.path, *path))
    return Place(found.place.file, found.place.document, found.place.what, node.line + 1)


@dataclass(slots=True)
class _Read:
    """One document and its objects."""

    document: Document
    found: list[Found]


class _Manifests:
    """All sources, parsed."""

    def __init__(self, sources: Sequence[Source], only: Sequence[str]) -> None:
        self._sources = sources
        broken: list[str] = []
        self._read: list[list[_Read]] = [list(_reading(source, broken)) for source in sources]
        if broken:
            raise ManifestError(broken)
        self._only = _chosen(only, self._workloads())
        if not any(read.found for documents in self._read for read in documents):
            named = ", ".join(source.file for source in sources)
            raise ManifestError(
                [f"{named}: has no Kubernetes object; was the command that writes it interrupted?"]
            )

    def _workloads(self) -> list[Workload]:
        everything = (found for documents in self._read for read in documents for found in read.found)
        return [found for found in everything if isinstance(found, Workload)]

    def config_maps(self, sidecar: Sidecar) -> list[tuple[ConfigMap, str]]:
        """Returns the ConfigMaps that the sidecar may use, each with its checksum."""
        known: list[tuple[ConfigMap, str]] = []
        wrong: list[str] = []
        for documents in self._read:
            for read in documents:
                for found in read.found:
                    if isinstance(found, ConfigMap) and found.name == sidecar.config_map:
                        content = value_at(_data(found.place, read.document), found.path)
                        wrong += [
                            f"{_place(read.document, found, fault.path)}: {fault.text}"
                            for fault in config_map_faults(content)
                        ]
                        known.append((found, _digest(content)))
        if wrong:
            raise ManifestError(wrong)
        return known

    def changed(self, change: _Change) -> Result:
        """Returns every text with its workloads changed."""
        result = Result([], [], [])
        wrong: list[str] = []
        for source, documents in zip(self._sources, self._read, strict=True):
            todo: list[tuple[Document, Data]] = []
            for read in documents:
                reports = len(result.reports)
                wanted = self._wanted(read, change, result, wrong)
                result.reports[reports:] = sorted(
                    result.reports[reports:], key=lambda one: one.place.line or 0
                )
                if wanted is not None:
                    todo.append((read.document, wanted))
            if not wrong:
                result.texts.append(self._written(source, todo, wrong))
        if wrong:
            raise ManifestError(wrong)
        return result

    def _wanted(self, read: _Read, change: _Change, result: Result, wrong: list[str]) -> Data:
        """Returns the document's new meaning; None if it does not change."""
        chosen = [found for found in read.found if isinstance(found, Workload) and self._is_chosen(found)]
        result.reports.extend(_untouched(found) for found in read.found if found not in chosen)
        if not chosen:
            return None
        try:
            whole = _data(chosen[0].place, read.document)
        except ManifestError as error:
            wrong.append(error.message)
            return None
        is_touched = False
        for found in chosen:
            say = _Say(read.document, found, wrong, result.warnings)
            template = value_at(whole, found.path)
            if say.all_faults(shape_faults(template)):
                continue
            made, did = change(found, template, say)
            result.reports.append(ManifestReport(found.title, found.place, did))
            if not same(made, template):
                whole = with_value_at(whole, found.path, made)
                is_touched = True
        return whole if is_touched else None

    def _written(self, source: Source, todo: list[tuple[Document, Data]], wrong: list[str]) -> str:
        body = source.text.removeprefix(_BOM)
        try:
            return source.text[: len(source.text) - len(body)] + rewritten(body, todo)
        except EditError as error:
            wrong.append(f"{Place(source.file, error.document, line=error.line + 1)}: {error.why}")
            return ""

    def _is_chosen(self, workload: Workload) -> bool:
        return self._only is None or (workload.kind.lower(), workload.name) in self._only


def _reading(source: Source, broken: list[str]) -> Iterator[_Read]:
    body = source.text.removeprefix(_BOM)
    if "\r" in body and "\n" not in body:
        broken.append(f"{source.file}: its lines end with \\r alone; convert them to \\n: tr '\\r' '\\n'")
        return
    try:
        documents = parse(body)
    except NotYamlError as error:
        place = Place(source.file, error.document, line=error.line + 1)
        broken.append(f"{place}: is not YAML: {error.why}; {_remedy(body, error.line)}")
        return
    for document in documents:
        try:
            yield _Read(document, list(objects(source.file, document)))
        except ManifestError as error:
            broken.append(error.message)
        except EditError as error:
            broken.append(f"{Place(source.file, document.number, line=error.line + 1)}: {error.why}")


def _remedy(text: str, line: int) -> str:
    """Returns the remedy for a parse error at a line, counted from 0; its cause is there or just above."""
    there = text.split("\n")[max(line - 1, 0) : line + 1]
    if any("{{" in each for each in there):
        return "it looks like a template: render it first, helm template … | pilotfish inject -f -"
    if any("\t" in each for each in there):
        return "it has tabs, and YAML is indented with spaces"
    return "correct it there, or just above"


def _chosen(only: Sequence[str], known: Sequence[Workload]) -> set[tuple[str, str]] | None:
    """Returns the named workloads, kinds in lower case; None for all."""
    if not only:
        return None
    there = {(workload.kind.lower(), workload.name) for workload in known}
    chosen = {(kind.strip().lower(), name.strip()) for kind, _, name in (one.partition("/") for one in only)}
    missing = [
        one
        for one in only
        if (one.partition("/")[0].strip().lower(), one.partition("/")[2].strip()) not in there
    ]
    if missing:
        titles = ", ".join(dict.fromkeys(workload.title for workload in known)) or "none"
        raise AskedError([f"--only {one}: there is no such workload; there are {titles}" for one in missing])
    return chosen


def _untouched(found: Found) -> ManifestReport:
    if isinstance(found, Left):
        return ManifestReport(found.title, found.place, f"left as it is: {found.why}", found.is_doubtful)
    if isinstance(found, Workload):
        return ManifestReport(found.title, found.place, "left as it is: --only does not name it")
    return ManifestReport(f"ConfigMap/{found.name}", found.place, "left as it is: it has no pods")


def _data(place: Place, document: Document) -> Data:
    try:
        return data(document.root)
    except EditError as error:
        where = Place(place.file, place.document, place.what, error.line + 1)
        raise ManifestError([f"{where}: {error.why}"]) from error


def _checksum(known: Sequence[tuple[ConfigMap, str]], workload: Workload) -> str | None:
    """Returns the checksum of the workload's namespace's ConfigMap, else of one where either names none."""
    same_namespace = [digest for one, digest in known if one.namespace == workload.namespace]
    may_be = [digest for one, digest in known if None in (one.namespace, workload.namespace)]
    return next(iter([*same_namespace, *may_be]), None)


def _digest(config_map: Data) -> str:
    content = [value_at(config_map, (part,)) for part in ("data", "binaryData")]
    ordered = [dict(sorted(part.items(), key=str)) if isinstance(part, dict) else part for part in content]
    return hashlib.sha256(flow_text(list(ordered)).encode()).hexdigest()
