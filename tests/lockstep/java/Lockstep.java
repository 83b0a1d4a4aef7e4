package org.apache.kafka.clients.producer.internals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.clients.ApiVersions;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.ClientResponse;
import org.apache.kafka.clients.Metadata;
import org.apache.kafka.clients.MetadataRecoveryStrategy;
import org.apache.kafka.clients.NetworkClient;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.SaslAuthenticationException;
import org.apache.kafka.common.internals.ClusterResourceListeners;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ChannelState;
import org.apache.kafka.common.network.NetworkReceive;
import org.apache.kafka.common.network.NetworkSend;
import org.apache.kafka.common.network.Selectable;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.utils.ExponentialBackoff;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * Kafka's own producer parts over a network that Python plays, one line of JSON a step.
 *
 * The parts are those of the jar: Sender, RecordAccumulator, TransactionManager, ProducerMetadata, NetworkClient,
 * BuiltInPartitioner. Only what is random or an accident of a hash map is steered: the factor of the backoffs is 1,
 * random numbers come from Python, nodes and partitions are in the order of their ids.
 *
 * The program runs `Sender.runOnce` for ever. A poll that would sleep is a step: it prints the state as one line, and
 * reads what happens next as another line. A poll that has something to report, or may not sleep, returns at once.
 * tests/lockstep/java_side.py is the other end.
 */
public final class Lockstep {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
    /** So many polls in a row may return without anything to report before it counts as spinning. */
    private static final int MOST_IDLE_POLLS = 4;
    /** Of each queue a state has the number of batches and records, and so many batches. */
    private static final int SHOWN_BATCHES = 4;

    public static void main(String[] arguments) throws Exception {
        JsonNode settings = JSON.readTree(IN.readLine());
        while (settings != null) {
            try {
                new Trace(settings.get("new")).run();
            } catch (NextTrace next) {
                settings = next.settings;
            }
        }
    }

    /** Leaves a trace from inside its poll: an Error, which the client's own code does not catch. */
    private static final class NextTrace extends Error {
        final JsonNode settings;

        NextTrace(JsonNode settings) {
            super(null, null, false, false);
            this.settings = settings;
        }
    }

    /** A flag of the shadowed classes; the jar alone has none. */
    private static final class Flag {
        private final Field field;

        Flag(String name) {
            Field found = null;
            try {
                found = Class.forName("org.apache.kafka.clients.producer.internals.Shadows").getDeclaredField(name);
            } catch (ReflectiveOperationException problem) {
                // Kafka's own classes
            }
            field = found;
        }

        boolean isSet() {
            try {
                return field != null && field.getBoolean(null);
            } catch (IllegalAccessException problem) {
                throw new IllegalStateException(problem);
            }
        }

        void clear() {
            try {
                if (field != null)
                    field.setBoolean(null, false);
            } catch (IllegalAccessException problem) {
                throw new IllegalStateException(problem);
            }
        }
    }

    private static final Flag TURNS = new Flag("turns");
    private static final Flag WRITES_END_IT = new Flag("writesEndIt");

    // -- what is steered -----------------------------------------------------------------------------------------

