// Kafka's own producer beside a sidecar while brokers and network fail: small keyed records at a steady rate,
// to each partition in turn, without waiting for answers. Arguments: BOOTSTRAP TOPIC PARTITIONS PER_SECOND.
//
//     set NAME VALUE     a producer's property, before `start`
//     start              begins to send
//     mark NAME          prints `mark NAME <ms>`, after all records that were completed before
//     quit               stops, waits for pending records, prints `end`; so does the end of the input
//
// It prints `ready` first, and for each completed record, at most 100 ms later:
//
//     <partition> <sent ms> <done ms> ok|<name of the error> <offset, -1 if it failed>
//
// Times are calendar milliseconds at the program's start, plus those of a monotonic clock. acks=all,
// idempotent, linger 0; all other settings are Kafka's defaults.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ChaosPeer {
    /** The length of a value of the sidecar's callers. */
    private static final String PADDING = ".".repeat(80);
    private static final long FLUSH_MS = 100;
    private static final long PATIENCE_MS = 20_000;
    /** After a longer delay the missed records are skipped: the rate matters, not the number of records. */
    private static final long MOST_BEHIND_NANOS = 1_000_000_000L;

    private static final long BEGAN_MS = System.currentTimeMillis();
    private static final long BEGAN_NANOS = System.nanoTime();

    /** Completed records that are not printed yet. Also the lock that guards them. */
    private static final StringBuilder unprinted = new StringBuilder();
    private static volatile boolean stopped = false;

    private static long now() {
        return BEGAN_MS + (System.nanoTime() - BEGAN_NANOS) / 1_000_000;
    }

    private static void report(String line) {
        synchronized (unprinted) {
            unprinted.append(line).append('\n');
        }
    }

    private static synchronized void flush() {
        String lines;
        synchronized (unprinted) {
            lines = unprinted.toString();
            unprinted.setLength(0);
        }
        System.out.print(lines);
        System.out.flush();
    }

    private static void completed(int partition, long sent, Exception error, long offset) {
        String end = error == null ? "ok" : error.getClass().getSimpleName();
        report(partition + " " + sent + " " + now() + " " + end + " " + (error == null ? offset : -1));
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partitions, double perSecond) {
        long pauseNanos = (long) (1e9 / perSecond);
        long next = System.nanoTime();
        for (long number = 0; !stopped; number++) {
            for (long left = next - System.nanoTime(); left > 0; left = next - System.nanoTime()) {
                LockSupport.parkNanos(left);
            }
            int partition = (int) (number % partitions);
            byte[] key = ("java-" + partition).getBytes(StandardCharsets.UTF_8);
            byte[] value = ("java-" + number + PADDING).getBytes(StandardCharsets.UTF_8);
            long sent = now();
            try {
                producer.send(
                    new ProducerRecord<>(topic, partition, key, value),
                    (done, error) -> completed(partition, sent, error, error == null ? done.offset() : -1));
            } catch (RuntimeException error) {
                completed(partition, sent, error, -1);
            }
            next = Math.max(next + pauseNanos, System.nanoTime() - MOST_BEHIND_NANOS);
        }
    }

    private static void flushNowAndThen() {
        while (true) {
            LockSupport.parkNanos(FLUSH_MS * 1_000_000);
            flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        // A lost broker fills a log, but only the records are evaluated.
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "error");
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("acks", "all");
        config.put("enable.idempotence", "true");
        config.put("linger.ms", "0");
        Thread flushing = new Thread(ChaosPeer::flushNowAndThen);
        flushing.setDaemon(true);
        flushing.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        KafkaProducer<byte[], byte[]> producer = null;
        Thread sending = null;
        report("ready");
        flush();
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            String[] words = line.split(" ", 3);
            switch (words[0]) {
                case "set" -> config.put(words[1], words[2]);
                case "mark" -> {
                    report("mark " + words[1] + " " + now());
                    flush();
                }
                case "start" -> {
                    KafkaProducer<byte[], byte[]> started =
                        new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
                    producer = started;
                    sending = new Thread(() -> send(started, arguments[1], Integer.parseInt(arguments[2]),
                                                    Double.parseDouble(arguments[3])));
                    sending.setDaemon(true);
                    sending.start();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        stopped = true;
        if (producer != null) {
            sending.join(PATIENCE_MS);
            producer.close(Duration.ofMillis(PATIENCE_MS));
        }
        report("end");
        flush();
        System.exit(0);
    }
}
