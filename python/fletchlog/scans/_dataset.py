"""A topic as a `pyarrow.dataset.Dataset`, for DuckDB and whatever else reads datasets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fletchlog.errors import InvalidArgumentError
from fletchlog.scans._arrow_expressions import fields, predicate_of, tree
from fletchlog.scans._plan import checked, plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Unpack

    from fletchlog._place import Source
    from fletchlog.scans._plan import ScanOptions, TopicScan
    from fletchlog.scans._typed import Paths

    Columns = Iterable[str] | Mapping[str, pc.Expression] | None

_BATCH_ROWS = 131072


def dataset(
    source: Source,
    topics: str | Iterable[str],
    partitions: int | Iterable[int] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    **options: Unpack[ScanOptions],
) -> TopicDataset:
    """One or more topics as a `pyarrow.dataset.Dataset`: for DuckDB, which pushes columns and filters into it, for pandas and for pyarrow.

        orders = fl.scans.dataset("kafka://h1:9092", "orders")
        duckdb.sql("select count(*) from orders where partition = 0 and timestamp > now() - interval 1 hour")
        orders.to_pandas(["key"], pc.field("offset") >= 1000)

    Filters bound what is read as those of `fletchlog.scan_topic` do, and are applied to the rows that are read. DuckDB takes the name `offset` in quotes only.
    Keys and values are the last columns, unless `columns` says otherwise.

    Args:
        source: As for `fletchlog.scan_topic`, as all that follows.
        topics: Name of a topic, or several.
        partitions: Only this partition, or these.
        start_offset: First offset of each partition.
        end_offset: End of each partition, exclusive.
        options: `columns`, `start_time`, `end_time`, `tail`, `key`, `value`, `on_error`, `unnest`, `include_headers`, `isolation_level`, `timestamp_unit`,
            `config`, `storage_options`.

    Raises:
        fletchlog.errors.InvalidArgumentError: As for `fletchlog.scan_topic`.
        ImportError: pyarrow is missing.
    """
    checked("dataset", options)
    made = plan(source, topics, partitions, start_offset, end_offset, **options)
    if options.get("columns") is None:
        # DuckDB reads the first column to count rows: it is no key, which might have to be decoded
        made = made.select(sorted(made.columns, key=lambda name: name.partition(".")[0].partition("_")[0] in {"key", "value"}))
    return TopicDataset(made)


class TopicDataset(ds.Dataset):  # type: ignore[misc]
    """A plan, read as a `pyarrow.dataset.Dataset` is: `to_table(columns=, filter=)`, `scanner`, `count_rows`, `head`, and in DuckDB by its variable's name.

    Columns and filters reach the scan; filters are applied to the rows that are read, too. Each call reads the topics as they are then. Made by
    `fletchlog.scans.dataset`. What only files have (fragments, partition expressions) it does not have.
    """

    # pyarrow's own class cannot be made from Python: nothing of it is used, every public name is defined here.
    def __init__(self, plan: TopicScan, kept: pc.Expression | None = None) -> None:
        self._plan = plan
        self._kept = kept

    def __repr__(self) -> str:
        return f"<fletchlog.scans.TopicDataset of {', '.join(self._plan.topics)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return TopicDataset, (self._plan, self._kept)

    @property
    def plan(self) -> TopicScan:
        """The plan that it reads."""
        return self._plan

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._plan.schema

    def scanner(self, columns: Columns = None, filter: pc.Expression | None = None, batch_size: int = _BATCH_ROWS, **_: Any) -> TopicScanner:  # noqa: A002
        """What reads these columns of the rows that a filter keeps. Other options of pyarrow are about reading files, and change nothing.

        Args:
            columns: Names, or expressions by name. None: all.
            filter: An expression over any of the columns.
            batch_size: Most rows of a batch.
        """
        return TopicScanner(self._plan, self._names(columns), self._both(filter), batch_size)

    def to_table(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:  # noqa: A002
        """The rows as a `pyarrow.Table`; arguments as for `scanner`."""
        return self.scanner(columns, filter, **options).to_table()

    def to_batches(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> Iterator[pa.RecordBatch]:  # noqa: A002
        """The rows batch by batch; arguments as for `scanner`."""
        return self.scanner(columns, filter, **options).to_batches()

    def to_pandas(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> Any:  # noqa: A002
        """The rows as a `pandas.DataFrame`; `columns` and `filter` as for `scanner`, other options go to `pyarrow.Table.to_pandas`."""
        return self.to_table(columns, filter).to_pandas(**options)

    def head(self, num_rows: int, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:  # noqa: A002
        """The first rows; reading ends when they are found."""
        return self.scanner(columns, filter, **options).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:  # noqa: A002
        """How many rows a filter keeps. Of the columns only those of the filter are read."""
        return self.scanner([], filter, **options).count_rows()

    def take(self, indices: Any, **options: Any) -> pa.Table:
        """The rows with these numbers; everything is read."""
        return self.to_table(**options).take(indices)

    def filter(self, expression: pc.Expression) -> TopicDataset:
        """A dataset of the rows that a filter keeps."""
        return TopicDataset(self._plan, self._both(expression))

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """The sorted rows, in memory."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """A join in memory; arguments as for `pyarrow.Table.join`."""
        return ds.InMemoryDataset(self.to_table().join(_table(right_dataset), *arguments, **options))

    def join_asof(self, right_dataset: Any, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """A join in memory; arguments as for `pyarrow.Table.join_asof`."""
        return ds.InMemoryDataset(self.to_table().join_asof(_table(right_dataset), *arguments, **options))

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Not possible: the columns are those of the log."""
        raise NotImplementedError("the columns of a topic are those of the log: give columns= to scanner, or key= and value= to fletchlog.scans.dataset")

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:  # noqa: A002
        """Not possible: a topic is read as a whole."""
        raise NotImplementedError("a topic has no fragments: read it by scanner()")

    _get_fragments = get_fragments

    @property
    def partition_expression(self) -> pc.Expression:
        """True: nothing is promised of all rows."""
        return pc.scalar(value=True)

    def _names(self, columns: Columns) -> list[str] | dict[str, pc.Expression]:
        if columns is None:
            return list(self.schema.names)
        return dict(columns.items()) if isinstance(columns, Mapping) else list(columns)

    def _both(self, other: pc.Expression | None) -> pc.Expression | None:
        return other if self._kept is None else self._kept if other is None else self._kept & other


