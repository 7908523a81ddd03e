import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.message.ProduceResponseData.PartitionProduceResponse;
import org.apache.kafka.common.message.ProduceResponseData.TopicProduceResponse;
import org.apache.kafka.common.message.ProduceResponseData.TopicProduceResponseCollection;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.requests.RequestHeader;

/** A produce request for one topic and what it is answered. */
final class Produce {
    private final byte[] frame;
    private final int headerSize;
    private final short version;
    private final int correlationId;
    private final Map<Integer, String> sent = new TreeMap<>();
    private final Map<Integer, PartitionProduceResponse> answers = new TreeMap<>();
    private final TopicProduceResponse topic = new TopicProduceResponse();

    Produce(byte[] frame) {
        this.frame = frame;
        ByteBuffer buffer = ByteBuffer.wrap(frame);
        RequestHeader header = RequestHeader.parse(buffer);
        headerSize = buffer.position();
        version = header.apiVersion();
        correlationId = header.correlationId();
        data().topicData().forEach(t -> {
            topic.setName(t.name()).setTopicId(t.topicId());
            t.partitionData().forEach(p -> sent.put(p.index(), describe((MemoryRecords) p.records())));
        });
    }

    private ProduceRequestData data() {
        return new ProduceRequestData(new ByteBufferAccessor(ByteBuffer.wrap(frame).position(headerSize).slice()), version);
    }

    private static String describe(MemoryRecords records) {
        List<String> ids = new ArrayList<>();
        String producer = "";
        for (MutableRecordBatch batch : records.batches()) {
            producer = batch.producerId() + " " + batch.producerEpoch() + " " + batch.baseSequence();
            for (Record record : batch) {
                byte[] value = new byte[record.valueSize()];
                record.value().get(value);
                ids.add(new String(value).trim());
            }
        }
        return producer + " " + String.join(",", ids);
    }

    /** The request as it came. */
    byte[] whole() {
        return frame;
    }

    boolean hasOthersThan(int partition) {
        return sent.size() > 1 || !sent.containsKey(partition);
    }

    /** The request without one partition. */
    byte[] without(int partition) {
        ProduceRequestData data = data();
        data.topicData().forEach(t -> t.partitionData().removeIf(p -> p.index() == partition));
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(headerSize + data.size(cache, version)).put(frame, 0, headerSize);
        data.write(new ByteBufferAccessor(out), cache, version);
        return out.array();
    }

    /** Takes over what the broker answered. */
    void answered(byte[] response) {
        int header = ApiKeys.PRODUCE.responseHeaderVersion(version) == 0 ? 4 : 5;
        ByteBuffer body = ByteBuffer.wrap(response).position(header).slice();
        new ProduceResponseData(new ByteBufferAccessor(body), version).responses()
            .forEach(t -> t.partitionResponses().forEach(p -> answers.put(p.index(), p)));
    }

    /** Answers an error, "refused:CODE[:LOG START OFFSET]", for one partition or, below 0, for all. */
    void refuse(int only, String[] action) {
        for (int partition : sent.keySet()) {
            if (only < 0 || partition == only) {
                answers.put(partition, new PartitionProduceResponse().setIndex(partition).setErrorCode(Short.parseShort(action[1]))
                    .setBaseOffset(-1).setLogAppendTimeMs(-1).setLogStartOffset(action.length > 2 ? Long.parseLong(action[2]) : -1));
            }
        }
    }

    /** The response's bytes. */
    byte[] answer() {
        TopicProduceResponseCollection topics = new TopicProduceResponseCollection();
        topics.add(topic.duplicate().setPartitionResponses(new ArrayList<>(answers.values())));
        ProduceResponseData data = new ProduceResponseData().setResponses(topics);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        boolean flexible = ApiKeys.PRODUCE.responseHeaderVersion(version) != 0;
        ByteBuffer out = ByteBuffer.allocate((flexible ? 5 : 4) + data.size(cache, version)).putInt(correlationId);
        if (flexible) {
            out.put((byte) 0);
        }
        data.write(new ByteBufferAccessor(out), cache, version);
        return out.array();
    }

    /** "PARTITION PID EPOCH SEQUENCE ID,ID.. ERROR OFFSET" per partition. */
    List<String> parts() {
        List<String> lines = new ArrayList<>();
        sent.forEach((partition, what) -> {
            PartitionProduceResponse answer = answers.get(partition);
            lines.add(partition + " " + what + " " + (answer == null ? "- -" : answer.errorCode() + " " + answer.baseOffset()));
        });
        return lines;
    }
}
