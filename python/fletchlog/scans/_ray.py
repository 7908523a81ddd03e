"""A topic as a source of Ray."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from ray.data import Datasource, ReadTask
from ray.data.block import BlockMetadata

from fletchlog.scans._dataset import TopicScanner, bounded
from fletchlog.scans._split import parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fletchlog.scans._plan import TopicScan


class TopicDatasource(Datasource):  # type: ignore[misc]
    """A plan for `ray.data.read_datasource`: Ray's columns and filters reach the scan; a task reads a partition, or a range of one.

    Args:
        plan: Of `fletchlog.scans.plan`, with the path or the address of its source.
    """

    def __init__(self, plan: TopicScan) -> None:
        super().__init__()
        # what Ray's own sources begin with, too
        self._projection_map = None
        self._plan = plan

    def get_name(self) -> str:
        """Ray's name of the step."""
        return "fletchlog"

    def supports_predicate_pushdown(self) -> bool:
        """Filters are applied to the rows here."""
        return True

    def supports_projection_pushdown(self) -> bool:
        """Columns are selected here."""
        return True

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown."""
        return None

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None) -> list[ReadTask]:  # noqa: ARG002
        """A task for each part of the log that may have rows, at least one; each makes a block of each batch."""
        predicate = self.get_current_predicate()
        kept = None if predicate is None else predicate.to_pyarrow()
        columns = self._get_data_columns()
        # a block without columns has no rows for Ray
        names = list(self._plan.columns if columns is None else columns) or list(self._plan.columns[:1])
        scanned = [TopicScanner(part, names, kept) for part in parts(bounded(self._plan, kept))] or [TopicScanner(self._plan.head(0), names, kept)]
        unknown = BlockMetadata(num_rows=None, size_bytes=None, exec_stats=None, input_files=None)
        return [ReadTask(_blocks(one, per_task_row_limit), unknown, one.projected_schema, per_task_row_limit) for one in scanned]


def _blocks(scanner: TopicScanner, rows: int | None) -> Callable[[], Iterable[pa.Table]]:
    def read() -> Iterable[pa.Table]:
        empty = True
        for batch in scanner.to_batches(rows):
            empty = False
            yield pa.Table.from_batches([batch])
        if empty:
            yield scanner.projected_schema.empty_table()

    return read


__all__ = ["TopicDatasource"]
