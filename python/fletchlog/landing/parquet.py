"""A directory of Parquet files, or a prefix of an object store, with a manifest that is the commit.

```text
TABLE/_fletchlog/staged/   files of a commit that is being written: no *.parquet, so no reader takes them
TABLE/_fletchlog/manifest.json
                           JSON: positions, schema, every file of the table with its rows and bytes, and what the last commit has to
                           publish and to remove. Its rename, or its put on a condition, is the commit
TABLE/[day=2026-11-29/[hour=13/]]00000007-0000.parquet
                           published files: moved here after the commit
TABLE/_fletchlog/lock      of a directory: locked by the lander that is at work (flock), until it ends or is killed
```

A reader of `*.parquet` sees rows of commits only, none twice. After a kill between the manifest and the last move it lacks files of the last commit, or, of
a compaction, rows whose old files were removed; the next `open` moves them. What is staged for a commit that was made, and not in its manifest, is removed
by it: nobody can commit that any more.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from fletchlog.errors import StorageError
from fletchlog.interop import require
from fletchlog.landing.columns import PARTITIONS, conformed, with_partitions
from fletchlog.landing.files import MANIFEST
from fletchlog.landing.positions import FORM, Positions, Wanted, check_form, of_json, to_json
from fletchlog.landing.tables import Format, no_table, not_landed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from fletchlog.landing.files import Files

_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
# Columns with few values, and those whose values are all different.
_REPEATED = ("topic", "partition", "timestampType")
# Of a compaction: as many rows are read at a time.
_ROW_GROUP = 1 << 17
# no day and no hour
_NONE = -(1 << 31)


class ParquetTable:
    """See the module."""

    format: Format = "parquet"

    def __init__(self, files: Files) -> None:
        self.place = files.place
        self._files = files
        self._now: dict[str, Any] = {}

    def open(self, wanted: Mapping[str, Wanted]) -> Positions:  # noqa: ARG002 - the manifest has all
        """As `Table.open`."""
        self._files.open()
        self._now = self._manifest() or {}
        self._publish()
        done = self._now.get("commit", 0)
        for left in self._files.staged():
            # a number: of a commit that another lander may be about to make
            number = left.partition("-")[0]
            if not self._files.writer or not number.isdigit() or int(number) <= done:
                self._files.unstage(left)
        return of_json(self._now.get("topics", {}), self.place)

    def peek(self) -> Positions:
        """As `Table.peek`."""
        found = self._manifest()
        if found is None:
            raise not_landed(self.place) if self._files.exist() else no_table(self.place)
        return of_json(found.get("topics", {}), self.place)

    def _manifest(self) -> dict[str, Any] | None:
        """What the last commit says; None: there is none."""
        text = self._files.read()
        if text is None:
            return None
        try:
            found = json.loads(text)
        except ValueError as error:
            raise StorageError(
                f"{self.place}/{MANIFEST} is no manifest: {error}; it was changed by something else. Restore it, or land into a new table"
            ) from None
        check_form(found.get("fletchlog") if isinstance(found, dict) else None, self.place)
        manifest: dict[str, Any] = found
        return manifest

    def schema(self) -> pa.Schema | None:
        """As `Table.schema`."""
        if "schema" not in self._now:
            return None
        pa = require("pyarrow", "arrow")
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._now["schema"])))

    def partitioned_by(self) -> str | None:
        """As `Table.partitioned_by`."""
        by: str | None = self._now.get("partition_by")
        return by

    def has_rows(self) -> bool:
        """As `Table.has_rows`."""
        return bool(self._now.get("files")) or any(self._files.visible())

    def append(self, rows: pa.Table, schema: pa.Schema, partition_by: str | None, positions: Positions) -> int:
        """As `Table.append`."""
        number = self._now.get("commit", 0) + 1
        made = []
        for index, (folder, part) in enumerate(_parts(rows, partition_by)):
            name = f"{number:08}-{index:04}"
            size = self._files.stage(name + self._files.writer, lambda file, part=part: _write(part, file))  # type: ignore[misc]
            made.append({"staged": name + self._files.writer, "path": f"{folder}{name}.parquet", "rows": part.num_rows, "bytes": size})
        self._commit(schema, partition_by, to_json(positions), made, [])
        return len(made)

    def compact(self, target_bytes: int) -> int:
        """As `Table.compact`."""
        number = self._now.get("commit", 0) + 1
        made, removed = [], []
        for index, group in enumerate(_groups([one for one in self._now.get("files", []) if self._files.exists(one["path"])], target_bytes)):
            name, folder = f"{number:08}-{index:04}", group[0]["path"].rpartition("/")[0]
            staged = name + self._files.writer
            size = self._files.stage(staged, lambda file, group=group: self._rewrite(group, file))  # type: ignore[misc]
            path = f"{folder}/{name}.parquet" if folder else f"{name}.parquet"
            made.append({"staged": staged, "path": path, "rows": sum(one["rows"] for one in group), "bytes": size})
            removed += [one["path"] for one in group]
        if made:
            schema = self.schema()
            self._commit(schema, self.partitioned_by(), self._now["topics"], made, removed)
        return len(removed)

    def _rewrite(self, group: list[dict[str, Any]], file: Any) -> None:
        """Files one behind the other, in the columns of the table. One row group is in memory."""
        pa, parquet, schema = require("pyarrow", "arrow"), require("pyarrow.parquet", "arrow"), self.schema()
        with parquet.ParquetWriter(file, schema, **_options(schema)) as writer:
            for one in group:
                with parquet.ParquetFile(self._files.source(one["path"])) as source:
                    for batch in source.iter_batches(_ROW_GROUP):
                        writer.write_table(conformed(pa.Table.from_batches([batch]), schema))

    def _commit(self, schema: Any, partition_by: str | None, topics: dict[str, Any], made: list[dict[str, Any]], removed: list[str]) -> None:
        gone = set(removed)
        kept = [one for one in self._now.get("files", []) if one["path"] not in gone]
        manifest = {
            "fletchlog": FORM,
            "commit": self._now.get("commit", 0) + 1,
            "topics": topics,
            "partition_by": partition_by,
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "publish": {one["staged"]: one["path"] for one in made},
            "remove": removed,
            "files": [*kept, *({name: one[name] for name in ("path", "rows", "bytes")} for one in made)],
        }
        self._files.commit(json.dumps(manifest, indent=1).encode())
        self._now = manifest
        self._publish()

    def _publish(self) -> None:
        """What the last commit has to do; all of it may be done already."""
        for path in self._now.get("remove", []):
            self._files.remove(path)
        self._files.publish(self._now.get("publish", {}).items())

    def close(self) -> None:
        """As `Table.close`."""
        self._files.close()


def _write(rows: pa.Table, file: Any) -> None:
    require("pyarrow.parquet", "arrow").write_table(rows, file, **_options(rows.schema))


def _options(schema: pa.Schema) -> dict[str, Any]:
    """A dictionary where values repeat; keys and values as bytes are as good as all different."""
    columns = [field.name for field in schema if field.name in _REPEATED]
    types = require("pyarrow", "arrow").types
    columns += [field.name for field in schema if types.is_string(field.type) and field.name not in columns]
    return {"compression": "zstd", "compression_level": 1, "use_dictionary": columns or False}


def _parts(rows: pa.Table, by: str | None) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, with its path."""
    if rows.num_rows == 0:
        return
    names = PARTITIONS[by]
    if not names:
        yield "", rows
        return
    compute = require("pyarrow.compute", "arrow")
    keyed = with_partitions(rows, by)
    order = compute.sort_indices(keyed, sort_keys=[(name, "ascending") for name in names])  # stable
    keys = keyed.select(list(names)).take(order)
    rows = rows.take(order)
    starts = _runs(keys)
    texts = [_folder(names, [keys[name][row].as_py() for name in names]) for row in starts]
    for text, start, end in zip(texts, starts, [*starts[1:], rows.num_rows], strict=True):
        yield text, rows.slice(start, end - start)


