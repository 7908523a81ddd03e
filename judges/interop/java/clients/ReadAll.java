import java.io.BufferedWriter;
import java.io.OutputStreamWriter;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints every record of every topic, as a consumer with the properties of the arguments gets them. */
public final class ReadAll {
    public static void main(String[] args) {
        PrintWriter out = new PrintWriter(new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8)));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(Text.properties(args), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (Map.Entry<String, List<PartitionInfo>> topic : consumer.listTopics().entrySet()) {
                if (!topic.getKey().startsWith("__")) {
                    topic.getValue().forEach(info -> partitions.add(new TopicPartition(info.topic(), info.partition())));
                }
            }
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> begins = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            partitions.forEach(tp -> out.println("range " + tp.topic() + " " + tp.partition() + " " + begins.get(tp) + " " + ends.get(tp)));
            Set<TopicPartition> open = new HashSet<>(partitions);
            open.removeIf(tp -> consumer.position(tp) >= ends.get(tp));
            while (!open.isEmpty()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    print(out, record);
                }
                open.removeIf(tp -> consumer.position(tp) >= ends.get(tp));
            }
        }
        out.flush();
    }

    private static void print(PrintWriter out, ConsumerRecord<byte[], byte[]> record) {
        out.println(String.join(" ", "record", record.topic(), "" + record.partition(), "" + record.offset(),
            "" + record.timestamp(), "" + record.timestampType().id, Text.of(record.key()), Text.of(record.value()),
            Text.of(record.headers())));
    }
}
