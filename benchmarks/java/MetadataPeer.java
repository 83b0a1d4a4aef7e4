import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;

import org.apache.kafka.clients.Metadata;
import org.apache.kafka.common.internals.ClusterResourceListeners;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.utils.LogContext;

/**
 * Java's own metadata cache: MetadataResponse.parse, then Metadata.update. Argument: the responses' version.
 *
 *   warm SECONDS FILE...   applies these responses repeatedly, each time to a new cache
 *   fresh                  starts with an empty cache
 *   apply TIMES FILE       applies a response TIMES times; this thread's CPU and wall seconds in total
 *   led NODE               the number of partitions that the broker leads
 *   memory FILE            heap bytes of a cache with this one response
 *
 * CPU is that of this thread: the collector and the compiler use others.
 */
public final class MetadataPeer {
    private static final int COLLECTIONS = 4;
    private static final long SETTLE_MS = 100;

    private final short version;
    private final Map<String, byte[]> bodies = new HashMap<>();
    private Metadata metadata;
    private long nowMs = 0;

    private MetadataPeer(short version) {
        this.version = version;
        this.metadata = freshMetadata();
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        MetadataPeer peer = new MetadataPeer(Short.parseShort(arguments[0]));
        System.out.println("{\"ready\":true}");
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(peer.answer(lines.nextLine().split(" ")));
        }
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "warm":
                warm(Double.parseDouble(words[1]), List.of(words).subList(2, words.length));
                return "{}";
            case "fresh":
                metadata = freshMetadata();
                return "{}";
            case "apply":
                return apply(Integer.parseInt(words[1]), body(words[2]));
            case "led":
                return "{\"partitions\":" + metadata.fetch().partitionsForNode(Integer.parseInt(words[1])).size() + "}";
            case "memory":
                return "{\"bytes\":" + bytesAtRest(words[1]) + "}";
            default:
                return "{\"error\":\"it does not know the word " + words[0] + "\"}";
        }
    }

    private void warm(double seconds, List<String> files) throws Exception {
        long until = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < until) {
            metadata = freshMetadata();
            for (String file : files) {
                refresh(body(file));
            }
        }
    }

    private String apply(int times, byte[] body) {
        long wallNs = System.nanoTime();
        long cpuNs = threadCpuNs();
        for (int i = 0; i < times; i++) {
            refresh(body);
        }
        cpuNs = threadCpuNs() - cpuNs;
        wallNs = System.nanoTime() - wallNs;
        return "{\"cpu_s\":" + cpuNs / 1e9 + ",\"wall_s\":" + wallNs / 1e9 + "}";
    }

    private long bytesAtRest(String file) throws Exception {
        body(file);
        metadata = freshMetadata();
        long before = usedAfterCollection();
        refresh(body(file));
        return usedAfterCollection() - before;
    }

    private void refresh(byte[] body) {
        nowMs += 1_000;
        metadata.requestUpdate(false);
        int requestVersion = metadata.newMetadataRequestAndVersion(nowMs).requestVersion;
        MetadataResponse response =
            MetadataResponse.parse(new ByteBufferAccessor(ByteBuffer.wrap(body)), version);
        metadata.update(requestVersion, response, false, nowMs);
    }

    private byte[] body(String file) throws Exception {
        byte[] body = bodies.get(file);
        if (body == null) {
            body = Files.readAllBytes(Path.of(file));
            bodies.put(file, body);
        }
        return body;
    }

    private static Metadata freshMetadata() {
        Metadata fresh = new Metadata(100, 1_000, 300_000, new LogContext(), new ClusterResourceListeners());
        fresh.bootstrap(new ArrayList<>(List.of(InetSocketAddress.createUnresolved("broker-1", 9092))));
        return fresh;
    }

    private static long threadCpuNs() {
        return java.lang.management.ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static long usedAfterCollection() throws InterruptedException {
        for (int i = 0; i < COLLECTIONS; i++) {
            System.gc();
            Thread.sleep(SETTLE_MS);
        }
        Runtime runtime = Runtime.getRuntime();
        return runtime.totalMemory() - runtime.freeMemory();
    }
}
