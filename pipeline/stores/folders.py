"""Operations on folders and marks, on any file system of Spark: a disk, HDFS, an object store.

Uses Hadoop's FileSystem inside Spark's driver, so a path has the same meaning here as in Spark. Renaming a
folder is atomic on a disk and on HDFS; an object store copies, and a reader may see a part of it. With Spark
Connect there is no driver in this process: StoreError says so.

Each folder of tables has a mark, so that a store does not overwrite the tables of another:

    <out>/_pilotfish.json   {"store": "parquet", "layout": 1}, written before the first table; from the first
                            closed day on 2

Reading the mark needs no Spark: the report reads Parquet without it and looks at the mark first.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError

from pipeline.stores.store import CLOSED_LAYOUT, LAYOUT, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession


MARK: Final = "_pilotfish.json"
#: Spark reads a path with one of these characters as a pattern.
PATTERN: Final = re.compile(r"[][{}*?\\]")
#: The tables that the last run could not make, with the reasons (refresh.py).
FAILED: Final = "_failed.json"


def mark_of(kind: str) -> dict[str, Any]:
    """Returns the mark that this version of Pilotfish writes for this kind of store."""
    return {"store": kind, "layout": LAYOUT}


def read_json_object(path: str, text: str) -> Mapping[str, Any]:
    """Parses the file's text; returns {} if it is no object. Raises StoreError if it is no JSON."""
    try:
        said = json.loads(text)
    except ValueError as e:
        raise StoreError(f"{path} is no JSON: it isn't Pilotfish's, or was cut short.") from e
    return said if isinstance(said, dict) else {}


def no_tables(out: str) -> StoreError:
    """Returns the error for a folder that no run has written to."""
    return StoreError(f"{out} holds no tables: `pilotfish-pipeline run` with --out {out} makes them.")


def require_mark_on_disk(out: str, kind: str) -> None:
    """Raises StoreError unless this local folder has tables of this kind of store. Needs no Spark."""
    try:
        mark = _read_json(f"{out}/{MARK}", _text_on_disk)
    except (OSError, ValueError) as error:
        raise no_tables(out) from error
    if mark is None:
        raise no_tables(out)
    refuse_if_foreign(mark, out, kind)


def failed_tables_on_disk(out: str) -> Mapping[str, Any]:
    """Returns the tables in this local folder that the last run could not make, and why. Needs no Spark."""
    return _read_json(f"{out}/{FAILED}", _text_on_disk) or {}


def refuse_if_foreign(mark: Mapping[str, Any], out: str, kind: str) -> None:
    """Raises StoreError unless the folder's mark has a known layout and this kind of store."""
    if mark.get("layout") not in (LAYOUT, CLOSED_LAYOUT):
        raise StoreError(
            f"The tables in {out} are of layout {mark.get('layout')}, and this version of Pilotfish knows"
            f" layouts {LAYOUT} and {CLOSED_LAYOUT}: give a new --out, and have the events read again."
        )
    if mark.get("store") != kind:
        raise StoreError(
            f"The tables in {out} are of the store {mark.get('store')}: say --store {mark.get('store')}, or"
            " give a new --out."
        )


class Folders:
    """Reads and writes folders and small files. Raises StoreError if that fails."""

    def __init__(self, spark: SparkSession) -> None:
        if not hasattr(spark, "_jvm"):
            raise StoreError(
                "The tables need a Spark driver of their own, not Spark Connect: start it with"
                " --master local[*], or by spark-submit."
            )
        self._jvm: Any = spark._jvm
        self._configuration: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def exists(self, path: str) -> bool:
        """Returns whether there is such a folder or file."""
        return bool(self._call("read", path, lambda fs, at: fs.exists(at)))

    def names(self, path: str) -> list[str]:
        """Returns the sorted names in a folder; empty if it does not exist."""
        if not self.exists(path):
            return []
        return sorted(
            status.getPath().getName()
            for status in self._call("read", path, lambda fs, at: fs.listStatus(at))
        )

    def size_bytes(self, path: str) -> int:
        """Returns the size of all files in a folder."""
        return int(self._call("read", path, lambda fs, at: fs.getContentSummary(at).getLength()))

    def make(self, path: str) -> None:
        """Makes the folder and its parents, unless it exists."""
        self._call("written", path, lambda fs, at: fs.mkdirs(at))

    def delete(self, path: str) -> None:
        """Deletes a file, or a folder with its content; does nothing if it does not exist."""
        self._call("written", path, lambda fs, at: fs.delete(at, True))

    def move(self, path: str, to: str) -> None:
        """Renames a folder; deletes its target first."""
        self.delete(to)
        target = self._path(to)
        self.make(to.rpartition("/")[0])
        if not self._call("written", path, lambda fs, at: fs.rename(at, target)):
            raise StoreError(f"{path} can't be renamed to {to}: see whether something else writes there.")

    def read_json(self, path: str) -> dict[str, Any] | None:
        """Returns the object in a small file; None if the file does not exist."""
        return _read_json(path, self._text)

    def delete_json(self, path: str) -> None:
        """Deletes a small file, and what a killed driver left beside it; nothing if there is none."""
        self.delete(_beside(path))
        self.delete(path)

    def write_json(self, path: str, says: dict[str, Any]) -> None:
        """Writes a small file as a whole or not at all; an existing one is then replaced or unchanged."""
        beside = _beside(path)
        stream = self._call("written", beside, lambda fs, at: fs.create(at, True))
        try:
            stream.write(bytearray(json.dumps(says, indent=1).encode() + b"\n"))
        finally:
            stream.close()
        self.move(beside, path)

    def _text(self, path: str) -> str | None:
        return str(self._call("read", path, self._content)) if self.exists(path) else None

    def _content(self, fs: Any, at: Any) -> str:
        stream = fs.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    def _call(self, done: str, path: str, call: Any) -> Any:
        """Calls the path's file system; converts its exceptions to a StoreError that names the path."""
        try:
            at = self._path(path)
            return call(at.getFileSystem(self._configuration), at)
        except Py4JJavaError as e:
            cause: Any = e.java_exception
            raise StoreError(
                f"{path} can't be {done}: {cause.getMessage() or cause.getClass().getName()}."
            ) from e


def _beside(path: str) -> str:
    """Returns where a small file is written before it is renamed to its place."""
    return f"{path}.new"


def _text_on_disk(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _read_json(path: str, text_of: Callable[[str], str | None]) -> dict[str, Any] | None:
    """Returns the object in a small file; None if the file does not exist.

    A driver killed in `write_json`, after the old file was deleted, leaves the new one beside its place.
    """
    if (text := text_of(path)) is not None:
        return dict(read_json_object(path, text))
    beside = _beside(path)
    if (text := text_of(beside)) is not None:
        # Only half of it, if the driver was killed while it wrote.
        with suppress(StoreError):
            return dict(read_json_object(beside, text))
    return None
