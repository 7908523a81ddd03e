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

  /** Longs that {@link #next} may write: {@link #OF_ARRAY} for each array of each column. */
  static final int SLOTS = 24;

  /** Validity and two buffers. */
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

  /** Begins to read a range. The reader belongs to one thread and has to be closed. */
  static long open(Ranges task, Ranges.Range range, int columns) {
    byte[] path = task.path().getBytes(StandardCharsets.UTF_8);
    byte[] topic = range.topic().getBytes(StandardCharsets.UTF_8);
    long text = Platform.allocateMemory(path.length + topic.length + 1L);
    try {
      Platform.copyMemory(path, Platform.BYTE_ARRAY_OFFSET, null, text, path.length);
      Platform.copyMemory(topic, Platform.BYTE_ARRAY_OFFSET, null, text + path.length, topic.length);
      return open(
          text,
          path.length,
          text + path.length,
          topic.length,
          range.partition(),
          range.start(),
          range.end(),
          task.committed(),
          columns);
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
      long path, int pathLength, long topic, int topicLength, int partition, long start, long end, boolean committed, int columns);

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
