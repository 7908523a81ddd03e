import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Runs scenarios side by side: THREADS, then settings of every consumer as k=v. Standard input holds, per scenario,
 * "scenario NAME SETTLE_MS TIMEOUT_MS k=v.." and its steps: "assign|pause|resume|seekToBeginning|seekToEnd TOPIC:PARTITION..",
 * "subscribe TOPIC..", "unsubscribe", "seek TOPIC:PARTITION:OFFSET..", "poll TIMES [TOTAL]" (until so many records came in the whole run).
 * After every poll it waits SETTLE_MS, so that every answer has reached the client before its next call. Prints, per poll, "NAME at MICROSECONDS"
 * when it begins (and when the last one is over) and "NAME poll TOPIC:PARTITION:FIRST:LAST:COUNT..", in the order of a for-each, or "NAME poll !EXCEPTION"; at last
 * "NAME end TOPIC:PARTITION:POSITION..", -1 where there is no position.
 */
public final class Poll {
    private final List<String> steps = new ArrayList<>();
    private final StringBuilder out = new StringBuilder();
    private final String[] head;
    private final String[] settings;
    // connecting and joining a group take their time on a busy machine
    private long timeout = 30_000;
    private int total = 0;

    private Poll(String[] head, String[] settings) {
        this.head = head;
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        String[] settings = java.util.Arrays.copyOfRange(args, 1, args.length);
        List<Poll> scenarios = new ArrayList<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.startsWith("scenario ")) {
                scenarios.add(new Poll(line.split(" "), settings));
            } else {
                scenarios.get(scenarios.size() - 1).steps.add(line);
            }
        }
        // a scenario that fails ends the program, whatever the others do
        ExecutorService threads = Executors.newFixedThreadPool(Integer.parseInt(args[0]), run -> {
            Thread thread = new Thread(run);
            thread.setDaemon(true);
            return thread;
        });
        List<Future<?>> running = new ArrayList<>();
        for (Poll scenario : scenarios) {
            running.add(threads.submit(() -> {
                scenario.run();
                return null;
            }));
        }
        for (Future<?> one : running) {
            one.get();
        }
        threads.shutdown();
        scenarios.forEach(scenario -> System.out.print(scenario.out));
    }

    private void run() throws Exception {
        Properties properties = Text.properties(settings);
        for (int i = 4; i < head.length; i++) {
            properties.putAll(Text.properties(new String[] {head[i]}));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String step : steps) {
                carryOut(consumer, step.split(" "));
            }
            at();
            out.append(head[1]).append(" end");
            for (TopicPartition tp : consumer.assignment()) {
                out.append(' ').append(tp.topic()).append(':').append(tp.partition()).append(':').append(position(consumer, tp));
            }
            out.append('\n');
        }
    }

    private void carryOut(KafkaConsumer<byte[], byte[]> consumer, String[] words) throws Exception {
        List<String> operands = List.of(words).subList(1, words.length);
        switch (words[0]) {
            case "assign": consumer.assign(partitions(operands)); break;
            case "subscribe": consumer.subscribe(operands); break;
            case "unsubscribe": consumer.unsubscribe(); break;
            case "pause": consumer.pause(partitions(operands)); break;
            case "resume": consumer.resume(partitions(operands)); break;
            case "seekToBeginning": consumer.seekToBeginning(partitions(operands)); break;
            case "seekToEnd": consumer.seekToEnd(partitions(operands)); break;
            case "seek":
                operands.forEach(word -> consumer.seek(partition(word), Long.parseLong(word.split(":")[2])));
                break;
            default:
                int until = words.length > 2 ? Integer.parseInt(words[2]) : Integer.MAX_VALUE;
                for (int i = 0; i < Integer.parseInt(words[1]) && total < until; i++) {
                    poll(consumer);
                }
        }
    }

    private void poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        at();
        out.append(head[1]).append(" poll");
        try {
            runs(consumer.poll(Duration.ofMillis(timeout)));
        } catch (NoOffsetForPartitionException none) {
            out.append(" !").append(none.getClass().getSimpleName());
        }
        timeout = Long.parseLong(head[3]);
        out.append('\n');
        Thread.sleep(Long.parseLong(head[2]));
    }

    private void at() {
        Instant now = Instant.now();
        out.append(head[1]).append(" at ").append(now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000).append('\n');
    }

    private void runs(ConsumerRecords<byte[], byte[]> records) {
        String open = null;
        long first = 0;
        long last = 0;
        int count = 0;
        total += records.count();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            String place = record.topic() + ":" + record.partition();
            if (!place.equals(open)) {
                close(open, first, last, count);
                open = place;
                first = record.offset();
                count = 0;
            }
            last = record.offset();
            count++;
        }
        close(open, first, last, count);
    }

    private static long position(KafkaConsumer<byte[], byte[]> consumer, TopicPartition tp) {
        try {
            return consumer.position(tp);
        } catch (NoOffsetForPartitionException none) {
            return -1;
        }
    }

    private void close(String place, long first, long last, int count) {
        if (place != null) {
            out.append(' ').append(place).append(':').append(first).append(':').append(last).append(':').append(count);
        }
    }

    private static TopicPartition partition(String word) {
        String[] parts = word.split(":");
        return new TopicPartition(parts[0], Integer.parseInt(parts[1]));
    }

    private static List<TopicPartition> partitions(List<String> words) {
        return words.stream().map(Poll::partition).collect(Collectors.toList());
    }
}