def _runs(keys: pa.Table) -> list[int]:
    """The rows at which another key begins."""
    pa, compute = require("pyarrow", "arrow"), require("pyarrow.compute", "arrow")
    changed = None
    for name in keys.schema.names:
        column = pa.concat_arrays(compute.fill_null(keys[name].cast(pa.int32()), _NONE).chunks)
        one = compute.not_equal(column[1:], column[:-1])
        changed = one if changed is None else compute.or_(changed, one)
    return [0, *(row + 1 for row in compute.indices_nonzero(changed).to_pylist())]


def _folder(names: tuple[str, ...], values: list[Any]) -> str:
    return "".join(f"{name}={_NO_PARTITION if value is None else value}/" for name, value in zip(names, values, strict=True))


def _groups(known: list[dict[str, Any]], target_bytes: int) -> Iterator[list[dict[str, Any]]]:
    """Neighbours in one folder that are small, up to the size of a file; groups of one are left as they are."""
    by_folder: dict[str, list[dict[str, Any]]] = {}
    for one in known:
        by_folder.setdefault(one["path"].rpartition("/")[0], []).append(one)
    for inside in by_folder.values():
        group: list[dict[str, Any]] = []
        for one in inside:
            if group and sum(each["bytes"] for each in group) + one["bytes"] > target_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(one)
        if len(group) > 1:
            yield group
