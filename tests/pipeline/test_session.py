"""The one Spark session: its settings, the Java that it takes, and the error when it can't be started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from pipeline.java import JavaMissingError
from pipeline.session import evaluation_for, find_java, has_delta, spark_session

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: In a process of its own, where no session is and nothing of Delta.
_PROGRAM: Final = """
import json, os
from pathlib import Path
from pipeline.session import SessionError, has_delta, spark_session

def refused(**options):
    try:
        spark_session(**options)
    except SessionError as error:
        return str(error)

seen = {"elsewhere": refused(master="sc://127.0.0.1:1"), "no such master": refused(master="moon")}
options = {"spark.driver.extraJavaOptions": "-Dours=1 -XX:+UseParallelGC"}
spark = spark_session(master="local[1]", is_short=True, settings=options)
seen["delta"] = has_delta(spark)
seen["too late for delta"] = refused(jars=[Path("delta-spark_2.13-4.0.0.jar")])
seen["our option"] = spark.sparkContext._jvm.java.lang.System.getProperty("ours")
management = spark.sparkContext._jvm.java.lang.management.ManagementFactory
arguments = management.getRuntimeMXBean().getInputArguments()
seen["compiled once"] = "-XX:TieredStopAtLevel=1" in arguments
seen["long methods are compiled"] = "-XX:-DontCompileHugeMethods" in arguments
seen["rows"] = spark.range(3).count()
Path("gr\\u00fcn").write_text("1")
read = spark.read.option("ignoreMissingFiles", True)
seen["lines of a name beyond ASCII"] = read.text("gr\\u00fcn").count()
names = ("JAVA_HOME", "LC_ALL", "PYSPARK_PYTHON", "SPARK_REMOTE")
seen["environment"] = {name: os.environ.get(name) for name in names}
spark.stop()
print(json.dumps(seen))
"""


def test_the_session_has_the_settings_that_the_tables_depend_on_and_listens_on_the_loopback_only(
    spark: SparkSession,
) -> None:
    wanted = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.variant.allowDuplicateKeys": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    assert {name: spark.conf.get(name) for name in wanted} == wanted


def test_workers_run_the_python_that_runs_the_driver(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable


def test_a_session_that_is_there_is_used(spark: SparkSession) -> None:
    assert spark_session("another", master="local[7]", shuffle_partitions=99) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.parametrize(("rows", "is_interpreted"), [(10, True), (10_000_000, False)])
def test_little_input_is_interpreted_and_the_settings_are_afterwards_what_they_were(
    spark: SparkSession, rows: int, is_interpreted: bool
) -> None:
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = [spark.conf.get(name) for name in names]
    with evaluation_for(spark.range(rows).groupBy("id").count()):
        inside = [spark.conf.get(name) for name in names]
    assert inside == (["false", "NO_CODEGEN"] if is_interpreted else before)
    assert [spark.conf.get(name) for name in names] == before


def test_delta_is_set_up_by_its_jar_alone(spark: SparkSession, tmp_path: Path) -> None:
    assert has_delta(spark)
    spark.range(5).write.format("delta").save(str(tmp_path / "five"))
    assert spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/five`").count() == 1


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What the program saw, and what it wrote to standard error."""
    find_java()  # JavaMissingError says what to install
    environment = {
        name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_REMOTE"}
    }
    environment["LC_ALL"] = "C"
    folder = tmp_path_factory.mktemp("alone")
    (folder / "program.py").write_text(_PROGRAM, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), ran.stderr


@pytest.mark.spark
def test_a_session_without_jars_has_no_delta_and_says_so_when_it_is_asked_for(
    alone: tuple[dict[str, Any], str],
) -> None:
    seen, _ = alone
    assert (seen["rows"], seen["delta"], seen["our option"]) == (3, False, "1")
    assert seen["compiled once"], "is_short; Java would not start with two collectors"
    assert seen["long methods are compiled"], "and not interpreted"
    assert seen["too late for delta"].startswith("The Spark session that is active was started without Delta")


@pytest.mark.spark
def test_a_failing_session_is_reported_with_its_requirements(alone: tuple[dict[str, Any], str]) -> None:
    seen, _ = alone
    assert seen["elsewhere"].startswith("Spark Connect at sc://127.0.0.1:1 gives no session")
    assert "pip install 'pyspark[connect]'" in seen["elsewhere"]
    assert seen["no such master"].startswith("Spark does not start: ")


@pytest.mark.spark
def test_a_file_whose_name_is_not_ascii_is_read_in_a_locale_that_is(
    alone: tuple[dict[str, Any], str],
) -> None:
    seen, _ = alone
    assert seen["lines of a name beyond ASCII"] == 1


@pytest.mark.spark
def test_the_environment_is_afterwards_what_it_was(alone: tuple[dict[str, Any], str]) -> None:
    seen, _ = alone
    assert seen["environment"] == {
        "JAVA_HOME": None,
        "LC_ALL": "C",
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON"),
        "SPARK_REMOTE": None,
    }


def _java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return program


def test_a_java_that_spark_does_not_run_on_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for version, major in (("1.8.0_402", 8), ("11.0.22", 11), ("24", 24), ("25.0.1", 25)):
        root = tmp_path / version
        java = _java(root / "home", version)
        with pytest.raises(JavaMissingError) as caught:
            find_java({"JAVA_HOME": str(root / "home")}, root)
        assert str(caught.value).startswith(
            f"Spark 4 needs Java 17 or 21. Found only {java} (version {major}). Install"
        )


def test_a_java_that_repeats_options_in_another_encoding_is_asked_for_its_version(tmp_path: Path) -> None:
    program = _java(tmp_path / "home", "21.0.4")
    picked_up = b"echo 'Picked up JAVA_TOOL_OPTIONS: -Dx=\xfc' >&2\n"
    program.write_bytes(program.read_bytes().replace(b"echo", picked_up + b"echo", 1))
    assert find_java({"JAVA_HOME": str(tmp_path / "home")}, tmp_path).version == 21


def test_a_java_that_fits_is_found_behind_one_that_does_not(tmp_path: Path) -> None:
    _java(tmp_path / "home", "25")
    fitting = _java(tmp_path / "usr/lib/jvm/java-21", "21.0.4")
    java = find_java({"JAVA_HOME": str(tmp_path / "home")}, tmp_path)
    assert (java.path, java.version) == (fitting, 21)
    assert java.home == tmp_path / "usr/lib/jvm/java-21"
