import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Calls of share consumers: one JSON object a line on standard input, and what the call did on standard output. See share_steps.py. */
public class ShareSteps {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    private static class Member {
        final KafkaShareConsumer<byte[], byte[]> consumer;
        final Map<String, ConsumerRecord<byte[], byte[]>> records = new HashMap<>();
        final List<Object> callbacks = Collections.synchronizedList(new ArrayList<>());

        Member(Properties config) {
            consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach(
                (partition, of) -> callbacks.add(List.of(key(partition.topic(), partition.partition()), new TreeSet<>(of), name(error)))));
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Object result;
            try {
                result = step(args[0], JSON.readTree(line));
            } catch (Exception raised) {
                result = Map.of("raised", name(raised));
            }
            System.out.println(JSON.writeValueAsString(result));
            System.out.flush();
        }
        System.exit(0);
    }

    private static Object step(String address, JsonNode words) {
        Member member = MEMBERS.get(words.get("name").asText());
        switch (words.get("op").asText()) {
            case "open":
                Properties config = new Properties();
                config.put("bootstrap.servers", address);
                words.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
                MEMBERS.put(words.get("name").asText(), new Member(config));
                return "open";
            case "subscribe":
                List<String> topics = new ArrayList<>();
                words.get("topics").forEach(topic -> topics.add(topic.asText()));
                member.consumer.subscribe(topics);
                return null;
            case "unsubscribe":
                member.consumer.unsubscribe();
                return null;
            case "subscription":
                TreeSet<String> names = new TreeSet<>();
                member.consumer.subscription().forEach(topic -> names.add(common(topic)));
                return names;
            case "poll":
                List<Object> polled = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(Duration.ofMillis(words.get("ms").asLong()))) {
                    String at = key(record.topic(), record.partition()) + "-" + record.offset();
                    member.records.put(at, record);
                    polled.add(List.of(at, record.deliveryCount().orElse((short) -1)));
                }
                return polled;
            case "ack":
                acknowledge(member, words.get("at").asText(), words.get("topic").asText(), AcknowledgeType.valueOf(words.get("kind").asText().toUpperCase()));
                return "acknowledged";
            case "commit":
                Map<String, String> results = new TreeMap<>();
                member.consumer.commitSync(TIMEOUT).forEach(
                    (partition, error) -> results.put(key(partition.topic(), partition.partition()), name(error.orElse(null))));
                return results;
            case "commit_async":
                member.consumer.commitAsync();
                return null;
            case "lock":
                return member.consumer.acquisitionLockTimeoutMs().orElse(null);
            case "wakeup":
                member.consumer.wakeup();
                return null;
            case "callbacks":
                return new ArrayList<>(member.callbacks);
            case "close":
                member.consumer.close(TIMEOUT);
                return null;
            default:
                throw new IllegalArgumentException(words.toString());
        }
    }

    private static void acknowledge(Member member, String at, String topic, AcknowledgeType kind) {
        ConsumerRecord<byte[], byte[]> record = member.records.get(at);
        if (record != null) {
            member.consumer.acknowledge(record, kind);
            return;
        }
        String[] parts = at.split("-");
        member.consumer.acknowledge(topic, Integer.parseInt(parts[1]), Long.parseLong(parts[2]), kind);
    }

    private static String common(String topic) {
        return topic.substring(topic.lastIndexOf('-') + 1);
    }

    private static String key(String topic, int partition) {
        return common(topic) + "-" + partition;
    }

    private static String name(Exception error) {
        if (error == null) {
            return "";
        }
        Errors code = Errors.forException(error);
        return error instanceof ApiException && code != Errors.UNKNOWN_SERVER_ERROR ? Short.toString(code.code()) : error.getClass().getSimpleName();
    }
}
