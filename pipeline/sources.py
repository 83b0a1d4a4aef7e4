"""Reads lines from files or a Kafka topic, as a batch or as a stream.

    FilesSource("/var/lib/pilotfish/events")
    KafkaSource("broker:9092", "pilotfish.events", settings={"security.protocol": "SSL"})

Both return the columns of `raw`, the input of `bronze.parse`:

    line         STRING     the bytes as they came, which may not be valid UTF-8
    source       STRING     the file's path, or topic-partition@offset
    received_at  TIMESTAMP  when the file was last written; for a record the broker's time, if the topic has
                            message.timestamp.type=LogAppendTime, else the time of the batch that reads it

`check` reports errors that can be found before anything is read, in one sentence. The value of a setting is
never in a message or a repr, because some are secrets.

Before a run, the source asks the Kafka cluster once whether it has the topic, by the Java client of Spark's
connector. Spark itself would ask three times for a minute each and end with a stack trace. The check blocks
for up to a minute and reports one sentence.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.errors import PipelineError
from pipeline.stores.folders import PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame


DEFAULT_TOPIC: Final = "pilotfish.events"
#: About 100 MB, and a minute or two on two cores, with the usual size of a sidecar's files.
MAX_FILES_PER_BATCH: Final = 1_000

#: By default Spark ignores files that are a week older than the newest one in the folder.
_ANY_AGE: Final = "36500d"
#: TimestampType.LOG_APPEND_TIME, as in Spark's column timestampType.
_LOG_APPEND_TIME: Final = 1
#: Settings that Spark's connector sets itself and refuses from others ("Kafka Specific Configurations").
_SPARKS_OWN: Final = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "value.deserializer",
        "value.serializer",
    }
)


#: Kafka's own total; a broker of several is given up sooner, so that another is asked in time. A live broker
#: answers within milliseconds, but on a busy machine Java's client alone needs seconds to start.
_PATIENCE: Final[Mapping[str, str]] = {"default.api.timeout.ms": "60000", "request.timeout.ms": "20000"}
#: By the simple class name of Kafka's exception.
_SENTENCES: Final[Mapping[str, str]] = {
    "UnknownTopicOrPartitionException": "There is no topic {topic} at {servers}: create it, or name another.",
    "InvalidTopicException": "{topic} can't be a topic's name: it takes letters, digits, dots, dashes and"
    " underscores.",
    "TopicAuthorizationException": "The brokers at {servers} don't let this user see the topic {topic}.",
    "ClusterAuthorizationException": "The brokers at {servers} don't let this user see the cluster.",
    "SaslAuthenticationException": "The brokers at {servers} refused the login: look at sasl.mechanism and"
    " sasl.jaas.config.",
    "SslAuthenticationException": "No TLS with the brokers at {servers}: look at ssl.truststore.* and"
    " ssl.keystore.*. Java says: {said}",
    "TimeoutException": "No broker at {servers} answered within {waited_ms} ms: look at the addresses, and"
    " whether they can be reached from here. A listener that needs TLS or a login does not answer a client"
    " without them: look at security.protocol.",
}
_SECRET: Final = re.compile(r"password|secret|jaas|key|token", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""["']([^"']+)["']""")


class KafkaCheckError(PipelineError):
    """The topic is missing or can't be checked. Names topic, brokers and what to check; no secret."""


def cluster_of(spark: SparkSession, client: Mapping[str, str], topic: str) -> str:
    """Returns the id of the cluster that has the topic. `client`: a Kafka client's settings, with servers.

    Raises KafkaCheckError. With Spark Connect there is no Java in this process: then it returns the servers
    instead of the id, and checks nothing.
    """
    servers = client["bootstrap.servers"]
    java = getattr(spark, "_jvm", None)
    if java is None:
        return servers
    factory = java.org.apache.kafka.clients.admin.AdminClient
    if isinstance(factory, JavaPackage):
        raise KafkaCheckError(
            "Spark lacks its Kafka connector: fetch it with `pilotfish-pipeline jars`, or give spark-submit"
            " --jars."
        )
    properties = java.java.util.Properties()
    for name, value in {**_PATIENCE, **client}.items():
        properties.put(name, value)
    try:
        admin = factory.create(properties)
        try:
            admin.describeTopics([topic]).allTopicNames().get()
            return str(admin.describeCluster().clusterId().get())
        finally:
            admin.close(java.java.time.Duration.ZERO)
    except Py4JJavaError as e:  # its text may contain a secret, as may that of PySparkException
        raise KafkaCheckError(_sentence(e.java_exception, client, topic)) from None
    except PySparkException as e:
        raise KafkaCheckError(_unknown(str(e), client)) from None


