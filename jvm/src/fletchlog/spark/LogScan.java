package fletchlog.spark;

import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A batch query, or one side of a streaming query: planned by the Python source, read by {@link RangesReader}. */
final class LogScan implements Scan, Batch, SupportsReportStatistics {
  private final Scan python;
  private final StructType schema;
  private Ranges[] tasks;
  private boolean isStream;

  LogScan(Scan python, StructType schema) {
    this.python = python;
    this.schema = schema;
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    return FletchlogColumnar.NAME + " " + schema.catalogString();
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    isStream = true;
    return LogStream.of(python.toMicroBatchStream(checkpointLocation), schema);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return tasks();
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new RangesReader.Factory(schema);
  }

  /** Offsets as bounds: some of them may have no record. */
  @Override
  public Statistics estimateStatistics() {
    if (isStream) {
      return new Offsets(OptionalLong.empty(), Map.of());
    }
    Ranges.Range[] ranges = Arrays.stream(tasks()).flatMap(task -> Arrays.stream(task.ranges())).toArray(Ranges.Range[]::new);
    long rows = Arrays.stream(ranges).mapToLong(Ranges.Range::size).sum();
    if (rows == 0) {
      return new Offsets(OptionalLong.of(0), Map.of());
    }
    long least = Arrays.stream(ranges).mapToLong(Ranges.Range::start).min().getAsLong();
    long most = Arrays.stream(ranges).mapToLong(Ranges.Range::end).max().getAsLong() - 1;
    return new Offsets(OptionalLong.of(rows), Map.of(Expressions.column("offset"), new Bounds(least, most)));
  }

  private Ranges[] tasks() {
    if (tasks == null) {
      tasks = Ranges.of(python.toBatch().planInputPartitions());
    }
    return tasks;
  }

  private record Offsets(OptionalLong numRows, Map<NamedReference, ColumnStatistics> columnStats) implements Statistics {
    @Override
    public OptionalLong sizeInBytes() {
      return OptionalLong.empty(); // unknown: Spark then broadcasts nothing by mistake
    }
  }

  private record Bounds(long least, long most) implements ColumnStatistics {
    @Override
    public Optional<Object> min() {
      return Optional.of(least);
    }

    @Override
    public Optional<Object> max() {
      return Optional.of(most);
    }

    @Override
    public OptionalLong nullCount() {
      return OptionalLong.of(0);
    }
  }
}
