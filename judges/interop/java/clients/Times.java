import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Answers "TOPIC PARTITION TIMESTAMP" lines with offsetsForTimes: "OFFSET TIMESTAMP", or "none". */
public final class Times {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                String[] words = line.split(" ");
                TopicPartition tp = new TopicPartition(words[0], Integer.parseInt(words[1]));
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(tp, Long.parseLong(words[2]))).get(tp);
                out.append(found == null ? "none" : found.offset() + " " + found.timestamp()).append('\n');
            }
        }
        System.out.print(out);
    }
}
