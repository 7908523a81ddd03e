import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.metadata.ConfigRecord;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.ProducerIdsRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.metadata.LeaderConstants;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.storage.Formatter;
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
        String directory = args[0];
        int node = Integer.parseInt(args[2]);
        new Formatter()
            .setPrintStream(new PrintStream(OutputStream.nullOutputStream()))
            .setClusterId(args[1])
            .setNodeId(node)
            .setControllerListenerName("CONTROLLER")
            .setMetadataLogDirectory(directory)
            .addDirectory(directory)
            .run();
        BootstrapDirectory checkpoint = open(directory);
        BootstrapMetadata formatted = checkpoint.read();
        List<ApiMessageAndVersion> records = new ArrayList<>(formatted.records());
        // the ids of the producers that wrote the directory are taken
        records.add(new ApiMessageAndVersion(new ProducerIdsRecord()
            .setBrokerId(node).setBrokerEpoch(0).setNextProducerId(FREE_PRODUCER_IDS), (short) 0));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            records.removeIf(Bootstrap::isEligibleLeaderReplicas);
            records.addAll(recordsOf(line.split(" "), node));
        }
        // it refuses to replace the file that the formatter wrote
        File file = new File(directory, BootstrapDirectory.BINARY_BOOTSTRAP_FILENAME);
        if (!file.delete()) {
            throw new IllegalStateException("no " + file);
        }
        open(directory).writeBinaryFile(BootstrapMetadata.fromRecords(records, "interop"));
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

    /** The constructor of 3.9 has a second argument. */
    private static BootstrapDirectory open(String directory) throws Exception {
        Constructor<?> constructor = BootstrapDirectory.class.getConstructors()[0];
        Object[] arguments = constructor.getParameterCount() == 1
            ? new Object[] {directory} : new Object[] {directory, Optional.empty()};
        return (BootstrapDirectory) constructor.newInstance(arguments);
    }
}
