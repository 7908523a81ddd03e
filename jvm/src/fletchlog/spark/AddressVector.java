package fletchlog.spark;

import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column in the layout of Arrow, read where it is. It does not own its memory: {@link RangesReader} has it freed.
 *
 * <p>Spark's ArrowColumnVector would need the classes of one release of Arrow, an allocator, and checks at every access.
 */
final class AddressVector extends ColumnVector {
  /** One bit a row, set if it is not null; 0: no row is null. */
  private final long validity;

  /** The values, or where those of variable length end: that of row i from the i-th number on. */
  private final long first;

  private final long bytes;
  private final int rows;
  private final ColumnVector[] children;

  private AddressVector(DataType type, long validity, long first, long bytes, int rows, ColumnVector... children) {
    super(type);
    this.validity = validity;
    this.first = first;
    this.bytes = bytes;
    this.rows = rows;
    this.children = children;
  }

  /** The array whose addresses are at a place behind {@code out}; those of the fields of a list's items are at the places behind it. */
  static AddressVector at(long out, int place, DataType type, int rows) {
    long at = out + 8L * Native.OF_ARRAY * place;
    long first = Platform.getLong(null, at + 8);
    ColumnVector[] children = {};
    if (type instanceof ArrayType list) {
      int items = Platform.getInt(null, first + 4L * rows);
      StructType item = (StructType) list.elementType();
      ColumnVector[] fields = new ColumnVector[item.length()];
      for (int i = 0; i < fields.length; i++) {
        fields[i] = at(out, place + 1 + i, item.fields()[i].dataType(), items);
      }
      children = new ColumnVector[] {new AddressVector(item, 0, 0, 0, items, fields)};
    }
    return new AddressVector(type, Platform.getLong(null, at), first, Platform.getLong(null, at + 16), rows, children);
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return validity != 0;
  }

  @Override
  public int numNulls() {
    int nulls = 0;
    for (int row = 0; row < rows; row++) {
      nulls += isNullAt(row) ? 1 : 0;
    }
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return validity != 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, first + 4L * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, first + 8L * row);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = getInt(row);
    byte[] copy = new byte[getInt(row + 1) - start];
    Platform.copyMemory(null, bytes + start, copy, Platform.BYTE_ARRAY_OFFSET, copy.length);
    return copy;
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = getInt(row);
    return UTF8String.fromAddress(null, bytes + start, getInt(row + 1) - start);
  }

  @Override
  public ColumnarArray getArray(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = getInt(row);
    return new ColumnarArray(children[0], start, getInt(row + 1) - start);
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    return children[ordinal];
  }

  @Override
  public boolean getBoolean(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public byte getByte(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public short getShort(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public float getFloat(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public double getDouble(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw new UnsupportedOperationException();
  }
}
