"""The entry that Spark looks for. See `fletchlog.spark` for how to use it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from fletchlog.spark.batch import BatchReader
from fletchlog.spark.compat import check_release, has_filters
from fletchlog.spark.errors import OptionError
from fletchlog.spark.filters import FilteringReader
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.schema import check_projection, kafka_schema
from fletchlog.spark.sink_options import SinkOptions
from fletchlog.spark.stream import StreamReader
from fletchlog.spark.typed import check_described
from fletchlog.spark.writer import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType


# An option of the columnar format alone. Spark keeps the plan of a data source of Python for all queries of a frame: one that a filter has narrowed
# would be read by those without the filter, too.
PLANS_EACH_SCAN = "fletchlog.plans.each.scan"


class LogSource(DataSource):
    """A directory of topics as the Spark format `fletchlog`. Options are checked when it is known whether it is read or written."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Nothing else is checked or opened yet.

        Raises:
            OptionError: This PySpark is too old.
        """
        super().__init__(options)
        check_release()
        self._given = dict(options)
        self._plans_each_scan = self._given.pop(PLANS_EACH_SCAN, None) is not None

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "fletchlog"

    def schema(self) -> StructType:
        """Columns of Spark's kafka source."""
        options = self._source()
        return kafka_schema(include_headers=options.include_headers, typed=options.typed)

    def reader(self, schema: StructType) -> BatchReader:
        """Batch reading of the columns of `schema`."""
        options = self._source()
        check_projection(schema, options.typed)
        pushes_filters = self._plans_each_scan and has_filters()
        return (FilteringReader if pushes_filters else BatchReader)(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Micro-batch reading of the columns of `schema`."""
        options = self._source()
        check_projection(schema, options.typed)
        return StreamReader(options, schema)

    def _source(self) -> SourceOptions:
        options = SourceOptions.parse(self._given)
        options = replace(options, typed=tuple(one.resolved(options.only_topic) for one in options.typed))
        if self._plans_each_scan:
            check_described(options.typed)
            return replace(options, columnar=True)
        return options

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Writing of a frame, all or nothing."""
        if overwrite:
            raise OptionError("mode overwrite: a log is only appended to; write with .mode('append')")
        options = SinkOptions.parse(self._given)
        options.check_schema(schema)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's signature
        """Writing of a stream, each micro-batch exactly once."""
        if overwrite:
            raise OptionError("output mode complete would append every row again in each batch; use append, or foreachBatch")
        options = SinkOptions.parse(self._given)
        options.check_schema(schema)
        return StreamWriter(options)
