import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer as a contestant of produce_library.py. Arguments: TOPIC and settings as name=value.
 *
 * <p>The commands are those of benchmarks/producers/line_protocol.py: "run SIZE COUNT" sends with a callback for
 * each record and flushes, "wait SIZE COUNT" waits for each record separately. CPU time is that of the whole
 * process, with the JIT compiler and the collector.
 */
public final class ProducePeer {
    private static final double NANOS_PER_S = 1e9;
    private static final double NANOS_PER_MS = 1e6;

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;

    private ProducePeer(KafkaProducer<byte[], byte[]> producer, String topic) {
        this.producer = producer;
        this.topic = topic;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        Properties settings = new Properties();
        for (String setting : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            String[] pair = setting.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        try (KafkaProducer<byte[], byte[]> producer =
                        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                BufferedReader questions = new BufferedReader(new InputStreamReader(System.in))) {
            ProducePeer peer = new ProducePeer(producer, arguments[0]);
            System.out.println("{\"ready\":true}");
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                System.out.println(peer.answer(line.split(" ")));
            }
        }
    }

    private String answer(String[] question) throws Exception {
        byte[] value = new byte[Integer.parseInt(question[1])];
        Arrays.fill(value, (byte) 'x');
        int count = Integer.parseInt(question[2]);
        OperatingSystemMXBean system =
                (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long[] latencies = new long[question[0].equals("wait") ? count : 0];
        long wall = System.nanoTime();
        long cpu = system.getProcessCpuTime();
        int acknowledged = latencies.length > 0 ? waitForEach(value, latencies) : run(value, count);
        cpu = system.getProcessCpuTime() - cpu;
        wall = System.nanoTime() - wall;
        String fields = String.format(
                Locale.ROOT,
                "\"acknowledged\":%d,\"wall_s\":%.6f,\"cpu_s\":%.6f",
                acknowledged,
                wall / NANOS_PER_S,
                cpu / NANOS_PER_S);
        if (latencies.length > 0) {
            fields += String.format(Locale.ROOT, ",\"p50_ms\":%.4f", median(latencies) / NANOS_PER_MS);
        }
        return "{" + fields + "}";
    }

    private int run(byte[] value, int count) {
        AtomicInteger acknowledged = new AtomicInteger();
        for (int number = 0; number < count; number++) {
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error == null) {
                    acknowledged.incrementAndGet();
                }
            });
        }
        producer.flush();
        return acknowledged.get();
    }

    private int waitForEach(byte[] value, long[] latencies) throws Exception {
        for (int number = 0; number < latencies.length; number++) {
            long began = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, value)).get();
            latencies[number] = System.nanoTime() - began;
        }
        return latencies.length;
    }

    private static double median(long[] values) {
        long[] sorted = values.clone();
        Arrays.sort(sorted);
        int middle = sorted.length / 2;
        return sorted.length % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
    }
}