def _sentence(raised: Any, client: Mapping[str, str], topic: str) -> str:
    """Returns the sentence of the innermost known exception; else the innermost message without secrets."""
    servers = client["bootstrap.servers"]
    chain = []
    while raised is not None:
        chain.append(raised)
        raised = raised.getCause()
    said = _without_secrets(str(chain[-1].getMessage()), client)
    for each in reversed(chain):
        known = _SENTENCES.get(each.getClass().getSimpleName())
        if known is not None:
            waited_ms = {**_PATIENCE, **client}["default.api.timeout.ms"]
            return known.format(topic=topic, servers=servers, waited_ms=waited_ms, said=said)
    return _unknown(said, client)


def _unknown(said: str, client: Mapping[str, str]) -> str:
    servers = client["bootstrap.servers"]
    return f"The Kafka client for {servers} can't be made or used: {_without_secrets(said, client)}"


def _without_secrets(said: str, client: Mapping[str, str]) -> str:
    """Removes the values of secret settings, and quoted parts of these values, from Java's message."""
    for value in (value for name, value in client.items() if _SECRET.search(name)):
        for secret in (value, *_QUOTED.findall(value)):
            said = said.replace(secret, "(hidden)")
    return said


class SourceError(PipelineError):
    """The source is missing or not accessible. Names it, and the remedy."""


class Source(Protocol):
    """A source of lines, read with a Spark session."""

    @property
    def name(self) -> str:
        """Returns `files` or `kafka`: the name of its checkpoint's folder."""
        ...

    @property
    def reads(self) -> str:
        """Returns what it reads, for people, and to check that a checkpoint belongs to it."""
        ...

    def check(self) -> None:
        """Raises SourceError or KafkaCheckError if its input does not exist."""
        ...

    def batch(self, spark: SparkSession) -> DataFrame:
        """Returns all lines that exist now."""
        ...

    def stream(self, spark: SparkSession) -> DataFrame:
        """Returns the existing lines and later ones, as a stream."""
        ...


class FilesSource:
    """The files of a folder and its subfolders, except names that begin with a dot or underscore.

    A file must be complete when its name appears; it is read once. `folder` may be a URI that Hadoop knows.
    """

    name: Final = "files"

    def __init__(self, folder: str, max_files_per_batch: int | None = MAX_FILES_PER_BATCH) -> None:
        self._folder = folder if "://" in folder else str(Path(folder).resolve())
        self._pattern = folder if "://" in folder else PATTERN.sub(r"\\\g<0>", self._folder)
        self._max_files_per_batch = max_files_per_batch

    def __repr__(self) -> str:
        return f"<FilesSource {self._folder}>"

    @property
    def reads(self) -> str:
        return self._folder

    def local_bytes(self) -> int | None:
        """Returns the size of all files, including those already read; None if they are not local."""
        path = self._path
        return None if path is None else sum(_size_bytes(entry) for entry in path.rglob("*"))

    def check(self) -> None:
        path = self._path
        if path is None and "://" not in self._folder:
            raise SourceError(
                f"{self._folder} is no folder: make it, or name the one with the events' files."
            )
        for name in () if path is None else _names_that_java_cannot_open(path):
            raise SourceError(f"The name of {name!r} in {self._folder} is not UTF-8: rename or remove it.")

    @property
    def _path(self) -> Path | None:
        """The folder on this machine's disk; None if it is elsewhere, or is a pattern of Spark's."""
        path = Path(self._folder.removeprefix("file://"))
        return path if path.is_dir() else None

    def batch(self, spark: SparkSession) -> DataFrame:
        return _lines_of_files(spark.read.options(**self._options()).text(self._pattern))

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.options(**self._options()).option("maxFileAge", _ANY_AGE)
        if self._max_files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", str(self._max_files_per_batch))
        return _lines_of_files(reader.text(self._pattern))

    def _options(self) -> dict[str, str]:
        return {
            # A single carriage return is white space within JSON, and ends no line.
            "lineSep": "\n",
            "recursiveFileLookup": "true",
            # Old files may be removed. Lines lost by this are counted: the boot's numbers have a gap.
            "ignoreMissingFiles": "true",
        }


