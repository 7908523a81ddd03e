import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Carries out the lines of standard input on the broker of the first argument, by clients with the properties of the others, in order:
 * "topic NAME PARTITIONS k=v..", "producer ID k=v..", "send ID TOPIC PARTITION TIMESTAMP KEY VALUE NAME=VALUE..",
 * "flush ID", "close ID", "begin|commit|abort ID", "offset GROUP TOPIC PARTITION OFFSET METADATA",
 * "txnoffset ID GROUP TOPIC PARTITION OFFSET", "sleep MS", "signal NAME PID" (after STOP, waits until the process stands still),
 * "inflight ID" (waits until a request of the producer is on its way). A partition or timestamp of -1 is left to the producer.
 * Prints, for each record in order of the sends, "TOPIC PARTITION OFFSET" or why it failed, at the end.
 */
public final class Write {
    private final Properties broker = new Properties();
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        Write write = new Write();
        write.broker.put("bootstrap.servers", args[0]);
        write.broker.putAll(Text.properties(Arrays.copyOfRange(args, 1, args.length)));
        write.run();
    }

    private void run() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (AdminClient admin = AdminClient.create(broker)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                if (words[0].equals("topic")) {
                    NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1).configs(map(words, 3));
                    admin.createTopics(List.of(topic)).all().get();
                    awaitLeaders(admin, topic);
                } else {
                    carryOut(words);
                }
            }
        }
        producers.values().forEach(KafkaProducer::close);
        StringBuilder out = new StringBuilder();
        for (Future<RecordMetadata> future : sent) {
            try {
                RecordMetadata at = future.get();
                out.append(at.topic()).append(' ').append(at.partition()).append(' ').append(at.offset()).append('\n');
            } catch (ExecutionException failure) {
                // an abort fails what was not sent yet
                out.append(failure.getCause().getClass().getSimpleName()).append('\n');
            }
        }
        System.out.print(out);
    }

    /** Returns once the broker leads the topic: a first batch that it refuses before may be sent in vain for two minutes. */
    private static void awaitLeaders(AdminClient admin, NewTopic topic) throws Exception {
        Map<TopicPartition, OffsetSpec> ends = IntStream.range(0, topic.numPartitions()).boxed()
            .collect(Collectors.toMap(partition -> new TopicPartition(topic.name(), partition), partition -> OffsetSpec.latest()));
        while (true) {
            try {
                admin.listOffsets(ends).all().get();
                return;
            } catch (ExecutionException failure) {
                // a broker that has not heard of the new topic yet
                if (!(failure.getCause() instanceof RetriableException)) {
                    throw failure;
                }
                Thread.sleep(50);
            }
        }
    }

    private void carryOut(String[] words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(words[1]);
        switch (words[0]) {
            case "producer": {
                Properties properties = new Properties();
                properties.putAll(broker);
                properties.putAll(map(words, 2));
                producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
                if (properties.containsKey("transactional.id")) {
                    producer.initTransactions();
                }
                producers.put(words[1], producer);
                break;
            }
            case "send": sent.add(producer.send(record(words))); break;
            case "flush": producer.flush(); break;
            case "close": producers.remove(words[1]).close(); break;
            case "begin": producer.beginTransaction(); break;
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            case "txnoffset":
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])),
                    new OffsetAndMetadata(Long.parseLong(words[5]))), new ConsumerGroupMetadata(words[2]));
                break;
            case "offset": commit(words); break;
            case "signal": signal(words[1], words[2]); break;
            case "inflight":
                while (inFlight(producer) == 0) {
                    Thread.sleep(1);
                }
                break;
            case "sleep": Thread.sleep(Long.parseLong(words[1])); break;
            default: throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private static void signal(String name, String pid) throws Exception {
        new ProcessBuilder("kill", "-" + name, pid).start().waitFor();
        // a thread may go on for a moment and answer a request
        while (name.equals("STOP") && !standsStill(pid)) {
            Thread.sleep(1);
        }
    }

    private static boolean standsStill(String pid) throws IOException {
        try (Stream<Path> threads = Files.list(Path.of("/proc", pid, "task"))) {
            return threads.allMatch(Write::isStopped);
        }
    }

    private static boolean isStopped(Path thread) {
        try {
            String stat = Files.readString(thread.resolve("stat"));
            // the state follows the name, which is in brackets
            return stat.charAt(stat.lastIndexOf(')') + 2) == 'T';
        } catch (IOException ended) {
            return false;
        }
    }

    private static double inFlight(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().group().equals("producer-metrics") && metric.getKey().name().equals("requests-in-flight"))
            .mapToDouble(metric -> (Double) metric.getValue().metricValue()).sum();
    }

    private static ProducerRecord<byte[], byte[]> record(String[] words) {
        int partition = Integer.parseInt(words[3]);
        long timestamp = Long.parseLong(words[4]);
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(words[2], partition < 0 ? null : partition,
            timestamp < 0 ? null : timestamp, Text.parse(words[5]), Text.parse(words[6]));
        for (int i = 7; i < words.length; i++) {
            String[] header = words[i].split("=");
            record.headers().add(new String(Text.parse(header[0]), StandardCharsets.UTF_8), Text.parse(header[1]));
        }
        return record;
    }

    private void commit(String[] words) {
        Properties properties = new Properties();
        properties.putAll(broker);
        properties.put("group.id", words[1]);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.commitSync(Map.of(new TopicPartition(words[2], Integer.parseInt(words[3])),
                new OffsetAndMetadata(Long.parseLong(words[4]), words[5])));
        }
    }

    private static Map<String, String> map(String[] words, int from) {
        Map<String, String> map = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            int at = words[i].indexOf('=');
            map.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        return map;
    }
}
