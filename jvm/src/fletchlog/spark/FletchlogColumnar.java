package fletchlog.spark;

import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The format {@code fletchlog-columnar}: a directory of topics as columns.
 *
 * <p>Options, offsets, filters and checkpoints are those of the Python data source {@code fletchlog}, which plans every query; only the tasks are
 * other ones.
 */
public final class FletchlogColumnar implements TableProvider, DataSourceRegister {
  static final String NAME = "fletchlog-columnar";
  private static final Pattern URI = Pattern.compile("(?!file:)[A-Za-z][A-Za-z0-9+.-]*://.*");

  private final PythonDataSourceV2 python = new PythonDataSourceV2();

  public FletchlogColumnar() {
    python.setShortName("fletchlog");
  }

  /** How many readers of this class loader hold memory: none, while no task runs. */
  public static long openReaders() {
    return Native.openReaders();
  }

  @Override
  public String shortName() {
    return NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    checkDirectory(options);
    return python.inferSchema(options);
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    checkDirectory(new CaseInsensitiveStringMap(properties));
    return new LogTable((PythonTable) python.getTable(schema, partitioning, properties));
  }

  private static void checkDirectory(CaseInsensitiveStringMap options) {
    String servers = options.get("kafka.bootstrap.servers");
    String path = options.getOrDefault("path", "").strip();
    if (servers != null || URI.matcher(path).matches()) {
      String what = servers != null ? "the cluster " + servers : "an object store";
      throw new IllegalArgumentException(
          "format " + NAME + " reads directories; read " + what + " with format(\"fletchlog\"), which has the same options");
    }
  }

  private record LogTable(PythonTable python) implements Table, SupportsRead {
    @Override
    public String name() {
      return NAME;
    }

    @Override
    @SuppressWarnings("deprecation") // Spark makes the columns of it
    public StructType schema() {
      return python.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new LogScanBuilder(python, options);
    }
  }
}
