"""A topic as a source of Daft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch
from daft.schema import Schema

from fletchlog.scans._dataset import TopicScanner, bounded
from fletchlog.scans._split import parts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from daft.io.pushdowns import Pushdowns

    from fletchlog.scans._plan import TopicScan


class TopicDataSource(DataSource):  # type: ignore[misc]
    """A plan for Daft: columns, filters and limits reach the scan; a task reads a partition, or a range of one.

    Args:
        plan: Of `fletchlog.scans.plan`, with the path or the address of its source.
    """

    def __init__(self, plan: TopicScan) -> None:
        self._plan = plan

    @property
    def name(self) -> str:
        """Daft's name of the source."""
        return "fletchlog"

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema.from_pyarrow_schema(self._plan.schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """A task for each part of the log that may have rows."""
        every = list(self._plan.columns)
        names = list(every if pushdowns.columns is None else pushdowns.columns)
        kept, limit = None, pushdowns.limit
        if pushdowns.filters is not None:
            try:
                kept = pushdowns.filters.to_arrow_expr()
                # Daft applies the filter once more, and drops its columns then
                names += pushdowns.filter_required_column_names()
            except (ValueError, NotImplementedError):
                # a filter that Daft does not show to a source: the limit is for what it keeps
                kept, names, limit = None, every, None
        # Daft takes columns by their places
        names = [name for name in every if name in names]
        for part in parts(bounded(self._plan, kept)):
            yield _Task(TopicScanner(part, names, kept), limit)


class _Task(DataSourceTask):  # type: ignore[misc]
    def __init__(self, scanner: TopicScanner, limit: int | None) -> None:
        self._scanner, self._limit = scanner, limit

    @property
    def schema(self) -> Schema:
        return Schema.from_pyarrow_schema(self._scanner.projected_schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        for batch in self._scanner.to_batches(self._limit):
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)
