package fletchlog.spark;

import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

/**
 * The format {@code fletchlog-columnar}: a directory of topics as columns.
 *
 * <p>Options, offsets, filters and checkpoints are those of the Python data source {@code fletchlog}, which plans every query; only the tasks are
 * other ones.
 */
public final class FletchlogColumnar implements TableProvider, DataSourceRegister {
  static final String NAME = "fletchlog-columnar";
  private static final Pattern URI = Pattern.compile("(?!file:)[A-Za-z][A-Za-z0-9+.-]*://.*");

  private static final String PYTHON = "fletchlog";

  /** Tells the Python source that each scan has a plan of its own, so that filters may narrow it ({@code source.py}). */
  private static final String PLANS_EACH_SCAN = "fletchlog.plans.each.scan";

  private final PythonDataSourceV2 python = new PythonDataSourceV2();

  public FletchlogColumnar() {
    python.setShortName(PYTHON);
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
    return python.inferSchema(marked(options));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    checkDirectory(new CaseInsensitiveStringMap(properties));
    return new LogTable(python, schema);
  }

  private static CaseInsensitiveStringMap marked(CaseInsensitiveStringMap options) {
    Map<String, String> all = new HashMap<>(options.asCaseSensitiveMap());
    all.put(PLANS_EACH_SCAN, "true");
    return new CaseInsensitiveStringMap(all);
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

  /**
   * One scan of a frame. Spark's class keeps what Python has planned for the first query of a frame for all others, and for a query with filters what is
   * left of the last one's; so each scan has an object of its own, which shares only the options.
   */
  private static final class PlanOfScan extends PythonDataSourceV2 {
    private final PythonDataSourceV2 frame;

    PlanOfScan(PythonDataSourceV2 frame) {
      this.frame = frame;
      setShortName(PYTHON);
    }

    @Override
    public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
        String name, CaseInsensitiveStringMap options, Option<StructType> schema) {
      return frame.getOrCreateDataSourceInPython(name, marked(options), schema);
    }
  }

  @SuppressWarnings("deprecation") // schema(): Spark makes the columns of it
  private record LogTable(PythonDataSourceV2 frame, StructType schema) implements Table, SupportsRead {
    @Override
    public String name() {
      return NAME;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      PythonTable table = new PythonTable(new PlanOfScan(frame), PYTHON, schema);
      return new LogScanBuilder(table, schema, options);
    }
  }
}
