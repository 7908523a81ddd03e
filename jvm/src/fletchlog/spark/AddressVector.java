package fletchlog.spark;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
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

  /** The array whose addresses are at a place behind {@code out}; those of what is in it are at the places behind it, as {@link #arrays} counts them. */
  static AddressVector at(long out, int place, DataType type, int rows) {
    long at = out + 8L * Native.OF_ARRAY * place;
    long first = Platform.getLong(null, at + 8);
    ColumnVector[] children = {};
    if (type instanceof ArrayType list) {
      children = new ColumnVector[] {at(out, place + 1, list.elementType(), items(first, rows))};
    } else if (type instanceof MapType map) {
      int items = items(first, rows);
      ColumnVector values = at(out, place + 1 + arrays(map.keyType()), map.valueType(), items);
      children = new ColumnVector[] {at(out, place + 1, map.keyType(), items), values};
    } else if (type instanceof StructType struct) {
      children = new ColumnVector[struct.length()];
      int next = place + 1;
      for (int i = 0; i < children.length; i++) {
        DataType part = struct.fields()[i].dataType();
        children[i] = at(out, next, part, rows);
        next += arrays(part);
      }
    }
    return new AddressVector(type, Platform.getLong(null, at), first, Platform.getLong(null, at + 16), rows, children);
  }

  /** How many arrays a column of a type is. */
  static int arrays(DataType type) {
    if (type instanceof ArrayType list) {
      return 1 + arrays(list.elementType());
    }
    if (type instanceof MapType map) {
      return 1 + arrays(map.keyType()) + arrays(map.valueType());
    }
    int all = 1;
    if (type instanceof StructType struct) {
      for (StructField field : struct.fields()) {
        all += arrays(field.dataType());
      }
    }
    return all;
  }

  private static int items(long ends, int rows) {
    return rows == 0 ? 0 : Platform.getInt(null, ends + 4L * rows);
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
  public ColumnarMap getMap(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = getInt(row);
    return new ColumnarMap(children[0], children[1], start, getInt(row + 1) - start);
  }

  @Override
  public boolean getBoolean(int row) {
    return (Platform.getByte(null, first + (row >> 3)) >> (row & 7) & 1) != 0;
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, first + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, first + 2L * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, first + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, first + 8L * row);
  }

  /** Arrow keeps a decimal as 16 bytes, the lowest first. */
  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    long at = first + 16L * row;
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      return Decimal.createUnsafe(Platform.getLong(null, at), precision, scale);
    }
    byte[] digits = new byte[16];
    for (int i = 0; i < digits.length; i++) {
      digits[i] = Platform.getByte(null, at + digits.length - 1 - i);
    }
    return Decimal.apply(new BigDecimal(new BigInteger(digits), scale), precision, scale);
  }
}
