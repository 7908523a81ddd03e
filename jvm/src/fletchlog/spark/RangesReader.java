package fletchlog.spark;

import java.io.IOException;
import java.util.List;
import java.util.Locale;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads the ranges of one task, one after the other, as batches of columns that are in the memory of Rust.
 *
 * <p>Synchronized, because Spark may close the readers of a task that was stopped while a thread that feeds Python asks for more.
 */
final class RangesReader implements PartitionReader<ColumnarBatch> {
  /** Columns that are read, in the order of the bits that Rust knows them by. Topic and partition are those of the range. */
  private static final List<String> READ = List.of("key", "value", "offset", "timestamp", "timestamptype", "headers", "key_error", "value_error");

  private static final String ADVICE =
      "Retention or a deleted topic may have taken records that this query had not read. "
          + "Set the option failOnDataLoss to false to go on with what is there";
  private static final Logger LOG = LoggerFactory.getLogger(RangesReader.class);

  private final Ranges task;
  private final StructType schema;
  private final int columns;
  private final String asked;
  private final int slots;

  /** Where the arrays of each field are. */
  private final int[] places;

  private long out;
  private int begun;
  private long reader;
  private ColumnarBatch batch;

  RangesReader(Ranges task, StructType schema) {
    this.task = task;
    this.schema = schema;
    int bits = 0;
    for (StructField field : schema.fields()) {
      int place = READ.indexOf(column(field));
      bits |= place < 0 ? 0 : 1 << place;
    }
    columns = bits;
    asked = Fields.asked(schema);
    places = new int[schema.length()];
    slots = Math.max(2, Native.OF_ARRAY * place());
    out = Platform.allocateMemory(8L * slots);
  }

  /** Finds the places of the arrays, column after column in the order of the bits, and how many there are. */
  private int place() {
    StructField[] fields = schema.fields();
    int all = 0;
    for (String name : READ) {
      DataType type = null;
      for (int i = 0; i < fields.length; i++) {
        if (column(fields[i]).equals(name)) {
          if (type != null && !type.sameType(fields[i].dataType())) {
            throw new IllegalArgumentException("schema: the column " + name + " is there with two types");
          }
          type = fields[i].dataType();
          places[i] = all;
        }
      }
      all += type == null ? 0 : AddressVector.arrays(type);
    }
    return all;
  }

  /** The name of the column behind a field; a schema may be given in other letters. */
  private static String column(StructField field) {
    return field.name().toLowerCase(Locale.ROOT);
  }

  @Override
  public synchronized boolean next() throws IOException {
    while (reader != 0 || begun < task.ranges().length) {
      if (reader == 0) {
        reader = Native.open(task, task.ranges()[begun], columns, asked, slots);
        begun++;
      }
      int answer = Native.next(reader, out);
      if (answer > 0) {
        batch = new ColumnarBatch(vectors(answer), answer);
        return true;
      }
      if (answer == Native.END) {
        closeReader();
      } else if (answer == Native.FAILED) {
        throw new IOException(Native.text(out));
      } else if (task.failOnDataLoss()) {
        throw new IOException(Native.text(out) + ". " + ADVICE);
      } else {
        LOG.warn("{}; going on because failOnDataLoss is false", Native.text(out));
      }
    }
    return false;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public synchronized void close() {
    closeReader();
    begun = task.ranges().length;
    Platform.freeMemory(out);
    out = 0; // freeing nothing is allowed
  }

  private void closeReader() {
    batch = null;
    if (reader != 0) {
      Native.close(reader);
      reader = 0;
    }
  }

  private ColumnVector[] vectors(int rows) {
    StructField[] fields = schema.fields();
    ColumnVector[] vectors = new ColumnVector[fields.length];
    for (int i = 0; i < fields.length; i++) {
      String column = column(fields[i]);
      vectors[i] =
          switch (column) {
            case "topic" -> topic(rows);
            case "partition" -> partition(rows);
            default -> AddressVector.at(out, places[i], fields[i].dataType(), rows);
          };
    }
    return vectors;
  }

  private ColumnVector topic(int rows) {
    ConstantColumnVector vector = new ConstantColumnVector(rows, DataTypes.StringType);
    vector.setUtf8String(UTF8String.fromString(range().topic()));
    return vector;
  }

  private ColumnVector partition(int rows) {
    ConstantColumnVector vector = new ConstantColumnVector(rows, DataTypes.IntegerType);
    vector.setInt(range().partition());
    return vector;
  }

  private Ranges.Range range() {
    return task.ranges()[begun - 1];
  }

  /** Makes the readers of a query's tasks. */
  record Factory(StructType schema) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      return new RangesReader((Ranges) partition, schema);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("the rows are read as columns");
    }
  }
}