class KafkaSource:
    """A topic, one line per record. `settings`: a Kafka consumer's, by Kafka's names (security.protocol)."""

    name: Final = "kafka"

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str = DEFAULT_TOPIC,
        *,
        settings: Mapping[str, str] | None = None,
        starting: str = "earliest",
        max_records_per_batch: int | None = None,
    ) -> None:
        """`starting`, `earliest` or `latest`: where a stream without a checkpoint begins.

        Raises SourceError for a setting that Spark sets itself.
        """
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._settings = dict(settings or {})
        self._starting = starting
        self._max_records_per_batch = max_records_per_batch
        self._cluster_id: str | None = None
        refused = sorted(_SPARKS_OWN & self._settings.keys())
        if refused:
            raise SourceError(f"Spark sets {', '.join(refused)} itself: leave it out of the Kafka settings.")

    def __repr__(self) -> str:
        named = ", ".join(sorted(self._settings)) or "no settings"
        return f"<KafkaSource {self._topic} at {self._bootstrap_servers} ({named})>"

    @property
    def reads(self) -> str:
        """Returns the topic and the cluster's id (addresses may change). May raise: `check` comes first."""
        if self._cluster_id is None:
            self.check()
        return f"the topic {self._topic} of the Kafka cluster {self._cluster_id}"

    def check(self) -> None:
        """Asks the brokers for the topic, through the active session's Java; waits up to a minute."""
        client = {"bootstrap.servers": self._bootstrap_servers, **self._settings}
        self._cluster_id = cluster_of(SparkSession.active(), client, self._topic)

    def batch(self, spark: SparkSession) -> DataFrame:
        return _lines_of_records(spark.read.format("kafka").options(**self._options()).load())

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("kafka").options(**self._options())
        reader = reader.option("startingOffsets", self._starting)
        if self._max_records_per_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(self._max_records_per_batch))
        return _lines_of_records(reader.load())

    def _options(self) -> dict[str, str]:
        return {
            "subscribe": self._topic,
            # The topic no longer keeps some records: stopping would not bring them back, and they are
            # counted, because the boot's numbers have a gap.
            "failOnDataLoss": "false",
            "kafka.bootstrap.servers": self._bootstrap_servers,
            **{f"kafka.{name}": value for name, value in self._settings.items()},
        }


def _names_that_java_cannot_open(folder: Path) -> Iterator[str]:
    """Yields names of files that Spark would list, then take for removed."""
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "._"]
        yield from (name for name in (*folders, *files) if name[0] not in "._" and not _is_utf8(name))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size_bytes(path: Path) -> int:
    """Returns the size; 0 for a file that was removed meanwhile, or a link that leads nowhere."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _lines_of_files(files: DataFrame) -> DataFrame:
    return files.select(
        F.col("value").alias("line"),
        F.col("_metadata.file_path").alias("source"),
        F.col("_metadata.file_modification_time").alias("received_at"),
    )


def _lines_of_records(records: DataFrame) -> DataFrame:
    is_of_the_broker = F.col("timestampType") == _LOG_APPEND_TIME
    return records.select(
        F.col("value").cast("string").alias("line"),
        F.concat("topic", F.lit("-"), "partition", F.lit("@"), "offset").alias("source"),
        F.when(is_of_the_broker, F.col("timestamp")).otherwise(F.current_timestamp()).alias("received_at"),
    )
