import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints what AdminClient and KafkaConsumer say of the committed offsets: BOOTSTRAP GROUP... */
public final class Offsets {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        try (AdminClient admin = AdminClient.create(properties)) {
            for (int i = 1; i < args.length; i++) {
                Map<TopicPartition, OffsetAndMetadata> offsets =
                    admin.listConsumerGroupOffsets(args[i]).partitionsToOffsetAndMetadata().get();
                print("admin", args[i], offsets);
                properties.put("group.id", args[i]);
                try (KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    print("consumer", args[i], new HashMap<>(consumer.committed(offsets.keySet())));
                }
            }
        }
    }

    private static void print(String who, String group, Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, String> lines = new TreeMap<>();
        offsets.forEach((tp, at) -> lines.put(tp.topic() + " " + tp.partition(),
            at.offset() + " " + at.leaderEpoch().orElse(-1) + " " + Text.of(at.metadata().getBytes())));
        lines.forEach((tp, at) -> System.out.println(who + " " + group + " " + tp + " " + at));
    }
}
