"""Makes the Spark session of all jobs; the only place for its settings.

    spark = spark_session("pilotfish-pipeline", jars=connector_jars("kafka", "delta"))

Three ways to run are distinguished by what the environment has already decided:

- A plain `python`: Spark starts inside this process, on `local[*]` or the given master, with a Java 17 or 21
  found on this machine; JavaMissingError says what to install.
- `spark-submit` (its gateway is in the environment): the submitter decides on master, jars, memory and
  addresses. Only the settings that the tables depend on are set.
- Spark Connect (a master `sc://host:port`, or SPARK_REMOTE): the server's own settings can't be changed here.
  Session settings are set; the server must have the Kafka and Delta jars.

A session that is already active is used unchanged. Blocks; a start takes several seconds.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError, first_line
from pipeline.jars.connector_jars import spark_jars
from pipeline.java import Java, first_fitting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

#: Spark 4.0 is tested on 17 and 21 (its documentation, "Downloading"). From 23 on Hadoop's login fails,
#: because Subject.getSubject needs a security manager (JEP 486).
_JAVA_VERSIONS: Final = range(17, 22)
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_LOOPBACK: Final = "127.0.0.1"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_EXTENSIONS_KEY: Final = "spark.sql.extensions"
_JAVA_OPTIONS_KEY: Final = "spark.driver.extraJavaOptions"
#: By default Java interprets methods of more than 8,000 bytes. Those that Spark generates for the checks of
#: bronze.py are longer: ten million events took 1,077 CPU seconds, and 820 with these methods compiled.
_LONG_METHODS: Final = "-XX:-DontCompileHugeMethods"
#: Java's second compiler, C2, pays off only after minutes: 100,000 events took 117 CPU seconds with it and 81
#: without, a million 200 and 229 (Java 17, two cores). Without C2, the code cache would be 48 MB, which Spark
#: fills. Spark's classes need 200 MB, and Java would collect at each of eight steps up to that.
_SHORT_RUN: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m"
#: Spark's buffers are "humongous" to G1: every second collection is for one of them.
_SERIAL_GC: Final = "-XX:+UseSerialGC"
#: Java does not start with two of them.
_NAMES_A_GC: Final = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_ENVIRONMENT: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
#: Input up to this size is read faster than code for it is compiled, which took a third of a run over 2,000
#: events.
_LITTLE_BYTES: Final = 2 * 2**20
_INTERPRETED: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

#: With one of these as LC_ALL, Java opens no file whose name has a letter beyond ASCII, and Spark takes it
#: for one that was removed. Python itself replaces them in any other variable (PEP 538).
_ASCII_LOCALES: Final = ("C", "POSIX")

#: Settings that the tables depend on or every run profits from: session settings, allowed everywhere.
SESSION_SETTINGS: Final[Mapping[str, str]] = {
    # Event times are UTC instants; hours of gold are UTC hours.
    "spark.sql.session.timeZone": "UTC",
    # Spark 4's default, made explicit: an overflow is an error and not a wrong number.
    "spark.sql.ansi.enabled": "true",
    # Spark's default for Parquet is INT96, which is deprecated and has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The last value of a duplicate key counts, for a variant as for every other JSON reader here.
    "spark.sql.variant.allowDuplicateKeys": "true",
}
#: By default Delta reads its log with 50 tasks, and VACUUM lists a table's folders with up to 10,000; our
#: tables have one folder with few files.
_DELTA_SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


class SessionError(PipelineError):
    """The requested session is not possible; the message says why, and what to do."""


class SparkNotStartedError(SessionError):
    """Spark's Java ended, or refused a setting. What it said is in its own output."""

    exit_code = 1


