import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A transaction whose offsets are refused for ever: they name a topic that is not there. Arguments: bootstrap.servers. Prints
 * one line per call, "CALL OUTCOME": ok, the exception's class, or "waits" when it has not come back after five times max.block.ms.
 */
public final class Stuck {
    private static final long MAX_BLOCK_MS = 1000;

    private interface Call {
        void run();
    }

    private static void tell(String name, Call call) throws Exception {
        CompletableFuture<String> outcome = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                call.run();
                outcome.complete("ok");
            } catch (RuntimeException error) {
                outcome.complete(error.getClass().getSimpleName());
            }
        });
        thread.setDaemon(true);
        thread.start();
        String text;
        try {
            text = outcome.get(5 * MAX_BLOCK_MS, TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            text = "waits";
        }
        System.out.println(name + " " + text);
    }

    public static void main(String[] args) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("transactional.id", "stuck");
        config.put("max.block.ms", Long.toString(MAX_BLOCK_MS));
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes);
        producer.initTransactions();
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(new TopicPartition("missing", 0), new OffsetAndMetadata(1));
        tell("sendOffsetsToTransaction", () -> producer.sendOffsetsToTransaction(offsets, new ConsumerGroupMetadata("group")));
        tell("abortTransaction", producer::abortTransaction);
        tell("beginTransaction", producer::beginTransaction);
        tell("close", producer::close);
        tell("close(1s)", () -> producer.close(Duration.ofSeconds(1)));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
