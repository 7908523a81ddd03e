"""The entry that Spark looks for. See `fletchlog.spark` for how to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from fletchlog.spark.batch import BatchReader
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.schema import check_projection, kafka_schema
from fletchlog.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.types import StructType


class LogSource(DataSource):
    """A directory of topics as the Spark format `fletchlog`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Checks the options; nothing is opened yet."""
        super().__init__(options)
        self._options = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """The format's short name."""
        return "fletchlog"

    def schema(self) -> StructType:
        """Columns of Spark's kafka source."""
        return kafka_schema(include_headers=self._options.include_headers)

    def reader(self, schema: StructType) -> BatchReader:
        """Batch reading of the columns of `schema`."""
        check_projection(schema)
        return BatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Micro-batch reading of the columns of `schema`."""
        check_projection(schema)
        return StreamReader(self._options, schema)
