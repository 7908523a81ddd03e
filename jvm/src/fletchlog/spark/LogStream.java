package fletchlog.spark;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStreamWithTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The Python source's stream with other tasks; its offsets and so its checkpoints are the same. */
record LogStream(PythonMicroBatchStreamWithTriggerAvailableNow python, StructType schema) implements MicroBatchStream, SupportsTriggerAvailableNow {
  static LogStream of(MicroBatchStream python, StructType schema) {
    return new LogStream((PythonMicroBatchStreamWithTriggerAvailableNow) python, schema);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return Ranges.of(python.planInputPartitions(start, end));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new RangesReader.Factory(schema);
  }

  @Override
  public Offset initialOffset() {
    return python.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return python.deserializeOffset(json);
  }

  @Override
  public Offset latestOffset() {
    return python.latestOffset();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return python.latestOffset(start, limit);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return python.getDefaultReadLimit();
  }

  @Override
  public Offset reportLatestOffset() {
    return python.reportLatestOffset();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    python.prepareForTriggerAvailableNow();
  }

  @Override
  public void commit(Offset end) {
    python.commit(end);
  }

  @Override
  public void stop() {
    python.stop();
  }

  /** What the progress of a query calls its source. */
  @Override
  public String toString() {
    return FletchlogColumnar.NAME;
  }
}
