import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.metadata.LeaderConstants;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.metadata.util.BatchFileWriter;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Formats a metadata directory (arguments: directory, cluster id, node id) for a cluster that already has the topics of
 * standard input: "topic NAME ID PARTITIONS LEADER_EPOCH DIRECTORY_ID" and "config NAME KEY VALUE". So a broker takes a log
 * directory that it did not write, as it is.
 *
 * The partitions have no leader, as after the only broker of a cluster has stopped: the controller elects it once it is
 * registered and unfenced (the feature of eligible leader replicas would first take it out of the ISR, because it did not say that it
 * stopped cleanly). A leader that is not registered is a state no controller makes. A 4.x coordinator that loads a decided
 * transaction in that state takes its partitions for deleted, and ends it without their markers (4.3.1:
 * KRaftMetadataCache#getPartitionLeaderEndpoint, TransactionMarkerChannelManager#addTxnMarkersToBrokerQueue).
 */
public final class Bootstrap {
    private static final long FREE_PRODUCER_IDS = 1_000_000;

    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        int node = Integer.parseInt(args[2]);
        Formatter formatter = new Formatter()
            .setPrintStream(new PrintStream(OutputStream.nullOutputStream()))
            .setClusterId(args[1])
            .setNodeId(node)
            .setControllerListenerName("CONTROLLER")
            .setMetadataLogDirectory(directory.toString())
            .addDirectory(directory.toString());
        formatter.run();
        List<ApiMessageAndVersion> records = new ArrayList<>(formatter.bootstrapMetadata().records());
        // the ids of the producers that wrote the directory are taken
        records.add(new ApiMessageAndVersion(new ProducerIdsRecord()
            .setBrokerId(node).setBrokerEpoch(0).setNextProducerId(FREE_PRODUCER_IDS), (short) 0));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            records.removeIf(Bootstrap::isEligibleLeaderReplicas);
            records.addAll(recordsOf(line.split(" "), node));
        }
        // 3.9 and 4.3 format a file, 4.4 a snapshot of the metadata log; all of them read the file of a directory that has no snapshot
        Files.deleteIfExists(directory.resolve("__cluster_metadata-0").resolve("00000000000000000000-0000000000.checkpoint"));
        Path file = directory.resolve("bootstrap.checkpoint");
        Files.deleteIfExists(file);
        try (BatchFileWriter writer = BatchFileWriter.open(file)) {
            records.forEach(writer::append);
        }
    }

    private static boolean isEligibleLeaderReplicas(ApiMessageAndVersion record) {
        return record.message() instanceof FeatureLevelRecord feature && feature.name().equals("eligible.leader.replicas.version");
    }

    private static List<ApiMessageAndVersion> recordsOf(String[] words, int node) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        if (words[0].equals("config")) {
            records.add(new ApiMessageAndVersion(new ConfigRecord()
                .setResourceType(ConfigResource.Type.TOPIC.id())
                .setResourceName(words[1]).setName(words[2]).setValue(words[3]), (short) 0));
            return records;
        }
        Uuid id = Uuid.fromString(words[2]);
        records.add(new ApiMessageAndVersion(new TopicRecord().setName(words[1]).setTopicId(id), (short) 0));
        for (int partition = 0; partition < Integer.parseInt(words[3]); partition++) {
            records.add(new ApiMessageAndVersion(new PartitionRecord()
                .setTopicId(id).setPartitionId(partition)
                .setReplicas(List.of(node)).setIsr(List.of(node)).setLeader(LeaderConstants.NO_LEADER)
                .setLeaderEpoch(Integer.parseInt(words[4])).setPartitionEpoch(0)
                .setDirectories(List.of(Uuid.fromString(words[5]))), (short) 1));
        }
        return records;
    }
}
