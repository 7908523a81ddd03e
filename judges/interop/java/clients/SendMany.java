import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs one producer per line of standard input, several at a time, against the broker of the first argument: "ID PARTITIONS
 * k=v .. / STEP ..", where a step is "send:P,P,.." (records numbered from 0 on, all handed over before the producer's network
 * thread sees any) or "flush". The topic and the client id are ID. The second argument is how many run at a time.
 * Prints per line "ID / OUTCOME .. / CALLBACK ..": offset or exception of each record, record numbers in order of callbacks.
 */
public final class SendMany {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<String> lines = in.lines().collect(Collectors.toList());
        Properties broker = new Properties();
        broker.put("bootstrap.servers", args[0]);
        List<NewTopic> topics = new ArrayList<>();
        for (String line : lines) {
            String[] words = line.split(" ");
            topics.add(new NewTopic(words[0], Integer.parseInt(words[1]), (short) 1));
        }
        try (AdminClient admin = AdminClient.create(broker)) {
            admin.createTopics(topics).all().get();
            // answers once the broker leads them all: before that it would refuse what it is sent
            admin.listOffsets(topics.stream().flatMap(topic -> IntStream.range(0, topic.numPartitions()).boxed()
                .map(partition -> new TopicPartition(topic.name(), partition)))
                .collect(Collectors.toMap(partition -> partition, partition -> OffsetSpec.latest()))).all().get();
        }
        ExecutorService pool = Executors.newFixedThreadPool(Integer.parseInt(args[1]));
        List<Future<String>> results = new ArrayList<>();
        for (String line : lines) {
            results.add(pool.submit(() -> run(line, broker)));
        }
        StringBuilder out = new StringBuilder();
        for (Future<String> result : results) {
            out.append(result.get()).append('\n');
        }
        System.out.print(out);
        pool.shutdown();
    }

    private static String run(String line, Properties broker) throws Exception {
        String[] parts = line.split(" / ");
        String[] words = parts[0].split(" ");
        Properties properties = new Properties();
        properties.putAll(broker);
        properties.put("client.id", words[0]);
        for (int i = 2; i < words.length; i++) {
            String[] property = words[i].split("=");
            properties.put(property[0], property[1]);
        }
        List<Object> sent = new ArrayList<>();
        Set<Integer> callbacks = new LinkedHashSet<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.partitionsFor(words[0]);
            for (String step : parts[1].split(" ")) {
                if (step.equals("flush")) {
                    producer.flush();
                } else {
                    Thread network = hold(words[0]);
                    for (String partition : step.substring(5).split(",")) {
                        sent.add(send(producer, words[0], Integer.parseInt(partition), sent.size(), callbacks));
                    }
                    network.resume();
                }
            }
            producer.flush();
        }
        String outcomes = sent.stream().map(SendMany::outcome).collect(Collectors.joining(" "));
        synchronized (callbacks) {
            return words[0] + " / " + outcomes + " / " + callbacks.stream().map(String::valueOf).collect(Collectors.joining(" "));
        }
    }

    private static Object send(KafkaProducer<String, String> producer, String topic, int partition, int number, Set<Integer> callbacks) {
        ProducerRecord<String, String> record = new ProducerRecord<>(topic, partition, null, String.format("%-40d", number));
        try {
            return producer.send(record, (metadata, failure) -> {
                synchronized (callbacks) {
                    callbacks.add(number);
                }
            });
        } catch (KafkaException failure) {
            return failure;
        }
    }

    @SuppressWarnings("unchecked")
    private static String outcome(Object sent) {
        try {
            if (sent instanceof Exception) {
                throw new ExecutionException((Exception) sent);
            }
            return String.valueOf(((Future<RecordMetadata>) sent).get().offset());
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        } catch (InterruptedException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /** Stops the producer's network thread where it waits for the network, so that it holds nothing that a send needs. */
    private static Thread hold(String clientId) throws InterruptedException {
        String name = "kafka-producer-network-thread | " + clientId;
        Thread network = Thread.getAllStackTraces().keySet().stream().filter(t -> t.getName().equals(name)).findFirst().get();
        while (true) {
            network.suspend();
            StackTraceElement[] stack = network.getStackTrace();
            if (stack.length > 0 && stack[0].getClassName().equals("sun.nio.ch.EPoll") && stack[0].getMethodName().equals("wait")) {
                return network;
            }
            network.resume();
            Thread.sleep(1);
        }
    }
}
