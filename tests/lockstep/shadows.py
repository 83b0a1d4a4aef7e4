"""The declared deviations, and what each changes in Kafka's source: shadows.

A deviation is explained, not excused: Kafka's source with that change behaves like ours. `compile_shadows`
applies all changes to the sources of Kafka's jar, each behind a flag, and compiles them beside it. A trace
says which flags are set. With none set the classes do what the jar's do; the headline runs without them.

docs/decisions/0015-lockstep-deviations.md has the reason of each deviation.
"""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.java import find_java
from tests.support.kafka_jars import KAFKA_VERSION, ensure_jars

if TYPE_CHECKING:
    from pathlib import Path

_COMPILER: Final = "jdk.compiler/com.sun.tools.javac.Main"
_CLIENTS: Final = "org/apache/kafka/clients"
_INTERNALS: Final = f"{_CLIENTS}/producer/internals"


class Deviation(NamedTuple):
    """A name, and what ours does in a line."""

    name: str
    summary: str


DEVIATIONS: Final = (
    Deviation("expiry", "batches expire before the drain, and all of them, in flight or retried"),
    Deviation("halves", "a batch that is too large is split into two parts at least"),
    Deviation("window", "the first batch of a partition goes alone, five at most since the oldest in flight"),
    Deviation("sequences", "sequences begin anew only when the fate of those in flight is known"),
    Deviation("turns", "no turn that only looks again: after a send, or while batches wait for their turn"),
    Deviation("brokers", "bootstrap connections are closed when brokers are known; a throttled one is up"),
    Deviation(
        "sticky", "keyless records: no stale queue length, and a switch comes before a request for memory"
    ),
    Deviation("asking", "InitProducerId is asked for without blocking the thread"),
)


class Change(NamedTuple):
    """A piece of a source file, and what replaces it."""

    path: str
    before: str
    after: str


CHANGES: Final = (
    # -- expiry ----------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/Sender.java",
        "        MetadataSnapshot metadataSnapshot = metadata.fetchMetadataSnapshot();\n"
        "        // get the list of partitions with data ready to send\n",
        """        boolean anyExpired = false;
        if (Shadows.expiry) {
            accumulator.resetNextBatchExpiryTime();
            List<ProducerBatch> queued = this.accumulator.expiredBatches(now);
            List<ProducerBatch> underWay = getExpiredInflightBatches(now);
            failExpiredBatches(queued, now, true);
            failExpiredBatches(underWay, now, false);
            anyExpired = !queued.isEmpty() || !underWay.isEmpty();
        }
        MetadataSnapshot metadataSnapshot = metadata.fetchMetadataSnapshot();
        if (Shadows.sticky && metadataSnapshot != tidiedFor) {
            tidiedFor = metadataSnapshot;
            accumulator.forgetTopics(metadata::containsTopic);
        }
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        """        accumulator.resetNextBatchExpiryTime();
        List<ProducerBatch> expiredInflightBatches = getExpiredInflightBatches(now);
        List<ProducerBatch> expiredBatches = this.accumulator.expiredBatches(now);

        failExpiredBatches(expiredBatches, now, true);
        failExpiredBatches(expiredInflightBatches, now, false);
""",
        """        if (!Shadows.expiry) {
            accumulator.resetNextBatchExpiryTime();
            List<ProducerBatch> expiredInflightBatches = getExpiredInflightBatches(now);
            List<ProducerBatch> expiredBatches = this.accumulator.expiredBatches(now);

            failExpiredBatches(expiredBatches, now, true);
            failExpiredBatches(expiredInflightBatches, now, false);
        }
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        """                        accumulator.maybeUpdateNextBatchExpiryTime(batch);
                        break;
""",
        """                        if (!Shadows.expiry) {
                            accumulator.maybeUpdateNextBatchExpiryTime(batch);
                            break;
                        }
                        nextInFlightExpiryMs =
                            Math.min(nextInFlightExpiryMs,
                                batch.createdMs + accumulator.getDeliveryTimeoutMs());
""",
    ),
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        """                    while (!deque.isEmpty()) {
                        ProducerBatch batch = deque.getFirst();
                        if (batch.hasReachedDeliveryTimeout(deliveryTimeoutMs, now)) {
                            deque.poll();
""",
        """                    java.util.Iterator<ProducerBatch> place = deque.iterator();
                    while (place.hasNext()) {
                        ProducerBatch batch = place.next();
                        if (batch.hasReachedDeliveryTimeout(deliveryTimeoutMs, now)) {
                            place.remove();
""",
    ),
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        """                            maybeUpdateNextBatchExpiryTime(batch);
                            break;
""",
        """                            maybeUpdateNextBatchExpiryTime(batch);
                            if (!Shadows.expiry || !batch.wasDrained())
                                break;
""",
    ),
    Change(
        f"{_INTERNALS}/ProducerBatch.java",
        "    void drained(long nowMs) {\n",
        """    boolean wasDrained() {
        return drainedMs != 0 || isSplitBatch;
    }

    void drained(long nowMs) {
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        "            inflightBatchList.add(batch);\n",
        """            inflightBatchList.add(batch);
            nextInFlightExpiryMs =
                Math.min(nextInFlightExpiryMs, batch.createdMs + accumulator.getDeliveryTimeoutMs());
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        """    private List<ProducerBatch> getExpiredInflightBatches(long now) {
        List<ProducerBatch> expiredBatches = new ArrayList<>();
""",
        """    private MetadataSnapshot tidiedFor;
    private long nextInFlightExpiryMs = Long.MAX_VALUE;

    private List<ProducerBatch> getExpiredInflightBatches(long now) {
        List<ProducerBatch> expiredBatches = new ArrayList<>();
        if (Shadows.expiry) {
            if (now < nextInFlightExpiryMs)
                return expiredBatches;
            nextInFlightExpiryMs = Long.MAX_VALUE;
        }
""",
    ),
    # -- halves ----------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/ProducerBatch.java",
        "            if (!batch.tryAppendForSplit(",
        "            if ((Shadows.halves && batch.recordCount >= (recordCount + 1) / 2)\n"
        "                    || !batch.tryAppendForSplit(",
    ),
    # -- window ----------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        """                    if (shouldStopDrainBatchesForPartition(first, tp))
                        break;
