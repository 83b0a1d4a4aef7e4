"""Spark's Kafka connector and Delta: the jars that a Spark of pyspark lacks, as pom.xml names them.

    python -m pipeline.jars.connector_jars .cache/spark/4.0.0 [--with mvn|jgo]
    pilotfish-pipeline jars --to DIR

Files and Parquet need none of them. What Spark brings itself is left out, whatever the connectors depend on:
two versions of one library on a class path are a lottery. How they are fetched: `fetched_jars.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from pyspark.find_spark_home import _find_spark_home

from pipeline.jars import fetched_jars
from pipeline.jars.fetched_jars import JarsMissingError, WantedJars, artifact_of, stamped_jars

if TYPE_CHECKING:
    from collections.abc import Mapping

POM: Final = Path(__file__).with_name("pom.xml")
_NAMESPACE: Final = {"m": "http://maven.apache.org/POM/4.0.0"}


def pom_properties() -> dict[str, str]:
    """The properties of pom.xml: spark.version, delta.version, scala.version."""
    properties = ElementTree.parse(POM).find("m:properties", _NAMESPACE)
    assert properties is not None, f"{POM} has no properties"
    return {element.tag.partition("}")[2]: (element.text or "").strip() for element in properties}


def coordinates() -> tuple[str, ...]:
    """`group:artifact:version` of what pom.xml depends on."""
    properties = pom_properties()
    return tuple(
        ":".join(
            _filled(dependency.findtext(f"m:{part}", "", _NAMESPACE), properties)
            for part in ("groupId", "artifactId", "version")
        )
        for dependency in ElementTree.parse(POM).iterfind("m:dependencies/m:dependency", _NAMESPACE)
    )


def default_folder(root: Path = Path()) -> Path:
    """Where the jars lie unless told otherwise: `.cache/spark/<version>` below the root."""
    return root / ".cache" / "spark" / pom_properties()["spark.version"]


def wanted_jars() -> WantedJars:
    """The connectors, without what the installed pyspark has."""
    return WantedJars(
        "Spark's Kafka connector and Delta",
        coordinates(),
        pom=POM.read_text(encoding="utf-8"),
        left_out=frozenset(artifact_of(jar.name) for jar in spark_jars()),
    )


def spark_jars() -> list[Path]:
    """The jars that Spark brings, or that an image put to them."""
    return sorted(Path(str(_find_spark_home()), "jars").glob("*.jar"))  # type: ignore[no-untyped-call]


def ensure_connector_jars(folder: Path, *, fetcher: str | None = None) -> tuple[Path, ...]:
    """The connectors' jars in `folder`, fetched first if they are not there. Raises JarsMissingError."""
    return fetched_jars.ensure_jars(wanted_jars(), folder, fetcher=fetcher)


def connector_jars(folder: Path) -> tuple[Path, ...]:
    """The connectors' jars in `folder`; JarsMissingError says how to fetch them when they are not there."""
    jars = stamped_jars(wanted_jars(), folder)
    if jars is None:
        raise JarsMissingError(
            f"{folder} does not hold {', '.join(coordinates())}."
            f" Fetch them with: pilotfish-pipeline jars --to {folder}"
        )
    return jars


def _filled(text: str, properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        text = text.replace(f"${{{name}}}", value)
    return text.strip()


if __name__ == "__main__":
    sys.exit(
        fetched_jars.fetch_from_command_line(
            wanted_jars(), default_folder(), sys.argv[1:], program="python -m pipeline.jars.connector_jars"
        )
    )
