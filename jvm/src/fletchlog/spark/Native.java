package fletchlog.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.spark.unsafe.Platform;

/** The functions of the crate {@code fletchlog-jni}. Numbers and addresses only. */
final class Native {
  /** Answers of {@link #next} beside a number of rows. */
  static final int END = 0;

  static final int FAILED = -1;
  static final int LOST = -2;

  /** Longs for an array: its validity and two buffers. */
  static final int OF_ARRAY = 3;

  static {
    load();
  }

  private Native() {}

  /** A library is loaded by one class loader only, and Spark has one for each session and one for tasks: each gets a file of its own. */
  private static void load() {
    String os = System.getProperty("os.name").toLowerCase().split(" ")[0];
    String file = System.mapLibraryName("fletchlog_jni");
    String resource = "/native/" + os + "-" + System.getProperty("os.arch") + "/" + file;
    try (InputStream library = Native.class.getResourceAsStream(resource)) {
      if (library == null) {
        throw new FileNotFoundException("the jar has no library for this system (" + resource + "); read with format(\"fletchlog\")");
      }
      Path copy = Files.createTempFile("fletchlog", file);
      try {
        Files.copy(library, copy, StandardCopyOption.REPLACE_EXISTING);
        System.load(copy.toString());
      } finally {
        Files.delete(copy); // what is loaded stays
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /**
   * Begins to read a range. The reader belongs to one thread and has to be closed.
   *
   * @param asked the typed columns that are read, see {@code Typed::parse} of the crate
   * @param slots longs that {@link #next} may write: {@link #OF_ARRAY} for each array of each column, at least two for a text
   */
  static long open(Ranges task, Ranges.Range range, int columns, String asked, int slots) {
    byte[][] parts = new byte[4][];
    String[] texts = {task.path(), range.topic(), task.typed(), asked};
    int length = 0;
    for (int i = 0; i < parts.length; i++) {
      parts[i] = texts[i].getBytes(StandardCharsets.UTF_8);
      length += parts[i].length;
    }
    long text = Platform.allocateMemory(length + 1L);
    try {
      long at = text;
      for (byte[] part : parts) {
        Platform.copyMemory(part, Platform.BYTE_ARRAY_OFFSET, null, at, part.length);
        at += part.length;
      }
      return open(
          text,
          parts[0].length,
          parts[1].length,
          parts[2].length,
          parts[3].length,
          range.partition(),
          range.start(),
          range.end(),
          task.committed(),
          columns,
          slots);
    } finally {
      Platform.freeMemory(text);
    }
  }

  /** What an answer below 0 says: its address and length are the first of the longs. */
  static String text(long out) {
    byte[] text = new byte[Math.toIntExact(Platform.getLong(null, out + 8))];
    Platform.copyMemory(null, Platform.getLong(null, out), text, Platform.BYTE_ARRAY_OFFSET, text.length);
    return new String(text, StandardCharsets.UTF_8);
  }

  private static native long open(
      long text,
      int pathLength,
      int topicLength,
      int typedLength,
      int askedLength,
      int partition,
      long start,
      long end,
      boolean committed,
      int columns,
      int slots);

  /**
   * The next rows of a reader: their number, with the addresses of their columns from {@code out} on, which are valid until the next call; or
   * {@link #END}; or {@link #FAILED} or {@link #LOST} with the address of a text. After {@link #LOST} it can be asked again.
   */
  static native int next(long reader, long out);

  /** Frees a reader. */
  static native void close(long reader);

  /** How many readers are open. */
  static native long openReaders();
}