""",
        """                    if (shouldStopDrainBatchesForPartition(first, tp)) {
                        if (Shadows.window)
                            continue;
                        break;
                    }
""",
    ),
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        "            if (!first.hasSequence()) {\n                if (transactionManager.hasInflight",
        """            if (Shadows.window && !first.hasSequence() && transactionManager.windowIsFull(tp))
                return true;

            if (!first.hasSequence()) {
                if (transactionManager.hasInflight""",
    ),
    Change(
        f"{_INTERNALS}/TransactionManager.java",
        "    synchronized boolean hasInflightBatches(",
        """    synchronized boolean windowIsFull(TopicPartition topicPartition) {
        return txnPartitionMap.getOrCreate(topicPartition).windowIsFull();
    }

    synchronized boolean hasInflightBatches(""",
    ),
    Change(
        f"{_INTERNALS}/TxnPartitionEntry.java",
        "        inflightBatchesBySequence.add(batch);\n    }\n\n    void setLast",
        """        ProducerBatch behind = null;
        for (ProducerBatch other : inflightBatchesBySequence) {
            if (PRODUCER_BATCH_COMPARATOR.compare(other, batch) < 0)
                followers.merge(other, 1, Integer::sum);
            else if (behind == null)
                behind = other;
        }
        followers.put(batch, behind == null ? 0 : followers.get(behind) + 1);
        inflightBatchesBySequence.add(batch);
    }

    /** Batches that were added after each one in flight. */
    private final java.util.Map<ProducerBatch, Integer> followers = new java.util.IdentityHashMap<>();

    boolean windowIsFull() {
        if (inflightBatchesBySequence.isEmpty())
            return false;
        int safe = lastAckedSequence == NO_LAST_ACKED_SEQUENCE_NUMBER ? 1 : 5;
        return followers.get(inflightBatchesBySequence.first()) + 1 >= safe;
    }

    void setLast""",
    ),
    Change(
        f"{_INTERNALS}/TxnPartitionEntry.java",
        "        inflightBatchesBySequence.remove(batch);\n",
        "        inflightBatchesBySequence.remove(batch);\n        followers.remove(batch);\n",
    ),
    Change(
        f"{_INTERNALS}/TxnPartitionEntry.java",
        "        nextSequence = sequence.value;\n",
        """        nextSequence = sequence.value;
        int behind = inflightBatchesBySequence.size();
        for (ProducerBatch each : inflightBatchesBySequence)
            followers.put(each, --behind);
""",
    ),
    # -- sequences -------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/TransactionManager.java",
        "        if (exception instanceof OutOfOrderSequenceException && !isTransactional()) {\n",
        """        if (Shadows.sequences) {
            if (!batch.hasSequence())
                return;
            boolean isGap = adjustSequenceNumbers || exception instanceof OutOfOrderSequenceException
                    || exception instanceof UnknownProducerIdException;
            if (isGap && !hasInflightBatches(batch.topicPartition))
                requestIdempotentEpochBumpForPartition(batch.topicPartition);
            else
                markSequenceUnresolved(batch);
            return;
        }

        if (exception instanceof OutOfOrderSequenceException && !isTransactional()) {
""",
    ),
    Change(
        f"{_INTERNALS}/TransactionManager.java",
        "        int lastAckedSequence = "
        "maybeUpdateLastAckedSequence(batch.topicPartition, batch.lastSequence());\n",
        """        boolean isPresent = producerIdAndEpoch(batch.topicPartition).equals(
                new ProducerIdAndEpoch(batch.producerId(), batch.producerEpoch()));
        int lastAckedSequence = Shadows.sequences && !isPresent ? -1
                : maybeUpdateLastAckedSequence(batch.topicPartition, batch.lastSequence());
""",
    ),
    Change(
        f"{_INTERNALS}/TransactionManager.java",
        "        } else if (error == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER) {\n",
        """        } else if (Shadows.sequences && error == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER) {
            boolean isGap = batch.hasSequence() && !batch.sequenceHasBeenReset()
                    && (hasUnresolvedSequence(batch.topicPartition)
                        ? nextBatchBySequence(batch.topicPartition) == batch
                        : isNextSequence(batch.topicPartition, batch.baseSequence()));
            if (isGap)
                requestIdempotentEpochBumpForPartition(batch.topicPartition);
            return true;
        } else if (error == Errors.OUT_OF_ORDER_SEQUENCE_NUMBER) {
""",
    ),
    Change(
        f"{_INTERNALS}/TransactionManager.java",
        "                if (isNextSequence(topicPartition, sequenceNumber(topicPartition))) {\n",
        """                if (isNextSequence(topicPartition, sequenceNumber(topicPartition))
                        || Shadows.sequences && hasStaleProducerIdAndEpoch(topicPartition)) {
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        "            if (transactionManager != null && expiredBatch.inRetry()) {\n",
        "            if (transactionManager != null\n"
        "                    && (Shadows.sequences ? expiredBatch.hasSequence() "
        ": expiredBatch.inRetry())) {\n",
    ),
    # -- turns -----------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/Sender.java",
        """        long pollTimeout = Math.min(result.nextReadyCheckDelayMs, notReadyTimeout);
        pollTimeout = Math.min(pollTimeout, this.accumulator.nextExpiryTimeMs() - now);
""",
        """        boolean moreWaits = !Shadows.turns || accumulator.hasUndrained();
        long nextCheckMs = moreWaits ? result.nextReadyCheckDelayMs : Long.MAX_VALUE;
        long pollTimeout = Math.min(nextCheckMs, notReadyTimeout);
        pollTimeout = Math.min(pollTimeout, this.accumulator.nextExpiryTimeMs() - now);
        if (Shadows.expiry)
            pollTimeout = Math.min(pollTimeout, nextInFlightExpiryMs - now);
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        "            pollTimeout = 0;\n        }\n        sendProduceRequests(batches, now);\n",
        """            if (!Shadows.turns)
                pollTimeout = 0;
            else if (moreWaits)
                pollTimeout = batches.values().stream().anyMatch(each -> !each.isEmpty())
                    ? 0 : Math.min(pollTimeout, Math.max(retryBackoffMs, 10));
        }
        if (anyExpired)
            pollTimeout = 0;
        sendProduceRequests(batches, now);
""",
    ),
    Change(
        f"{_INTERNALS}/Sender.java",
        """                    client.poll(retryBackoffMs, time.milliseconds());
                    return;
""",
        """                    long fatalPollMs = Shadows.turns ? Long.MAX_VALUE : retryBackoffMs;
                    client.poll(fatalPollMs, time.milliseconds());
                    return;
""",
    ),
    Change(
        f"{_CLIENTS}/NetworkClient.java",
        "        return !metadataUpdater.isUpdateDue(now) && canSendRequest(node.idString(), now);\n",
        """        if (metadataUpdater.isUpdateDue(now)) {
            org.apache.kafka.clients.producer.internals.Shadows.writesEndIt = true;
            return false;
        }
        return canSendRequest(node.idString(), now);
""",
    ),
    Change(
        f"{_CLIENTS}/NetworkClient.java",
        "        this.inFlightRequests.add(inFlightRequest);\n",
        """        if (!clientRequest.expectResponse())
            org.apache.kafka.clients.producer.internals.Shadows.writesEndIt = true;
        this.inFlightRequests.add(inFlightRequest);
""",
    ),
    # -- brokers ---------------------------------------------------------------------------------------------
    Change(
        f"{_CLIENTS}/NetworkClient.java",
        "                    && connectionStates.isReady(node.idString(), now)\n",
        """                    && (org.apache.kafka.clients.producer.internals.Shadows.brokers
                        ? connectionStates.isUp(node.idString())
                        : connectionStates.isReady(node.idString(), now))
""",
    ),
    Change(
        f"{_CLIENTS}/ClusterConnectionStates.java",
        "    private boolean isReady(NodeConnectionState state, long now) {\n",
        """    boolean isUp(String id) {
        NodeConnectionState state = nodeState.get(id);
        return state != null && state.state == ConnectionState.READY;
    }

    private boolean isReady(NodeConnectionState state, long now) {
""",
    ),
    Change(
        f"{_CLIENTS}/NetworkClient.java",
        "        handleRebootstrap(responses, updatedNow);\n",
        """        handleRebootstrap(responses, updatedNow);
        if (org.apache.kafka.clients.producer.internals.Shadows.brokers)
            leaveBootstrapServers(updatedNow);
""",
    ),
    Change(
        f"{_CLIENTS}/NetworkClient.java",
        "    private void initiateConnect(Node node, long now) {\n"
        "        String nodeConnectionId = node.idString();\n",
        """    private final java.util.Set<String> bootstrapIds = new java.util.TreeSet<>();

    private void leaveBootstrapServers(long now) {
        if (metadataUpdater.fetchNodes().stream().noneMatch(node -> node.id() >= 0))
            return;
        for (String id : List.copyOf(bootstrapIds)) {
            if (!inFlightRequests.isEmpty(id))
                continue;
            bootstrapIds.remove(id);
            if (!connectionStates.isDisconnected(id)) {
                selector.close(id);
                apiVersions.remove(id);
                nodesNeedingApiVersionsFetch.remove(id);
                connectionStates.disconnected(id, now);
            }
        }
    }

    private void initiateConnect(Node node, long now) {
        String nodeConnectionId = node.idString();
        if (node.id() < 0)
            bootstrapIds.add(nodeConnectionId);
""",
    ),
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        "    public boolean hasUndrained() {\n",
        """    void forgetTopics(java.util.function.Predicate<String> isHeld) {
        for (String topic : List.copyOf(topicInfoMap.keySet())) {
            TopicInfo info = topicInfoMap.get(topic);
            if (!isHeld.test(topic) && info.batches.values().stream().allMatch(Deque::isEmpty))
                topicInfoMap.remove(topic);
        }
    }

    public boolean hasUndrained() {
""",
    ),
    # -- sticky ----------------------------------------------------------------------------------------------
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        "                        return appendResult;\n                    }\n                }\n\n"
        "                if (buffer == null) {\n",
        """                        return appendResult;
                    }
                    if (Shadows.sticky
                            && partitionChanged(topic, topicInfo, partitionInfo, dq, nowMs, cluster))
                        continue;
                }

                if (buffer == null) {
""",
    ),
    Change(
        f"{_INTERNALS}/RecordAccumulator.java",
        "                            --queueSizesIndex;\n",
        """                        {
                            if (Shadows.sticky && queueSizes != null)
                                queueSizes[queueSizesIndex] = 0;
                            --queueSizesIndex;
                        }
""",
    ),
)

_FLAGS: Final = "\n".join(
    (
        "package org.apache.kafka.clients.producer.internals;",
        "",
        "/** Which deviations Kafka's classes shadow. */",
        "public final class Shadows {",
        *(f"    public static boolean {each.name};" for each in DEVIATIONS),
        "    /** Whether a write ends a poll: it completes a request, or a caller waits for a due update. */",
        "    public static boolean writesEndIt;",
        "}",
        "",
    )
)


class ShadowsMissingError(RuntimeError):
    """Kafka's sources can't be had, or are not those that the changes were made for."""


def compile_shadows(folder: Path) -> Path:
    """Returns a folder of classes for the class path before Kafka's jars. Fetches the sources with Maven."""
    archive = folder / f"kafka-clients-{KAFKA_VERSION}-sources.jar"
    if not archive.exists():
        _fetch(folder)
    sources, classes = folder / "shadow-sources", folder / "shadow-classes"
    changed: dict[str, str] = {f"{_INTERNALS}/Shadows.java": _FLAGS}
    with zipfile.ZipFile(archive) as jar:
        for change in CHANGES:
            text = changed.get(change.path) or jar.read(change.path).decode()
            if text.count(change.before) != 1:
                raise ShadowsMissingError(f"{change.path} does not have once: {change.before}")
            changed[change.path] = text.replace(change.before, change.after)
    for path, text in changed.items():
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        (sources / path).write_text(text)
    java = str(find_java().path)
    jars = ":".join(map(str, ensure_jars()))
    files = [str(sources / path) for path in changed]
    subprocess.run(
        [java, "-m", _COMPILER, "-nowarn", "-Xlint:none", "-d", str(classes), "-cp", jars, *files],
        check=True,
    )
    return classes


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise ShadowsMissingError("Maven (mvn) is not installed: Kafka's sources can't be fetched")
    artifact = f"org.apache.kafka:kafka-clients:{KAFKA_VERSION}:jar:sources"
    subprocess.run(
        [
            "mvn",
            "-B",
            "-q",
            "-Dstyle.color=never",
            "dependency:copy",
            f"-Dartifact={artifact}",
            f"-DoutputDirectory={folder}",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
