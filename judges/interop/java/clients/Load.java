import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's part of the load on a cluster: what `load.py` does with our clients. The argument is `bootstrap.servers`; a line of standard
 * input starts a worker or ends one, the end of the input ends all. See `load.py` for the lines and for what is printed.
 */
public final class Load {
    private static final int PAUSE_MS = 20;
    private static final Map<String, Worker> WORKERS = new HashMap<>();

    private interface Work {
        void run() throws Exception;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("end")) {
                WORKERS.get(words[1]).end();
            } else {
                Worker worker = new Worker(args[0], words);
                WORKERS.put(words[1], worker);
                worker.thread.start();
            }
        }
        for (Worker worker : WORKERS.values()) {
            worker.end();
        }
        for (Worker worker : WORKERS.values()) {
            worker.thread.join();
        }
    }

    private static synchronized void note(String line) {
        System.out.println(line);
    }

    private static final class Worker {
        private final String[] words;
        private final String process;
        private final Properties properties = new Properties();
        private final AtomicBoolean ending = new AtomicBoolean();
        private final Thread thread;
        private final Random random = new Random();
        private final List<TopicPartition> moved = new ArrayList<>();
        private long movedAt;
        private long next;

        Worker(String address, String[] words) {
            this.words = words;
            process = words[1];
            properties.put("bootstrap.servers", address);
            for (String word : words) {
                int at = word.indexOf('=');
                if (at > 0) {
                    properties.put(word.substring(0, at), word.substring(at + 1));
                }
            }
            Work work = switch (words[0]) {
                case "producer" -> this::produce;
                case "transactions" -> this::transactions;
                case "group" -> this::group;
                case "copy" -> this::copy;
                default -> throw new IllegalArgumentException(words[0]);
            };
            thread = new Thread(() -> {
                try {
                    work.run();
                    note("{\"ended\":" + process + "}");
                } catch (Throwable failure) {
                    failure.printStackTrace();
                    note("{\"surprise\":\"" + words[0] + " " + process + ": " + failure.toString().replaceAll("[\"\\\\\\n]", "'") + "\"}");
                }
            });
        }

        void end() {
            ending.set(true);
        }

        private KafkaProducer<byte[], byte[]> producer() {
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
            while (properties.containsKey("transactional.id")) {
                try {
                    producer.initTransactions();
                    break;
                } catch (TimeoutException again) {
                    // the coordinator moves
                }
            }
            return producer;
        }

        private KafkaConsumer<byte[], byte[]> consumer(String topics, String group) {
            Properties of = new Properties();
            of.putAll(properties);
            of.remove("transactional.id");
            of.put("group.id", group);
            of.put("enable.auto.commit", "false");
            of.put("auto.offset.reset", "earliest");
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(of, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(List.of(topics.split(",")), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    moved.addAll(partitions);
                    movedAt = System.nanoTime();
                    owns(consumer, Set.of());
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    owns(consumer, partitions);
                }
            });
            return consumer;
        }

        private void owns(KafkaConsumer<byte[], byte[]> consumer, Collection<TopicPartition> without) {
            String owned = consumer.assignment().stream().filter(tp -> !without.contains(tp))
                .map(tp -> "\"" + tp + "\"").sorted().collect(Collectors.joining(","));
            note("{\"process\":" + process + ",\"at\":" + System.nanoTime() + ",\"owns\":[" + owned + "],\"generation\":"
                + consumer.groupMetadata().generationId() + "}");
        }

        private void produce() throws Exception {
            next = Long.parseLong(words[4]);
            try (KafkaProducer<byte[], byte[]> producer = producer()) {
                while (!ending.get()) {
                    long value = next++;
                    long begin = System.nanoTime();
                    producer.send(record(words[2], (int) (value % Integer.parseInt(words[3])), value), (at, failure) -> {
                        Op op = new Op(begin, System.nanoTime(), failure == null ? "ok" : "unknown", false);
                        op.send(words[2], at.partition(), value, failure == null ? at.offset() : -1, -1);
                        op.error = failure;
                        op.print();
                    });
                    Thread.sleep(PAUSE_MS);
                }
            }
        }

        private void transactions() throws Exception {
            next = Long.parseLong(words[4]);
            KafkaProducer<byte[], byte[]> producer = producer();
            while (!ending.get()) {
                Op op = new Op(System.nanoTime(), 0, "unknown", true);
                KafkaProducer<byte[], byte[]> used = producer;
                producer = op.carryOut(producer, random.nextInt(4) > 0, () -> {
                    for (int i = 1 + random.nextInt(10); i > 0; i--) {
                        op.send(used, words[2], random.nextInt(Integer.parseInt(words[3])), next++, -1);
                    }
                });
                op.print();
                Thread.sleep(5 * PAUSE_MS);
            }
            producer.close();
        }

        private ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer, Op op, String group) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
            if (!moved.isEmpty()) {
                movedTo(op.begin);
                op.begin = movedAt;
            }
            op.end = System.nanoTime();
            op.polled(records, group);
            return records;
        }

        private void movedTo(long at) {
            note("{\"process\":" + process + ",\"begin\":" + at + ",\"end\":" + System.nanoTime() + ",\"moved\":["
                + moved.stream().map(tp -> "\"" + tp + "\"").collect(Collectors.joining(",")) + "]}");
            moved.clear();
        }

        private void group() {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(words[2], words[3])) {
                while (!ending.get()) {
                    Op op = new Op(System.nanoTime(), 0, "ok", false);
                    if (!poll(consumer, op, words[3]).isEmpty()) {
                        op.print();
                    }
                    try {
                        consumer.commitSync();
                    } catch (KafkaException | IllegalStateException notNow) {
                        // another member has the partitions, or the coordinator moves: the next commit counts
                    }
                }
            }
        }

        private void copy() throws Exception {
            next = Long.parseLong(words[4]);
            KafkaProducer<byte[], byte[]> producer = producer();
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(words[2], words[5])) {
                while (!ending.get()) {
                    Op op = new Op(System.nanoTime(), 0, "unknown", true);
                    ConsumerRecords<byte[], byte[]> records = poll(consumer, op, words[5]);
                    if (records.isEmpty()) {
                        continue;
                    }
                    KafkaProducer<byte[], byte[]> used = producer;
                    producer = op.carryOut(producer, true, () -> {
                        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                        for (ConsumerRecord<byte[], byte[]> record : records) {
                            op.send(used, words[3], record.partition(), next++, value(record));
                            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                        }
                        used.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    });
                    op.print();
                    if (!op.outcome.equals("ok")) {
                        goBack(consumer);
                    }
                }
            }
            producer.close();
        }

        /** To what the group has committed. */
        private void goBack(KafkaConsumer<byte[], byte[]> consumer) {
            long begin = System.nanoTime();
            for (boolean known = false; !known && !ending.get(); ) {
                try {
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition tp : consumer.assignment()) {
                        consumer.seek(tp, committed.get(tp) == null ? 0 : committed.get(tp).offset());
                    }
                    known = true;
                } catch (TimeoutException again) {
                    // the coordinator moves
                }
            }
            moved.addAll(consumer.assignment());
            movedTo(begin);
        }

        private static ProducerRecord<byte[], byte[]> record(String topic, int partition, long value) {
            return new ProducerRecord<>(topic, partition, null, Long.toString(value).getBytes(StandardCharsets.UTF_8));
        }

        private static long value(ConsumerRecord<byte[], byte[]> record) {
            return Long.parseLong(new String(record.value(), StandardCharsets.UTF_8));
        }

        /** One line. */
        private final class Op {
            private final boolean transaction;
            private final List<String> sends = new ArrayList<>();
            private final List<Runnable> sent = new ArrayList<>();
            private String polled = "";
            private String outcome;
            private Exception error;
            private long begin;
            private long end;

            Op(long begin, long end, String outcome, boolean transaction) {
                this.begin = begin;
                this.end = end;
                this.outcome = outcome;
                this.transaction = transaction;
            }

            void send(String topic, int partition, long value, long offset, long source) {
                sends.add("[\"" + topic + "-" + partition + "\"," + value + "," + (offset < 0 ? "null" : offset) + ","
                    + (source < 0 ? "null" : source) + "]");
            }

            void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition, long value, long source) {
                // it is part of the transaction even if `send` fails
                long[] offset = {-1};
                sent.add(() -> send(topic, partition, value, offset[0], source));
                producer.send(record(topic, partition, value), (at, failure) -> offset[0] = failure == null ? at.offset() : -1);
            }

            void polled(ConsumerRecords<byte[], byte[]> records, String group) {
                List<String> found = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    found.add("[\"" + record.topic() + "-" + record.partition() + "\"," + record.offset() + "," + value(record) + "]");
                }
                polled = ",\"isolation\":\"" + properties.getProperty("isolation.level", "read_uncommitted") + "\",\"group\":\"" + group
                    + "\",\"polled\":[" + String.join(",", found) + "]";
            }

            /** A transaction to its end; the producer to go on with. */
            KafkaProducer<byte[], byte[]> carryOut(KafkaProducer<byte[], byte[]> producer, boolean commit, Work sends) throws Exception {
                KafkaProducer<byte[], byte[]> after = producer;
                try {
                    producer.beginTransaction();
                    sends.run();
                    finish(commit ? producer::commitTransaction : producer::abortTransaction);
                    outcome = commit ? "ok" : "failed";
                } catch (KafkaException failure) {
                    error = failure;
                    try {
                        finish(producer::abortTransaction);
                        outcome = "failed";
                    } catch (KafkaException fatal) {
                        producer.close(Duration.ZERO);
                        after = producer();
                        // the new producer has ended what was open, one way or the other
                    }
                }
                end = System.nanoTime();
                sent.forEach(Runnable::run);
                return after;
            }

            private void finish(Work work) throws Exception {
                while (true) {
                    try {
                        work.run();
                        return;
                    } catch (TimeoutException again) {
                        // undecided
                    }
                }
            }

            void print() {
                note("{\"process\":" + process + ",\"begin\":" + begin + ",\"end\":" + end + ",\"outcome\":\"" + outcome + "\",\"transaction\":"
                    + transaction + polled + ",\"sends\":[" + String.join(",", sends) + "]" + (error == null ? "" : ",\"error\":\""
                    + error.toString().replaceAll("[\"\\\\\\n]", "'") + "\"") + "}");
            }
        }
    }
}
