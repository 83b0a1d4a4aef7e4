// Kafka's own producer, sending records of a few bytes to one topic at a steady rate. Argument: BOOTSTRAP.
//
//     start TOPIC ACKS PER_SECOND BATCH_BYTES [PARTITION]
//                             a new producer; without a partition the partitioner chooses
//     acknowledged SECONDS    whether a record was acknowledged later than that
//     stop                    a row for each record: sent, acknowledged (or null), failure (or null)
//
// linger 0, idempotent if acks=all; all other settings are Kafka's defaults. Times are calendar seconds.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class FailoverPeer {
    private static final long PATIENCE_MS = 30_000;

    record End(double at, String failure) {}

    /** One producer and its sending thread. */
    static final class Load {
        final KafkaProducer<byte[], byte[]> producer;
        final List<Double> sent = Collections.synchronizedList(new ArrayList<>());
        final ConcurrentHashMap<Integer, End> ends = new ConcurrentHashMap<>();
        final Thread thread;
        volatile boolean stopped = false;

        Load(String bootstrap, String topic, String acks, double perSecond, String batchBytes, Integer partition) {
            Properties config = new Properties();
            config.put("bootstrap.servers", bootstrap);
            config.put("acks", acks);
            config.put("linger.ms", "0");
            config.put("batch.size", batchBytes);
            config.put("enable.idempotence", Boolean.toString(acks.equals("all")));
            producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
            thread = new Thread(() -> run(topic, partition, (long) (1e9 / perSecond)));
            thread.start();
        }

        void run(String topic, Integer partition, long pauseNanos) {
            long began = System.nanoTime();
            for (int number = 0; !stopped; number++) {
                long until = began + number * pauseNanos;
                for (long left = until - System.nanoTime(); left > 0; left = until - System.nanoTime()) {
                    LockSupport.parkNanos(left);
                }
                int sending = number;
                byte[] value = ("java-" + number).getBytes(StandardCharsets.UTF_8);
                sent.add(now());
                producer.send(
                    new ProducerRecord<>(topic, partition, null, value),
                    (done, error) -> ends.put(sending, new End(now(), error == null ? null : error.toString())));
            }
        }

        boolean acknowledgedAfter(double moment) {
            return ends.values().stream().anyMatch(end -> end.failure() == null && end.at() > moment);
        }

        String stop() throws InterruptedException {
            stopped = true;
            thread.join();
            long until = System.currentTimeMillis() + PATIENCE_MS;
            while (ends.size() < sent.size() && System.currentTimeMillis() < until) {
                Thread.sleep(10);
            }
            producer.close(Duration.ofSeconds(5));
            StringBuilder rows = new StringBuilder("{\"records\":[");
            for (int number = 0; number < sent.size(); number++) {
                End end = ends.getOrDefault(number, new End(0, "no answer"));
                rows.append(number == 0 ? "" : ",")
                    .append(String.format(Locale.ROOT, "[%.6f,", sent.get(number)))
                    .append(end.failure() == null ? String.format(Locale.ROOT, "%.6f,null]", end.at())
                                                  : "null," + quoted(end.failure()) + "]");
            }
            return rows.append("]}").toString();
        }
    }

    private static double now() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\"";
    }

    public static void main(String[] arguments) throws Exception {
        // A lost broker fills a log, but only the records are evaluated.
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Load load = null;
        System.out.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            String answer;
            try {
                switch (words[0]) {
                    case "start" -> {
                        Integer partition = words.length > 5 ? Integer.valueOf(words[5]) : null;
                        load = new Load(arguments[0], words[1], words[2], Double.parseDouble(words[3]),
                                        words[4], partition);
                        answer = "{\"started\":true}";
                    }
                    case "acknowledged" ->
                        answer = "{\"acknowledged\":" + load.acknowledgedAfter(Double.parseDouble(words[1])) + "}";
                    case "stop" -> answer = load.stop();
                    default -> answer = "{\"error\":\"no such command\"}";
                }
            } catch (RuntimeException error) {
                answer = "{\"error\":" + quoted(error.toString()) + "}";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