def spark_session(
    app_name: str = "pilotfish-pipeline",
    *,
    master: str | None = None,
    jars: Sequence[Path] = (),
    shuffle_partitions: int | None = None,
    driver_memory: str | None = None,
    is_short: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Returns the active session, or a new one.

    `master` is Spark's (`local[2]`, `spark://…`, `sc://…`); None: `local[*]`, or the submitter's. `jars` are
    added to the class path; Delta is set up if its jar is among them or among Spark's own.
    `shuffle_partitions`: None is twice the cores on one machine, and on a cluster Spark's 200, merged as
    sizes allow. `driver_memory` is Java's, as "4g". `is_short`: the run ends within minutes, so Java uses
    only its fast compiler. `settings` are Spark settings by name and override all of these. Other users of
    the machine can see them in the process list, so put secrets into Spark's own files.

    Raises JavaMissingError without Java 17 to 21, SparkNotStartedError, and SessionError if an active session
    lacks Delta although its jar is among `jars`.
    """
    _quieten()
    session_settings = _session_settings(settings, shuffle_partitions)
    remote = _remote(master)
    if remote is not None:
        return _connected(app_name, remote, session_settings)
    active = _active()
    if active is not None:
        return _fit(active, jars)
    if is_submitted():
        return _started({"spark.app.name": app_name, **_submitted_settings(), **session_settings})
    own = _own_process_settings(master, jars, driver_memory)
    delta = _delta_settings(jar.name for jar in (*jars, *spark_jars()))
    java_options = _java_options(settings, is_short=is_short)
    environment = {"JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    if os.environ.get("LC_ALL") in _ASCII_LOCALES:
        environment["LC_ALL"] = "C.UTF-8"
    with _environment(**environment):
        return _started({"spark.app.name": app_name, **own, **delta, **session_settings, **java_options})


@contextlib.contextmanager
def evaluation_for(rows: DataFrame) -> Iterator[None]:
    """Lets Spark interpret the plans of actions meanwhile, instead of compiling code for them, if what these
    rows are made of is small. The result is the same.
    """
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    size_bytes = sum(leaves.apply(at).stats().sizeInBytes() for at in range(leaves.size()))
    wanted = _INTERPRETED if size_bytes <= _LITTLE_BYTES else {}
    settings = rows.sparkSession.conf
    before = {name: settings.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            settings.set(name, value)
        yield
    finally:
        for name, was in before.items():
            if was is None:
                settings.unset(name)
            else:
                settings.set(name, was)


def is_running() -> bool:
    """Returns whether spark_session would use an active session; its user must leave it running."""
    return _active() is not None


def find_java(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Java:
    """Returns the first Java that Spark runs on; JavaMissingError lists those found and what to install."""
    return first_fitting(_JAVA_VERSIONS, "Spark 4 needs Java 17 or 21.", environ, root)


def _quieten() -> None:
    """Silences loggers of pyspark and py4j that repeat what the raised exception says.

    py4j would log every option of a reader at DEBUG, including secrets, and each callback to Python at INFO.
    """
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)


def is_submitted() -> bool:
    """Returns whether spark-submit started this process: then Spark already runs and waits at a gateway."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def has_delta(spark: SparkSession) -> bool:
    """Returns whether the session can read and write Delta tables."""
    return _DELTA_EXTENSION in (spark.conf.get(_EXTENSIONS_KEY, "") or "")


def _session_settings(settings: Mapping[str, str] | None, shuffle_partitions: int | None) -> dict[str, str]:
    wanted = dict(SESSION_SETTINGS)
    if shuffle_partitions is not None:
        wanted["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    return wanted | dict(settings or {})


def _own_process_settings(
    master: str | None, jars: Sequence[Path], driver_memory: str | None
) -> dict[str, str]:
    """Returns the settings that only the process that starts Spark can set."""
    master = master or "local[*]"
    wanted = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.structuredLogging.enabled": "false",
    }
    if master.startswith("local"):
        wanted |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        }
    if jars:
        wanted["spark.jars"] = ",".join(str(jar) for jar in jars)
    if driver_memory is not None:
        wanted["spark.driver.memory"] = driver_memory
    return wanted


def _java_options(settings: Mapping[str, str] | None, *, is_short: bool) -> dict[str, str]:
    """Returns the Java options for our log settings and the compiler; given options come last and win."""
    given = (settings or {}).get(_JAVA_OPTIONS_KEY, "")
    options = [f"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}", _LONG_METHODS]
    if is_short:
        options.append(_SHORT_RUN)
        if not any(
            map(_NAMES_A_GC.search, (given, *(os.environ.get(name, "") for name in _JAVA_ENVIRONMENT)))
        ):
            options.append(_SERIAL_GC)
    options.append(given)
    return {_JAVA_OPTIONS_KEY: " ".join(filter(None, options))}


def _delta_settings(jar_names: Iterable[str], extensions: str = "") -> dict[str, str]:
    """Returns Delta's settings; empty if its jar is missing."""
    if not any(name.startswith("delta-spark_") for name in jar_names):
        return {}
    named = [name for name in extensions.split(",") if name and name != _DELTA_EXTENSION]
    return {
        _EXTENSIONS_KEY: ",".join([*named, _DELTA_EXTENSION]),
        "spark.sql.catalog.spark_catalog": _DELTA_CATALOG,
        **_DELTA_SESSION_SETTINGS,
    }


def _submitted_settings() -> dict[str, str]:
    """Returns Delta's settings if the submitter gave its jar, by path or by coordinate."""
    SparkContext._ensure_initialized()
    conf = SparkConf()
    given = f"{conf.get('spark.jars', '')},{conf.get('spark.jars.packages', '')}".split(",")
    names = [name.rpartition("/")[2].removeprefix("io.delta:") for name in given]
    return _delta_settings([*names, *(jar.name for jar in spark_jars())], conf.get(_EXTENSIONS_KEY, ""))


def _remote(master: str | None) -> str | None:
    """Returns the Spark Connect server to use, if any; a given master takes precedence."""
    named = master if master is not None else os.environ.get("SPARK_REMOTE")
    return named if named is not None and named.startswith("sc://") else None


def _connected(app_name: str, remote: str, settings: Mapping[str, str]) -> SparkSession:
    try:
        session = SparkSession.builder.appName(app_name).remote(remote).getOrCreate()
        for name, value in settings.items():
            session.conf.set(name, value)
    except (ImportError, PySparkException) as error:
        raise SessionError(
            f"Spark Connect at {remote} gives no session: {error}. It needs pip install 'pyspark[connect]',"
            " and a server of Spark 4.0."
        ) from error
    return session


def _started(settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise SparkNotStartedError(
            f"Spark does not start: {first_line(error).rstrip('.')}. Java's output says why: look at"
            " --master, --memory, and JAVA_TOOL_OPTIONS."
        ) from error


def _active() -> SparkSession | None:
    """Returns the session of this thread or of the process: foreachBatch runs in another thread."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _fit(active: SparkSession, jars: Sequence[Path]) -> SparkSession:
    if _delta_settings(jar.name for jar in jars) and not has_delta(active):
        raise SessionError(
            "The Spark session that is active was started without Delta: stop it, or start it by"
            " spark_session with the same jars."
        )
    return active


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Sets variables for processes started meanwhile, then restores the earlier values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