    private static Object get(Class<?> owner, Object target, String name) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(target);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    private static void set(Class<?> owner, Object target, String name, Object value) {
        try {
            Field field = owner.getDeclaredField(name);
            field.setAccessible(true);
            field.set(target, value);
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** The random factor of a backoff is 1. */
    private static void withoutJitter(Class<?> owner, Object target, String name) {
        ExponentialBackoff backoff = (ExponentialBackoff) get(owner, target, name);
        set(ExponentialBackoff.class, backoff, "jitter", 0.0);
    }

    private static final class Steered extends Random {
        int number;

        @Override
        public int nextInt(int bound) {
            return number % bound;
        }
    }

    private static final Comparator<PartitionInfo> BY_TOPIC_AND_NUMBER =
        Comparator.comparing(PartitionInfo::topic).thenComparingInt(PartitionInfo::partition);

    private static Map<Object, List<PartitionInfo>> sorted(Object lists) {
        Map<Object, List<PartitionInfo>> result = new HashMap<>();
        ((Map<?, ?>) lists).forEach((key, list) -> {
            List<PartitionInfo> copy = new ArrayList<>();
            ((List<?>) list).forEach(each -> copy.add((PartitionInfo) each));
            copy.sort(BY_TOPIC_AND_NUMBER);
            result.put(key, Collections.unmodifiableList(copy));
        });
        return Collections.unmodifiableMap(result);
    }

    /** The order of a snapshot's nodes is random in Kafka, that of its partitions the one of a hash map. */
    private static final class SteeredMetadata extends ProducerMetadata {
        private Cluster ordered;

        SteeredMetadata(ProducerConfig config, LogContext log, Time time) {
            super(config.getLong(ProducerConfig.RETRY_BACKOFF_MS_CONFIG),
                config.getLong(ProducerConfig.RETRY_BACKOFF_MAX_MS_CONFIG),
                config.getLong(ProducerConfig.METADATA_MAX_AGE_CONFIG),
                config.getLong(ProducerConfig.METADATA_MAX_IDLE_CONFIG),
                log, new ClusterResourceListeners(), time);
        }

        @Override
        public Cluster fetch() {
            return ordered(super.fetch());
        }

        @Override
        public org.apache.kafka.clients.MetadataSnapshot fetchMetadataSnapshot() {
            org.apache.kafka.clients.MetadataSnapshot snapshot = super.fetchMetadataSnapshot();
            ordered(snapshot.cluster());
            return snapshot;
        }

        private Cluster ordered(Cluster cluster) {
            if (cluster != ordered) {
                List<Node> nodes = new ArrayList<>(cluster.nodes());
                nodes.sort(Comparator.comparingInt(Node::id));
                set(Cluster.class, cluster, "nodes", Collections.unmodifiableList(nodes));
                for (String name : List.of("partitionsByTopic", "availablePartitionsByTopic", "partitionsByNode"))
                    set(Cluster.class, cluster, name, sorted(get(Cluster.class, cluster, name)));
                ordered = cluster;
            }
            return cluster;
        }
    }

    // -- one trace -----------------------------------------------------------------------------------------------

    private static final class Trace {
        final VirtualTime time;
        final Steered random = new Steered();
        final Network network;
        final SteeredMetadata metadata;
        final RecordAccumulator accumulator;
        final TransactionManager manager;
        final NetworkClient client;
        final Sender sender;
        final Metrics metrics = new Metrics();
        final int batchBytes;
        final CompressionType compression;

        final StringBuilder outcomes = new StringBuilder();
        final StringBuilder appended = new StringBuilder();
        final StringBuilder failures = new StringBuilder();
        final List<String> topics = new ArrayList<>();
        final List<Integer> partitionCounts = new ArrayList<>();
        List<ProduceRequestResult> flushed;
        long senderTimeoutMs;
        long turns;

        Trace(JsonNode settings) {
            time = new VirtualTime(settings.get("now").asLong());
            if (settings.has("shadows"))
                shadow(settings.get("shadows"));
            Map<String, Object> properties = new HashMap<>();
            settings.get("config").properties().forEach(each -> properties.put(each.getKey(), each.getValue().asText()));
            properties.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            properties.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
            ProducerConfig config = new ProducerConfig(properties);
            settings.get("topics").properties().forEach(each -> {
                topics.add(each.getKey());
                partitionCounts.add(each.getValue().asInt());
            });
            LogContext log = new LogContext();
            network = new Network(this);
            metadata = new SteeredMetadata(config, log, time);
            withoutJitter(Metadata.class, metadata, "refreshBackoff");
            List<InetSocketAddress> addresses = new ArrayList<>();
            settings.get("bootstrap").forEach(
                each -> addresses.add(new InetSocketAddress(each.get(0).asText(), each.get(1).asInt())));
            metadata.bootstrap(addresses);
            ApiVersions versions = new ApiVersions();
            int inFlight = config.getInt(ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION);
            int requestTimeoutMs = config.getInt(ProducerConfig.REQUEST_TIMEOUT_MS_CONFIG);
            long retryBackoffMs = config.getLong(ProducerConfig.RETRY_BACKOFF_MS_CONFIG);
            client = new NetworkClient(network, metadata, config.getString(ProducerConfig.CLIENT_ID_CONFIG), inFlight,
                    config.getLong(ProducerConfig.RECONNECT_BACKOFF_MS_CONFIG),
                    config.getLong(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG),
                    config.getInt(ProducerConfig.SEND_BUFFER_CONFIG), config.getInt(ProducerConfig.RECEIVE_BUFFER_CONFIG),
                    requestTimeoutMs,
                    config.getLong(ProducerConfig.SOCKET_CONNECTION_SETUP_TIMEOUT_MS_CONFIG),
                    config.getLong(ProducerConfig.SOCKET_CONNECTION_SETUP_TIMEOUT_MAX_MS_CONFIG),
                    time, true, versions, log,
                    config.getLong(CommonClientConfigs.METADATA_RECOVERY_REBOOTSTRAP_TRIGGER_MS_CONFIG),
                    MetadataRecoveryStrategy.forName(
                        config.getString(CommonClientConfigs.METADATA_RECOVERY_STRATEGY_CONFIG))) {
                @Override
                public List<ClientResponse> poll(long timeout, long now) {
                    senderTimeoutMs = timeout;
                    return super.poll(timeout, now);
                }
            };
            set(NetworkClient.class, client, "randOffset", random);
            Object states = get(NetworkClient.class, client, "connectionStates");
            withoutJitter(states.getClass(), states, "reconnectBackoff");
            withoutJitter(states.getClass(), states, "connectionSetupTimeout");
            manager = config.getBoolean(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG)
                ? new TransactionManager(log, null, 60_000, retryBackoffMs, versions, false)
                : null;
            if (manager != null && settings.has("producer"))
                giveProducerId(settings.get("producer").get(0).asLong(), (short) settings.get("producer").get(1).asInt());
            compression = CompressionType.forName(config.getString(ProducerConfig.COMPRESSION_TYPE_CONFIG));
            batchBytes = Math.max(1, config.getInt(ProducerConfig.BATCH_SIZE_CONFIG));
            int deliveryTimeoutMs = config.getInt(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG);
            accumulator = new RecordAccumulator(log, batchBytes,
                    Compression.of(compression).build(),
                    (int) Math.min(config.getLong(ProducerConfig.LINGER_MS_CONFIG), Integer.MAX_VALUE),
                    retryBackoffMs, config.getLong(ProducerConfig.RETRY_BACKOFF_MAX_MS_CONFIG), deliveryTimeoutMs,
                    new RecordAccumulator.PartitionerConfig(
                        config.getBoolean(ProducerConfig.PARTITIONER_ADPATIVE_PARTITIONING_ENABLE_CONFIG),
                        config.getLong(ProducerConfig.PARTITIONER_AVAILABILITY_TIMEOUT_MS_CONFIG)),
                    metrics, "producer-metrics", time, manager,
                    new BufferPool(config.getLong(ProducerConfig.BUFFER_MEMORY_CONFIG), batchBytes, metrics, time,
                        "producer-metrics")) {
                /** A flush ends with its last batch, not when its thread gets to run. */
                @Override
                boolean flushInProgress() {
                    endFlush();
                    return super.flushInProgress();
                }

                @Override
                BuiltInPartitioner createBuiltInPartitioner(LogContext context, String topic, int stickyBatchSize) {
                    return new BuiltInPartitioner(context, topic, stickyBatchSize) {
                        @Override
                        int randomPartition() {
                            return random.number;
                        }
                    };
                }
            };
            withoutJitter(RecordAccumulator.class, accumulator, "retryBackoff");
            sender = new Sender(log, client, metadata, accumulator, inFlight == 1,
                config.getInt(ProducerConfig.MAX_REQUEST_SIZE_CONFIG),
                Short.parseShort(config.getString(ProducerConfig.ACKS_CONFIG)),
                config.getInt(ProducerConfig.RETRIES_CONFIG), new SenderMetricsRegistry(metrics), time,
                requestTimeoutMs, retryBackoffMs, manager);
            // The ratio of a topic outlives its producer, in a map of the class.
            for (String topic : topics)
                CompressionRatioReset.reset(topic);
        }

        /** Sets the flags of tests/lockstep/shadows.py; the jar alone has no such class. */
        static void shadow(JsonNode names) {
            try {
                Class<?> flags = Class.forName("org.apache.kafka.clients.producer.internals.Shadows");
                for (Field flag : flags.getDeclaredFields())
                    flag.setBoolean(null, false);
                for (JsonNode name : names)
                    flags.getDeclaredField(name.asText()).setBoolean(null, true);
            } catch (ReflectiveOperationException problem) {
                throw new IllegalStateException(problem);
            }
        }

        /** As if InitProducerId had been answered before the trace. */
        void giveProducerId(long id, short epoch) {
            set(TransactionManager.class, manager, "producerIdAndEpoch",
                new org.apache.kafka.common.utils.ProducerIdAndEpoch(id, epoch));
            Object state = get(TransactionManager.class, manager, "currentState");
            for (Object each : state.getClass().getEnumConstants())
                if (each.toString().equals("READY"))
                    set(TransactionManager.class, manager, "currentState", each);
        }

        void run() {
            try {
                while (true) {
                    turns++;
                    try {
                        sender.runOnce();
                    } catch (Exception problem) {
                        failures.append(failures.length() == 0 ? "" : ",").append(quoted(problem.toString()));
                        network.idlePolls++;
                        if (network.idlePolls > MOST_IDLE_POLLS)
                            network.step(0);
                    }
                }
            } finally {
                metrics.close();
            }
        }

        /** Whether a batch is done, and those that it was split into. */
        static boolean isOver(ProduceRequestResult result) {
            List<?> parts = (List<?>) get(ProduceRequestResult.class, result, "dependentResults");
            return result.completed() && parts.stream().allMatch(part -> isOver((ProduceRequestResult) part));
        }

        void endFlush() {
            if (flushed != null && flushed.stream().allMatch(Trace::isOver)) {
                ((AtomicInteger) get(RecordAccumulator.class, accumulator, "flushesInProgress")).decrementAndGet();
                flushed = null;
            }
        }

        // -- a step ----------------------------------------------------------------------------------------------

        void tell(long timeoutMs) {
            StringBuilder line = new StringBuilder(512);
            line.append("{\"t\":").append(timeoutMs).append(",\"s\":").append(senderTimeoutMs)
                .append(",\"turns\":").append(turns).append(",\"sent\":[").append(network.sent)
                .append("],\"connect\":[").append(network.asked).append("],\"closed\":[").append(network.closed)
                .append("],\"out\":[").append(outcomes).append("],\"app\":[").append(appended)
                .append("],\"err\":[").append(failures).append("],\"mem\":")
                .append(accumulator.bufferPoolAvailableMemory()).append(",\"inflight\":{");
            String comma = "";
            for (String node : network.everyNode()) {
                line.append(comma).append('"').append(node).append("\":").append(client.inFlightRequestCount(node));
                comma = ",";
            }
            line.append("},\"lead\":[");
            comma = "";
            for (int t = 0; t < topics.size(); t++) {
                for (int p = 0; p < partitionCounts.get(t); p++) {
                    Metadata.LeaderAndEpoch leader = metadata.currentLeader(new TopicPartition(topics.get(t), p));
                    line.append(comma).append('[').append(leader.leader.map(Node::id).orElse(-1)).append(',')
                        .append(leader.epoch.orElse(-1)).append(']');
                    comma = ",";
                }
            }
            line.append("],\"queues\":[");
            comma = "";
            for (int t = 0; t < topics.size(); t++) {
                for (int p = 0; p < partitionCounts.get(t); p++) {
                    Deque<ProducerBatch> queue = accumulator.getDeque(new TopicPartition(topics.get(t), p));
                    int records = 0;
                    StringBuilder first = new StringBuilder();
                    int shown = 0;
                    if (queue != null) {
                        for (ProducerBatch batch : queue) {
                            records += batch.recordCount;
                            if (shown++ < SHOWN_BATCHES)
                                first.append(first.length() == 0 ? "[" : ",[").append(batch.recordCount).append(',')
                                    .append(batch.attempts()).append(',').append(batch.baseSequence()).append(']');
                        }
                    }
                    line.append(comma).append('[').append(shown).append(',').append(records).append(",[")
                        .append(first).append("]]");
                    comma = ",";
                }
            }
            line.append("],\"ratios\":[");
            comma = "";
            for (String topic : topics) {
                line.append(comma).append(
                    org.apache.kafka.common.record.internal.CompressionRatioEstimator.estimation(topic, compression));
                comma = ",";
            }
            line.append(']');
            if (manager != null)
                line.append(",\"pid\":[").append(manager.producerIdAndEpoch().producerId).append(',')
                    .append(manager.producerIdAndEpoch().epoch).append(']');
            line.append('}');
            OUT.println(line);
            OUT.flush();
            for (StringBuilder each : List.of(network.sent, network.asked, network.closed, outcomes, appended, failures))
                each.setLength(0);
            turns = 0;
        }

        void happen(JsonNode step) {
            for (JsonNode act : step) {
                switch (act.get(0).asText()) {
                    case "r" -> random.number = act.get(1).asInt();
                    case "t" -> time.nowMs += act.get(1).asLong();
                    case "a" -> append(act);
                    case "w" -> want(act.get(1).asText());
                    case "c" -> network.connect(act.get(1).asText());
                    case "d" -> network.end(act.get(1).asText());
                    case "u" -> network.refuse(act.get(1).asText());
                    case "m" -> network.receive(act.get(1).asText(), act.get(2).asText());
                    case "f" -> flush();
                    case "x" -> accumulator.close();
                    case "k" -> accumulator.abortIncompleteBatches();
                    default -> throw new IllegalArgumentException(act.toString());
                }
            }
        }

        void want(String topic) {
            metadata.add(topic, time.nowMs);
            metadata.requestUpdateForTopic(topic);
        }

        void append(JsonNode act) {
            int id = act.get(1).asInt();
            String topic = act.get(2).asText();
            metadata.add(topic, time.nowMs);
            int keyBytes = act.get(6).asInt();
            byte[] key = null;
            int partition = act.get(3).asInt();
            if (keyBytes >= 0) {
                key = new byte[keyBytes];
                Arrays.fill(key, (byte) (id % 251));
                // As KafkaProducer.partition() does it.
                if (partition < 0)
                    partition = BuiltInPartitioner.partitionForKey(key, metadata.fetch().partitionsForTopic(topic).size());
            }
            int[] chosen = {-1};
            String error = null;
            try {
                accumulator.append(topic, partition, time.nowMs, key,
                    value(id, act.get(5).asInt(), act.get(4).asInt()), null, new RecordAccumulator.AppendCallbacks() {
                        @Override
                        public void setPartition(int partition) {
                            chosen[0] = partition;
                        }

                        @Override
                        public void onCompletion(RecordMetadata receipt, Exception problem) {
                            outcomes.append(outcomes.length() == 0 ? "[" : ",[").append(id).append(',')
                                .append(problem == null ? receipt.offset() : -1).append(',')
                                .append(problem == null ? "null" : quoted(problem.getClass().getSimpleName()))
                                .append(']');
                        }
                    }, 0, time.nowMs, metadata.fetch());
            } catch (Exception problem) {
                error = problem.getClass().getSimpleName();
            }
            appended.append(appended.length() == 0 ? "[" : ",[").append(id).append(',').append(chosen[0]).append(',')
                .append(error == null ? "null" : quoted(error)).append(']');
        }

        void flush() {
            endFlush();
            if (flushed == null) {
                accumulator.beginFlush();
                IncompleteBatches incomplete =
                    (IncompleteBatches) get(RecordAccumulator.class, accumulator, "incomplete");
                flushed = new ArrayList<>();
                incomplete.requestResults().forEach(flushed::add);
            }
        }
    }

    /** The bytes of a record: its number, and one letter, or noise of a generator that Python has too. */
    private static byte[] value(int id, int seed, int size) {
        ByteBuffer value = ByteBuffer.allocate(4 + size);
        value.putInt(id);
        if (seed == 0)
            Arrays.fill(value.array(), 4, 4 + size, (byte) 'a');
        int state = seed;
        for (int i = 0; seed != 0 && i < size; i++) {
            state = (state * 1103515245 + 12345) & 0x7fffffff;
            value.put((byte) (state >> 16));
        }
        return value.array();
    }

    private static String quoted(String text) {
        try {
            return JSON.writeValueAsString(text);
        } catch (IOException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** Forgets what earlier traces taught about compression. */
    private static final class CompressionRatioReset {
        static void reset(String topic) {
            org.apache.kafka.common.record.internal.CompressionRatioEstimator.resetEstimation(topic);
        }
    }

    // -- time ----------------------------------------------------------------------------------------------------

    private static final class VirtualTime implements Time {
        long nowMs;

        VirtualTime(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("one thread only");
        }
    }

    // -- the network ---------------------------------------------------------------------------------------------

    private static final class Network implements Selectable {
        final Trace trace;
        final StringBuilder sent = new StringBuilder();
        final StringBuilder asked = new StringBuilder();
        final StringBuilder closed = new StringBuilder();
        final Set<String> connecting = new HashSet<>();
        final Set<String> open = new HashSet<>();
        final Set<String> known = new java.util.TreeSet<>();
        final Map<String, NetworkSend> underWay = new LinkedHashMap<>();
        final TreeMap<String, Deque<String>> inbox = new TreeMap<>();
        final List<String> nextConnected = new ArrayList<>();
        final Map<String, ChannelState> nextDisconnected = new LinkedHashMap<>();
        int idlePolls;

        final List<NetworkSend> completedSends = new ArrayList<>();
        final List<NetworkReceive> completedReceives = new ArrayList<>();
        final List<String> connected = new ArrayList<>();
        final Map<String, ChannelState> disconnected = new LinkedHashMap<>();

        Network(Trace trace) {
            this.trace = trace;
        }

        Collection<String> everyNode() {
            return known;
        }

        void connect(String id) {
            if (connecting.remove(id)) {
                open.add(id);
                nextConnected.add(id);
            }
        }

        void end(String id) {
            if (connecting.contains(id) || open.contains(id)) {
                nextDisconnected.put(id, open.contains(id) ? ChannelState.READY : ChannelState.NOT_CONNECTED);
                forget(id);
            }
        }

        void refuse(String id) {
            if (connecting.contains(id)) {
                nextDisconnected.put(id, new ChannelState(ChannelState.State.AUTHENTICATION_FAILED,
                    new SaslAuthenticationException("refused"), "127.0.0.1"));
                forget(id);
            }
        }

        void receive(String id, String frame) {
            if (open.contains(id))
                inbox.computeIfAbsent(id, any -> new ArrayDeque<>()).add(frame);
        }

        private void forget(String id) {
            connecting.remove(id);
            open.remove(id);
            underWay.remove(id);
            inbox.remove(id);
            nextConnected.remove(id);
        }

        private boolean deliver() {
            underWay.values().forEach(completedSends::add);
            underWay.clear();
            connected.addAll(nextConnected);
            nextConnected.clear();
            disconnected.putAll(nextDisconnected);
            nextDisconnected.clear();
            for (Map.Entry<String, Deque<String>> each : inbox.entrySet()) {
                String frame = each.getValue().poll();
                if (frame != null)
                    completedReceives.add(
                        new NetworkReceive(each.getKey(), ByteBuffer.wrap(java.util.HexFormat.of().parseHex(frame))));
            }
            return !(completedSends.isEmpty() && connected.isEmpty() && disconnected.isEmpty()
                && completedReceives.isEmpty());
        }

        @Override
        public void poll(long timeoutMs) {
            if (timeoutMs < 0)
                throw new IllegalArgumentException("timeout should be >= 0");
            completedSends.clear();
            completedReceives.clear();
            connected.clear();
            disconnected.clear();
            boolean writesEndIt = !TURNS.isSet() || WRITES_END_IT.isSet();
            WRITES_END_IT.clear();
            boolean isReported = deliver();
            boolean hasMore = !(connected.isEmpty() && disconnected.isEmpty() && completedReceives.isEmpty());
            if (isReported && (hasMore || writesEndIt || timeoutMs == 0)) {
                idlePolls = 0;
            } else if (timeoutMs == 0 && idlePolls < MOST_IDLE_POLLS) {
                idlePolls++;
            } else {
                step(timeoutMs);
                deliver();
            }
        }

        void step(long timeoutMs) {
            idlePolls = 0;
            trace.tell(timeoutMs);
            JsonNode line;
            try {
                String text = IN.readLine();
                if (text == null)
                    throw new NextTrace(null);
                line = JSON.readTree(text);
            } catch (IOException problem) {
                throw new IllegalStateException(problem);
            }
            if (line.has("new"))
                throw new NextTrace(line);
            trace.happen(line.get("do"));
        }

        @Override
        public void connect(String id, InetSocketAddress address, int sendBytes, int receiveBytes) {
            if (connecting.contains(id) || open.contains(id))
                throw new IllegalStateException("There is already a connection for id " + id);
            connecting.add(id);
            known.add(id);
            asked.append(asked.length() == 0 ? "" : ",").append(id);
        }

        @Override
        public void close(String id) {
            if (connecting.contains(id) || open.contains(id))
                closed.append(closed.length() == 0 ? "" : ",").append(id);
            forget(id);
        }

        @Override
        public void send(NetworkSend send) {
            String id = send.destinationId();
            if (!open.contains(id) || underWay.containsKey(id))
                throw new IllegalStateException("no send to node " + id + " is possible");
            Captured bytes = new Captured((int) send.size());
            try {
                while (!send.completed())
                    send.writeTo(bytes);
            } catch (IOException problem) {
                throw new IllegalStateException(problem);
            }
            underWay.put(id, send);
            sent.append(sent.length() == 0 ? "[" : ",[").append(id).append(",\"")
                .append(java.util.HexFormat.of().formatHex(bytes.buffer.array(), 4, bytes.buffer.position()))
                .append("\"]");
        }

        @Override
        public List<NetworkSend> completedSends() {
            return completedSends;
        }

        @Override
        public Collection<NetworkReceive> completedReceives() {
            return completedReceives;
        }

        @Override
        public Map<String, ChannelState> disconnected() {
            return disconnected;
        }

        @Override
        public List<String> connected() {
            return connected;
        }

        @Override
        public boolean isChannelReady(String id) {
            return open.contains(id);
        }

        @Override
        public void wakeup() {
        }

        @Override
        public void close() {
        }

        @Override
        public void mute(String id) {
        }

        @Override
        public void unmute(String id) {
        }

        @Override
        public void muteAll() {
        }

        @Override
        public void unmuteAll() {
        }
    }

    /** Takes what is written. */
    private static final class Captured implements TransferableChannel {
        final ByteBuffer buffer;

        Captured(int size) {
            buffer = ByteBuffer.allocate(size);
        }

        @Override
        public int write(ByteBuffer source) {
            int size = source.remaining();
            buffer.put(source);
            return size;
        }

        @Override
        public long write(ByteBuffer[] sources) {
            return write(sources, 0, sources.length);
        }

        @Override
        public long write(ByteBuffer[] sources, int offset, int length) {
            long size = 0;
            for (int i = offset; i < offset + length; i++)
                size += write(sources[i]);
            return size;
        }

        @Override
        public boolean hasPendingWrites() {
            return false;
        }

        @Override
        public long transferFrom(FileChannel file, long position, long count) {
            throw new UnsupportedOperationException();
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {
        }
    }
}
