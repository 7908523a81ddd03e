import com.github.luben.zstd.Zstd;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Uploads what a broker hands over in the layout of Aiven's tiered storage plug-in, into the directory "root". Written anew after the
 * plug-in's sources. Segments whose base offset is odd are compressed; nothing is read back.
 */
public final class TieredLayout implements RemoteStorageManager {
    private static final int CHUNK = 3_000;

    private Path root;

    @Override
    public void configure(Map<String, ?> configs) {
        root = Path.of(configs.get("root").toString());
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RemoteStorageException {
        try {
            upload(metadata, data);
            return Optional.empty();
        } catch (IOException e) {
            throw new RemoteStorageException(e);
        }
    }

    private void upload(RemoteLogSegmentMetadata metadata, LogSegmentData data) throws IOException {
        TopicIdPartition of = metadata.remoteLogSegmentId().topicIdPartition();
        Path folder = root.resolve(of.topicPartition().topic() + "-" + of.topicId()).resolve("" + of.topicPartition().partition());
        String stem = String.format("%020d-%s", metadata.startOffset(), metadata.remoteLogSegmentId().id());
        Files.createDirectories(folder);
        boolean compressed = metadata.startOffset() % 2 == 1;
        String chunks = writeLog(folder.resolve(stem + ".log"), Files.readAllBytes(data.logSegment()), compressed);
        String indexes = writeIndexes(folder.resolve(stem + ".indexes"), data);
        String id = String.format("{\"topicIdPartition\":{\"topicId\":\"%s\",\"topicPartition\":{\"topic\":\"%s\",\"partition\":%d}},\"id\":\"%s\"}",
            of.topicId(), of.topicPartition().topic(), of.topicPartition().partition(), metadata.remoteLogSegmentId().id());
        List<String> epochs = new ArrayList<>();
        new TreeMap<>(metadata.segmentLeaderEpochs()).forEach((epoch, start) -> epochs.add("\"" + epoch + "\":" + start));
        String described = String.format("{\"remoteLogSegmentId\":%s,\"startOffset\":%d,\"endOffset\":%d,\"maxTimestampMs\":%d,"
                + "\"brokerId\":%d,\"eventTimestampMs\":%d,\"segmentLeaderEpochs\":{%s}}",
            id, metadata.startOffset(), metadata.endOffset(), metadata.maxTimestampMs(), metadata.brokerId(),
            metadata.eventTimestampMs(), String.join(",", epochs));
        Files.writeString(folder.resolve(stem + ".rsm-manifest"), String.format(
            "{\"version\":\"1\",\"chunkIndex\":%s,\"segmentIndexes\":%s,\"compression\":%b,\"remoteLogSegmentMetadata\":%s}",
            chunks, indexes, compressed, described));
    }

    private static String writeLog(Path object, byte[] log, boolean compressed) throws IOException {
        String whole = "\"originalChunkSize\":" + CHUNK + ",\"originalFileSize\":" + log.length;
        if (!compressed) {
            Files.write(object, log);
            return String.format("{\"type\":\"fixed\",%s,\"transformedChunkSize\":%d,\"finalTransformedChunkSize\":%d}",
                whole, CHUNK, (log.length - 1) % CHUNK + 1);
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        List<Integer> sizes = new ArrayList<>();
        for (int at = 0; at < log.length; at += CHUNK) {
            byte[] chunk = Zstd.compress(java.util.Arrays.copyOfRange(log, at, Math.min(log.length, at + CHUNK)));
            sizes.add(chunk.length);
            out.write(chunk);
        }
        Files.write(object, out.toByteArray());
        return String.format("{\"type\":\"variable\",%s,\"transformedChunks\":\"%s\"}", whole, encoded(sizes));
    }

    private static String encoded(List<Integer> sizes) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        List<Integer> listed = sizes.subList(0, sizes.size() - 1);
        out.writeInt(sizes.size());
        if (!listed.isEmpty()) {
            int base = listed.stream().min(Integer::compare).get();
            // a chunk here never differs by more than two bytes hold
            out.writeInt(base);
            out.writeByte(2);
            for (int size : listed) {
                out.writeShort(size - base);
            }
        }
        out.writeInt(sizes.get(sizes.size() - 1));
        return Base64.getEncoder().encodeToString(Zstd.compress(bytes.toByteArray()));
    }

    private static String writeIndexes(Path object, LogSegmentData data) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        StringBuilder places = new StringBuilder("{");
        add(out, places, "offset", Files.readAllBytes(data.offsetIndex()));
        add(out, places, "timestamp", Files.readAllBytes(data.timeIndex()));
        add(out, places, "producerSnapshot", Files.readAllBytes(data.producerSnapshotIndex()));
        ByteBuffer epochs = data.leaderEpochIndex().duplicate();
        byte[] checkpoint = new byte[epochs.remaining()];
        epochs.get(checkpoint);
        add(out, places, "leaderEpoch", checkpoint);
        if (data.transactionIndex().isPresent()) {
            add(out, places, "transaction", Files.readAllBytes(data.transactionIndex().get()));
        } else {
            places.append("\"transaction\":null,");
        }
        Files.write(object, out.toByteArray());
        places.setCharAt(places.length() - 1, '}');
        return places.toString();
    }

    private static void add(ByteArrayOutputStream out, StringBuilder places, String name, byte[] bytes) {
        places.append(String.format("\"%s\":{\"position\":%d,\"size\":%d},", name, out.size(), bytes.length));
        out.writeBytes(bytes);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start) throws RemoteStorageException {
        throw new RemoteStorageException("nothing is read back");
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start, int end) throws RemoteStorageException {
        throw new RemoteStorageException("nothing is read back");
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type) throws RemoteStorageException {
        throw new RemoteStorageException("nothing is read back");
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) {
        // the test keeps everything
    }

    @Override
    public void close() {
        // nothing is open
    }
}
