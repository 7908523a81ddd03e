package fletchlog.spark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Hands filters to the Python source, and keeps to itself which columns are read. */
final class LogScanBuilder implements ScanBuilder, SupportsPushDownFilters, SupportsPushDownRequiredColumns {
  private final PythonScanBuilder python;
  private StructType schema;

  LogScanBuilder(PythonTable table, StructType schema, CaseInsensitiveStringMap options) {
    python = (PythonScanBuilder) table.newScanBuilder(options);
    this.schema = schema;
  }

  @Override
  public Filter[] pushFilters(Filter[] filters) {
    return python.pushFilters(filters);
  }

  @Override
  public Filter[] pushedFilters() {
    return python.pushedFilters();
  }

  @Override
  public void pruneColumns(StructType required) {
    schema = required;
  }

  @Override
  public Scan build() {
    return new LogScan(python.build(), schema);
  }
}
