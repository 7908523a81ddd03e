"""An Iceberg table, through `pyiceberg` and any of its catalogs.

The positions are a property of the table, `fletchlog.land`, set by the commit that adds the snapshot of the rows, whose summary has them too: snapshots may
expire, the property stays. A commit says which snapshot it continues, and the catalog refuses it if there is another one by then. pyiceberg would append
again on top of that one: for a second lander these are the same rows twice, so its retries are off, and what has changed is looked at first.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fletchlog.errors import InvalidArgumentError, StorageError, TableConflictError
from fletchlog.interop import require
from fletchlog.landing.columns import PARTITIONS, portable, with_partitions
from fletchlog.landing.positions import Positions, Wanted, copied, of_text, to_text
from fletchlog.landing.tables import Format, no_table, not_landed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

PROPERTY = "fletchlog.land"
_RETRIES = "commit.retry.num-retries"


class IcebergTable:
    """See the module."""

    format: Format = "iceberg"

    def __init__(self, name: str, catalog: Any) -> None:
        self.place = name
        if "." not in name.strip("."):
            raise InvalidArgumentError(f"an Iceberg table is NAMESPACE.NAME, got {name!r}")
        self._catalog = _opened(catalog)
        self._table: Any = None
        self._base: Positions = {}

    def open(self, wanted: Mapping[str, Wanted]) -> Positions:  # noqa: ARG002 - the property has all
        """As `Table.open`."""
        self._base = self._load()
        return copied(self._base)

    def peek(self) -> Positions:
        """As `Table.peek`."""
        found = self._load()
        if self._table is None:
            raise no_table(self.place)
        if not found:
            raise not_landed(self.place)
        return found

    def _load(self) -> Positions:
        exceptions = require("pyiceberg.exceptions", "tables")
        try:
            with _answering(f"the table {self.place}"):
                self._table = self._catalog.load_table(self.place)
        except exceptions.NoSuchTableError:
            self._table = None
            return {}
        return self._found()

    def _found(self) -> Positions:
        """The positions of this state of the table."""
        text = self._table.properties.get(PROPERTY)
        return {} if text is None else of_text(text, self.place)

    def schema(self) -> pa.Schema | None:
        """As `Table.schema`."""
        if self._table is None:
            return None
        pa = require("pyarrow", "arrow")
        by = set(self._columns_of_partitions())
        return pa.schema([pa.field(field.name, portable(field.type, field.name)) for field in self._table.schema().as_arrow() if field.name not in by])

    def _columns_of_partitions(self) -> tuple[str, ...]:
        schema = self._table.schema()
        return tuple(str(schema.find_column_name(field.source_id)) for field in self._table.spec().fields)

    def partitioned_by(self) -> str | None:
        """As `Table.partitioned_by`."""
        columns = self._columns_of_partitions() if self._table is not None else ()
        for by, names in PARTITIONS.items():
            if columns == names:
                return by
        return ", ".join(columns)

    def has_rows(self) -> bool:
        """As `Table.has_rows`."""
        return self._table is not None and self._table.current_snapshot() is not None

    def append(self, rows: pa.Table, schema: pa.Schema, partition_by: str | None, positions: Positions) -> int:
        """As `Table.append`."""
        exceptions = require("pyiceberg.exceptions", "tables")
        rows, text = with_partitions(rows, partition_by), to_text(positions)
        try:
            if self._table is None:
                self._table = self._create(rows.schema, partition_by)
            if self._found() != self._base:
                raise TableConflictError(f"the table {self.place}: another lander has committed since it was read")
            # of this object, not of the table: see above
            self._table.metadata.properties[_RETRIES] = "0"
            transaction = self._table.transaction()
            if self.schema() != schema:
                with transaction.update_schema() as update:
                    update.union_by_name(rows.schema)
            transaction.append(rows, snapshot_properties={PROPERTY: text})
            transaction.set_properties({PROPERTY: text})
            self._table = transaction.commit_transaction()
        except (exceptions.CommitFailedException, exceptions.TableAlreadyExistsError) as error:
            raise TableConflictError(f"the table {self.place}: another writer has committed since it was read ({error})") from error
        except exceptions.CommitStateUnknownException as error:
            raise StorageError(f"the table {self.place}: the catalog did not say whether it has committed ({error}); the same call finds out") from error
        self._base = copied(positions)
        summary = self._table.current_snapshot().summary
        return int(summary.additional_properties.get("added-data-files", 0))

    def _create(self, schema: pa.Schema, partition_by: str | None) -> Any:
        transforms = require("pyiceberg.transforms", "tables")
        self._catalog.create_namespace_if_not_exists(self.place.rpartition(".")[0])
        with self._catalog.create_table_transaction(self.place, schema=schema) as creation:
            if PARTITIONS[partition_by]:
                with creation.update_spec() as spec:
                    for name in PARTITIONS[partition_by]:
                        spec.add_field(name, transforms.IdentityTransform(), name)
        return self._catalog.load_table(self.place)

    def compact(self, target_bytes: int) -> int:  # noqa: ARG002
        """As `Table.compact`."""
        raise InvalidArgumentError(
            f"the table {self.place}: pyiceberg rewrites no files; leave out compact, and let an engine do it, e.g. Spark's "
            "rewrite_data_files: it keeps the offsets"
        )

    def close(self) -> None:
        """As `Table.close`."""
        self._table = None


def _opened(catalog: Any) -> Any:
    """A catalog from a name or its properties."""
    module = require("pyiceberg.catalog", "tables")
    if isinstance(catalog, module.Catalog):
        return catalog
    if isinstance(catalog, str):
        return _load(module, catalog, {})
    try:
        properties = {str(name): str(value) for name, value in dict(catalog).items()}
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"catalog is {catalog!r:.60}: expected a name of pyiceberg's configuration, a dict of properties, or a Catalog") from None
    return _load(module, properties.pop("name", "default"), properties)


def _load(module: Any, name: str, properties: Mapping[str, str]) -> Any:
    try:
        with _answering(f"the catalog {name}"):
            return module.load_catalog(name, **properties)
    except (ValueError, require("pyiceberg.exceptions", "tables").NotInstalledError) as error:
        what = f"no catalog of pyiceberg's configuration is named {name}, or it is not complete" if not properties else f"the properties of the catalog {name}"
        raise InvalidArgumentError(f"{what}: {error}") from error


@contextmanager
def _answering(what: str) -> Iterator[None]:
    """A catalog that does not answer, or not as one, is a `StorageError`."""
    try:
        yield
    except (OSError, require("pyiceberg.exceptions", "tables").RESTError) as error:
        raise StorageError(f"{what}: the catalog does not answer: {error}") from error
