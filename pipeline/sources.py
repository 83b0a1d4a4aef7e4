"""Where lines come from: a folder of files, or a Kafka topic. Each is read as a batch or as a stream.

    FilesSource("/var/lib/pilotfish/events")
    KafkaSource("broker:9092", "pilotfish.events", settings={"security.protocol": "SSL"})

Both give the columns of `raw`, which `bronze.parse` takes:

    line         STRING     the bytes as they came, which may be no UTF-8
    source       STRING     the file's path, or topic-partition@offset
    received_at  TIMESTAMP  when the file was last written; of a record the broker's time, where the topic has
                            message.timestamp.type=LogAppendTime, else the time of the batch that reads it

What can be seen to be wrong before anything is read, `check` says in a sentence. No setting's value is ever
in a message or in a repr: some are secrets.

Before a run, the source asks the Kafka cluster once whether it has the topic, by the Java client of Spark's
connector. Spark itself would ask three times for a minute each and end with a stack trace. The check blocks
for up to 15 s and reports one sentence.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.java_gateway import JavaPackage
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


DEFAULT_TOPIC: Final = "pilotfish.events"
#: Some 100 MB and a minute or two of two cores, at the sizes to which a sidecar's files grow.
MAX_FILES_PER_BATCH: Final = 1_000

#: Of the files of a folder Spark would pass over those that are a week older than the newest one.
_ANY_AGE: Final = "36500d"
#: TimestampType.LOG_APPEND_TIME, as Spark's column timestampType has it.
_LOG_APPEND_TIME: Final = 1
#: What Spark's connector sets itself, and refuses to be told ("Kafka Specific Configurations").
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


#: A broker that is there answers within milliseconds; an address that nobody has takes TCP 10 s to give up.
_PATIENCE: Final[Mapping[str, str]] = {"default.api.timeout.ms": "15000", "request.timeout.ms": "5000"}
#: By the simple name of Kafka's exception.
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
    " whether they can be reached from here. A listener with TLS or a login is silent towards a client"
    " without: look at security.protocol.",
}
_SECRET: Final = re.compile(r"password|secret|jaas|key|token", re.IGNORECASE)
_QUOTED: Final = re.compile(r"""["']([^"']+)["']""")


class KafkaCheckError(PipelineError):
    """The topic isn't there or can't be asked for. Names topic and brokers, what to look at; no secret."""


def cluster_of(spark: SparkSession, client: Mapping[str, str], topic: str) -> str:
    """The id of the cluster that has the topic. `client` are a Kafka client's settings, with its servers.

    Raises KafkaCheckError. A session on Spark Connect has no Java here to ask with: then the servers stand
    for the cluster, and nothing is checked.
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
    except Py4JJavaError as e:  # whose text may hold a secret, as may that of the other
        raise KafkaCheckError(_sentence(e.java_exception, client, topic)) from None
    except PySparkException as e:
        raise KafkaCheckError(_unknown(str(e), client)) from None


def _sentence(raised: Any, client: Mapping[str, str], topic: str) -> str:
    """What the innermost exception that we know means; else what the outermost says, without the values."""
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
    """What Java said, without values of settings that may be secret, or what stands in quotes in them."""
    for value in (value for name, value in client.items() if _SECRET.search(name)):
        for secret in (value, *_QUOTED.findall(value)):
            said = said.replace(secret, "(hidden)")
    return said


class SourceError(PipelineError):
    """What is to be read isn't there, or not to be had. Names it, and the remedy."""


class Source(Protocol):
    """Lines to be read, by one who has a session."""

    @property
    def name(self) -> str:
        """`files` or `kafka`: the folder of its checkpoint."""
        ...

    @property
    def reads(self) -> str:
        """What it reads, for people, and to tell whether a checkpoint is of the same."""
        ...

    def check(self) -> None:
        """Raises SourceError or KafkaCheckError if what it reads isn't there."""
        ...

    def batch(self, spark: SparkSession) -> DataFrame:
        """All lines that there are now."""
        ...

    def stream(self, spark: SparkSession) -> DataFrame:
        """The lines that there are, and those that come."""
        ...


class FilesSource:
    """The files of a folder and of those in it, but not what has a name that begins with a dot or underscore.

    A file must be whole when its name appears; it is read once. `folder` may be a URI that Hadoop knows.
    """

    name: Final = "files"

    def __init__(self, folder: str, max_files_per_batch: int | None = MAX_FILES_PER_BATCH) -> None:
        self._folder = folder if "://" in folder else str(Path(folder).resolve())
        self._max_files_per_batch = max_files_per_batch

    def __repr__(self) -> str:
        return f"<FilesSource {self._folder}>"

    @property
    def reads(self) -> str:
        return self._folder

    def local_bytes(self) -> int | None:
        """How much there is, read before or not; None for what is elsewhere."""
        if "://" in self._folder:
            return None
        return sum(_size_bytes(entry) for entry in Path(self._folder).rglob("*"))

    def check(self) -> None:
        if "://" not in self._folder and not Path(self._folder).is_dir():
            raise SourceError(
                f"{self._folder} is no folder: make it, or name the one with the events' files."
            )

    def batch(self, spark: SparkSession) -> DataFrame:
        return _lines_of_files(spark.read.options(**self._options()).text(self._folder))

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.options(**self._options()).option("maxFileAge", _ANY_AGE)
        if self._max_files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", str(self._max_files_per_batch))
        return _lines_of_files(reader.text(self._folder))

    def _options(self) -> dict[str, str]:
        return {
            # A carriage return alone is white space within JSON, and ends no line.
            "lineSep": "\n",
            "recursiveFileLookup": "true",
            # Files are removed some day. What was lost so is counted: the boot's numbers have a gap.
            "ignoreMissingFiles": "true",
        }


class KafkaSource:
    """A topic, a record a line. `settings` are a Kafka consumer's by Kafka's names (security.protocol, …)."""

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
        """`starting`, `earliest` or `latest`, is where a stream without a checkpoint begins.

        Raises SourceError for a setting that is Spark's own affair.
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
        """The topic and the cluster's id: addresses may change. Asks for it first, so that it may raise."""
        if self._cluster_id is None:
            self.check()
        return f"the topic {self._topic} of the Kafka cluster {self._cluster_id}"

    def check(self) -> None:
        """Asks the brokers for the topic, from the process that has the active session; waits up to 15 s."""
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
            # Records that the topic no longer keeps: to stop would bring none of them back, and there is a
            # count of them, for the boot's numbers have a gap.
            "failOnDataLoss": "false",
            "kafka.bootstrap.servers": self._bootstrap_servers,
            **{f"kafka.{name}": value for name, value in self._settings.items()},
        }


def _size_bytes(path: Path) -> int:
    """0 for a file that was removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
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