class TopicScanner:
    """What `TopicDataset.scanner` returns: it reads as a `pyarrow.dataset.Scanner` does, in the thread that asks for a batch, and each call anew."""

    # Not pyarrow's: it reads ahead in threads that cannot be ended, which a process would wait for at its end.
    def __init__(self, plan: TopicScan, columns: list[str] | dict[str, pc.Expression], kept: pc.Expression | None, batch_rows: int = _BATCH_ROWS) -> None:
        whole = plan.schema
        filtered = None if kept is None else tree(kept, whole)
        plan = plan if kept is None else plan.where(predicate_of(filtered))
        asked = _paths(columns, whole)
        of_filter = set() if kept is None else fields(filtered)
        wanted, only = _wanted(whole, asked, of_filter)
        # a filter that needs no decoded value is applied before values are decoded
        early = kept is not None and of_filter is not None and plan.typed.decodes(wanted) and not plan.typed.decodes(path[0] for path in of_filter)
        self._early = _Mask(kept, frozenset(path[0] for path in of_filter or ())) if early else None
        if early and asked is not None:
            wanted, only = _wanted(whole, asked, set())
        self._late = None if early else kept
        self._plan = plan.select(wanted, only)
        self._columns = columns
        self._batch_rows = batch_rows
        self.projected_schema = self._made(self._plan.schema.empty_table()).schema
        self.dataset_schema = whole

    def to_batches(self, rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch, `rows` at most; reading ends with the iterator."""
        unfiltered = self._early is None and self._late is None
        plan = self._plan.head(rows) if rows is not None and unfiltered else self._plan
        left = rows
        if left == 0:
            return
        for batch in plan.batches(self._early, self._batch_rows):
            for made in self._made(pa.Table.from_batches([batch])).to_batches():
                yield made if left is None else made.slice(0, left)
                if left is not None:
                    left -= min(left, made.num_rows)
                    if not left:
                        return

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The rows as a `pyarrow.Table`."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reading ends when they are found."""
        return pa.Table.from_batches(self.to_batches(num_rows), schema=self.projected_schema)

    def count_rows(self) -> int:
        """How many rows there are."""
        return sum(batch.num_rows for batch in self.to_batches())

    def _made(self, rows: pa.Table) -> pa.Table:
        """The columns of the result, of the rows that the filter keeps."""
        if self._late is None and isinstance(self._columns, list):
            return rows.select(self._columns)
        return ds.InMemoryDataset(rows).to_table(self._columns, self._late, use_threads=False)


def bounded(plan: TopicScan, kept: pc.Expression | None) -> TopicScan:
    """A plan that reads no more than what a filter needs."""
    return plan if kept is None else plan.where(predicate_of(tree(kept, plan.schema)))


class _Mask:
    """pyarrow's own evaluation of a filter."""

    def __init__(self, expression: pc.Expression, columns: frozenset[str]) -> None:
        self._expression = expression
        self.columns: frozenset[str] | None = columns

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        made = ds.InMemoryDataset(pa.Table.from_batches([batch])).to_table({"keep": self._expression}, use_threads=False)
        return made["keep"].combine_chunks()


def _wanted(schema: pa.Schema, asked: set[tuple[str, ...]] | None, of_filter: set[tuple[str, ...]] | None) -> tuple[list[str], dict[str, Paths]]:
    """The columns to read, and of which of them only some fields; all, if it is not known what a projection or a filter reads."""
    if asked is None or of_filter is None:
        return list(schema.names), {}
    by_column: dict[str, set[tuple[str, ...]]] = {}
    for path in asked | of_filter:
        by_column.setdefault(path[0], set()).add(path[1:])
    some = {name: frozenset(paths) for name, paths in by_column.items() if () not in paths}
    return [name for name in schema.names if name in by_column], some


def _paths(columns: list[str] | dict[str, pc.Expression], schema: pa.Schema) -> set[tuple[str, ...]] | None:
    """The fields that a projection reads; None if that is not known."""
    if isinstance(columns, list):
        there = dict.fromkeys(schema.names)
        unknown = [name for name in columns if name not in there]
        if unknown:
            raise InvalidArgumentError(f"there is no column {unknown[0]!r}; the columns are {', '.join(there)}")
        return {(name,) for name in columns}
    found = [fields(tree(expression, schema)) for expression in columns.values()]
    known = [paths for paths in found if paths is not None]
    return set().union(*known) if len(known) == len(found) else None


def _table(data: Any) -> Any:
    return data.to_table() if isinstance(data, ds.Dataset) else data
