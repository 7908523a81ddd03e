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
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs programs, one per line of standard input: "KIND BOOTSTRAP TOPIC k=v ..", where the rest are properties of the client. Prints a line of words
 * for each: what the program saw, in order. One JVM runs hundreds.
 */
public final class Plans {
    private static final int RECORDS = 5;
    private static final Duration PATIENCE = Duration.ofSeconds(10);

    private final String topic;
    private final Properties properties = new Properties();
    private final List<String> seen = new ArrayList<>();

    private Plans(String[] words) {
        topic = words[2];
        properties.put("bootstrap.servers", words[1]);
        for (int i = 3; i < words.length; i++) {
            String[] property = words[i].split("=", 2);
            properties.put(property[0], property[1]);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Plans plans = new Plans(words);
            try {
                plans.run(words[0]);
            } catch (ConfigException error) {
                throw error;
            } catch (KafkaException error) {
                plans.failed(error);
            }
            System.out.println(String.join(" ", plans.seen));
            System.out.flush();
        }
    }

    private void run(String kind) throws InterruptedException {
        switch (kind) {
            case "sends":
                sends();
                break;
            case "consumes":
                consumes();
                break;
            case "belongs":
                belongs();
                break;
            case "transacts":
                transacts();
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private void failed(Throwable error) {
        seen.add(error.getClass().getSimpleName());
    }

    private KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** Five records, one request each: the error of each. */
    private void sends() throws InterruptedException {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < RECORDS; number++) {
                try {
                    producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(number))).get();
                    seen.add("written");
                } catch (ExecutionException error) {
                    failed(error.getCause());
                } catch (KafkaException error) {
                    failed(error);
                }
            }
        }
    }

    /** Three transactions: the outcome of each, and of the aborts. The first one waits "pause.ms" before its end. */
    private void transacts() throws InterruptedException {
        Object pause = properties.remove("pause.ms");
        try (KafkaProducer<String, String> producer = producer()) {
            producer.initTransactions();
            for (int number = 0; number < 3; number++) {
                try {
                    producer.beginTransaction();
                    producer.send(new ProducerRecord<>(topic, 0, null, Integer.toString(number)));
                    if (number == 0 && pause != null) {
                        producer.flush();
                        Thread.sleep(Long.parseLong(pause.toString()));
                    }
                    producer.commitTransaction();
                    seen.add("committed");
                } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException | UnsupportedVersionException
                        | InvalidPidMappingException | TimeoutException error) {
                    failed(error);
                    return;
                } catch (KafkaException error) {
                    failed(error);
                    producer.abortTransaction();
                    seen.add("aborted");
                }
            }
        }
    }

    /** Five records and two commits: the values, and the outcome of each commit. */
    private void consumes() {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            int read = 0;
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (read < RECORDS) {
                if (System.nanoTime() > deadline) {
                    seen.add("nothing came");
                    return;
                }
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                        read++;
                        deadline = System.nanoTime() + PATIENCE.toNanos();
                        seen.add(record.value());
                        if (record.value().equals("1") || record.value().equals("4")) {
                            commit(consumer, record);
                        }
                    }
                } catch (KafkaException error) {
                    failed(error);
                }
            }
        }
    }

    private void commit(KafkaConsumer<String, String> consumer, ConsumerRecord<String, String> record) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        try {
            consumer.commitSync(offsets);
            seen.add("committed");
        } catch (FencedInstanceIdException error) {
            throw error;
        } catch (KafkaException error) {
            failed(error);
        }
    }

    /** A member until a record "stop" comes: what it is assigned, and what is revoked. */
    private void belongs() {
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    changed("assigned", partitions);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    changed("revoked", partitions);
                }

                @Override
                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    changed("lost", partitions);
                }
            });
            while (true) {
                try {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        if (record.value().equals("stop")) {
                            return;
                        }
                    }
                } catch (KafkaException error) {
                    failed(error);
                }
            }
        }
    }

    private void changed(String what, Collection<TopicPartition> partitions) {
        seen.add(what + ":" + partitions.stream().map(of -> Integer.toString(of.partition())).sorted().collect(Collectors.joining(",")));
    }
}
