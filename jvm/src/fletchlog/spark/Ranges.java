package fletchlog.spark;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Map;
import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;

/** One task, as the class {@code RangePartition} of {@code fletchlog.spark.batch} describes it. */
record Ranges(String path, boolean committed, boolean failOnDataLoss, String typed, Range[] ranges) implements InputPartition {
  /** Offsets {@code start} to {@code end} (exclusive) of one partition of the log. */
  record Range(String topic, int partition, long start, long end) implements Serializable {
    long size() {
      return end - start;
    }
  }

  static Ranges[] of(InputPartition[] planned) {
    return Arrays.stream(planned).map(Ranges::of).toArray(Ranges[]::new);
  }

  private static Ranges of(InputPartition planned) {
    byte[] pickled =
        planned instanceof PythonStreamingInputPartition streaming
            ? streaming.pickedPartition()
            : ((PythonInputPartition) planned).pickedPartition();
    // An object of a class that is not known here becomes a map of its attributes.
    Unpickler unpickler = new Unpickler();
    try {
      Map<?, ?> task = (Map<?, ?>) unpickler.loads(pickled);
      Object[] ranges = (Object[]) task.get("ranges");
      return new Ranges(
          (String) task.get("path"),
          "read_committed".equals(task.get("isolation_level")),
          (Boolean) task.get("fail_on_data_loss"),
          (String) task.get("typed"),
          Arrays.stream(ranges).map(range -> range((Map<?, ?>) range)).toArray(Range[]::new));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } finally {
      unpickler.close();
    }
  }

  private static Range range(Map<?, ?> range) {
    Number partition = (Number) range.get("partition");
    Number start = (Number) range.get("start");
    Number end = (Number) range.get("end");
    return new Range((String) range.get("topic"), partition.intValue(), start.longValue(), end.longValue());
  }
}
