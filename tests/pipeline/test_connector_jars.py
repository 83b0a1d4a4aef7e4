"""The connectors fit the Spark that is installed, and their folder appears whole. Maven is a shell script."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

import pyspark
import pytest

from pipeline.jars.connector_jars import (
    JarsMissingError,
    artifact_of,
    connector_jars,
    coordinates,
    default_folder,
    ensure_connector_jars,
    pom_properties,
    spark_jars,
)

_ROOT: Final = Path(__file__).resolve().parents[2]
_KAFKA: Final = "spark-sql-kafka-0-10_2.13-4.0.0.jar"
_DELTA: Final = "delta-spark_2.13-4.0.0.jar"


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An `mvn` that brings the connectors, one jar that they need, and one that Spark has too."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    jars = (_KAFKA, _DELTA, "kafka-clients-3.9.0.jar", "scala-library-2.13.13.jar")
    program.write_text(
        '#!/bin/sh\nfor a in "$@"; do case "$a" in -DoutputDirectory=*) out="${a#*=}";; esac; done\n'
        f"cp pom.xml {tmp_path}/pom.xml 2>/dev/null\n"
        + "".join(f'echo jar > "$out/{jar}"\n' for jar in jars),
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_the_connectors_are_of_the_version_of_spark_that_is_installed_and_pinned() -> None:
    pins = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pinned = pins["project"]["optional-dependencies"]["pipeline"]
    version = pom_properties()["spark.version"]
    assert version == pyspark.__version__
    assert f"pyspark=={version}" in pinned


def test_the_connectors_are_of_the_scala_that_spark_is_made_with() -> None:
    (core,) = (jar.name for jar in spark_jars() if jar.name.startswith("spark-core_"))
    assert core.startswith(f"spark-core_{pom_properties()['scala.version']}-")


def test_the_coordinates_are_those_of_the_pom_with_its_versions() -> None:
    assert coordinates() == (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "io.delta:delta-spark_2.13:4.0.0",
    )


def test_no_version_is_written_anywhere_else() -> None:
    """The Makefile and the documents read it from the pom, or refer to the pom."""
    makefile = (_ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"spark[^\n]*4\.0\.0", makefile, re.IGNORECASE) is None


def test_jars_that_spark_brings_are_left_out(tmp_path: Path, maven: Path) -> None:
    jars = ensure_connector_jars(tmp_path / "jars")
    assert maven.exists()
    assert [jar.name for jar in jars] == [_DELTA, "kafka-clients-3.9.0.jar", _KAFKA]
    assert connector_jars(tmp_path / "jars") == jars


def test_a_folder_without_them_is_refused_with_the_command_that_fetches_them(tmp_path: Path) -> None:
    with pytest.raises(JarsMissingError, match=f"pilotfish-pipeline jars --to {tmp_path}$"):
        connector_jars(tmp_path)


def test_they_lie_below_the_cache_by_the_version_of_spark() -> None:
    assert default_folder(Path("/project")) == Path("/project/.cache/spark/4.0.0")


def test_a_jar_is_known_by_its_name_without_the_version() -> None:
    artifacts = {
        "delta-spark_2.13-4.0.0.jar": "delta-spark_2.13",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar": "spark-token-provider-kafka-0-10_2.13",
        "scala-library-2.13.13.jar": "scala-library",
        "jakarta.servlet-api-5.0.0.jar": "jakarta.servlet-api",
        "netty-transport-native-epoll-4.1.118.Final-linux-x86_64.jar": "netty-transport-native-epoll",
        "plain.jar": "plain",
    }
    assert {name: artifact_of(name) for name in artifacts} == artifacts
