"""`fletchlog land`: topics into tables, each record once."""

from __future__ import annotations

import json
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fletchlog._place import CLUSTER, STORE
from fletchlog.cli.arguments import ANYWHERE, argument, option
from fletchlog.cli.common import CommandError, configured, opened, properties, storage_options, topic
from fletchlog.cli.copy import offsets_of
from fletchlog.cli.interrupts import INTERRUPTED
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, JSON, typed
from fletchlog.cli.terminal import progress
from fletchlog.cli.text import counted, note, say
from fletchlog.cli.typed import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import FrameType

    from fletchlog._place import Place
    from fletchlog.serde.formats import Format

_POLICIES = {"fail": "raise", "null": "null", "collect": "collect"}
_MIB = 1 << 20


def land(
    source: Place | None = argument("SOURCE", "The broker's directory, kafka://HOST:PORT, or s3://BUCKET/PREFIX.", None, places=ANYWHERE),
    words: list[str] | None = argument("TOPIC.. TABLE", "Topics, and the table: a directory, a URI (Delta), or NAMESPACE.NAME (Iceberg).", None),
    status: str | None = option("--status", "Print which offsets this table has, and do nothing else.", metavar="TABLE"),
    table_format: str | None = option("--format -f", "parquet, delta or iceberg; default: what is there, else parquet."),
    catalog: str | None = option("--catalog", "Of an Iceberg table: the name of its catalog."),
    catalog_config: list[str] | None = option("--catalog-config", "A property of the catalog, as pyiceberg has them; may be repeated.", metavar="NAME=VALUE"),
    table_config: list[str] | None = option("--table-config", "An option of a store, by deltalake's name; may be repeated.", metavar="NAME=VALUE"),
    follow: bool = option("--follow", "Continue with what arrives; Ctrl-C commits what was read and ends it.", False),
    interval: int = option("--interval", "Seconds between commits of --follow.", 60, "SECONDS"),
    key: str | None = typed("--key --key-format", "What keys are decoded as"),
    key_schema: Path | None = option("--key-schema", "File with the schema of the keys."),
    value: str | None = typed("--value --value-format", "What values are decoded as"),
    value_schema: Path | None = option(
        "--value-schema", "File with the schema of the values: Avro, JSON Schema, .proto; for json, their type, as in `id bigint, name string`."
    ),
    message: str | None = option(
        "--value-message --message", "Protobuf: message of the .proto file, as shop.Order; without a file a class that protoc has made.", metavar="NAME"
    ),
    flatten: bool = option("--flatten", "Fields of values as columns, instead of a struct.", False),
    schema_registry: str | None = option("--schema-registry", "Registry of the schemas; rows have the type of the newest one of the subject.", metavar="URL"),
    subject: str | None = option("--subject", "Subject of the values there; default: that of the topic."),
    on_error: str | None = option(
        "--on-error", "What cannot be decoded: ends the command (default), is null, or is kept in a column with the reason.", metavar="fail|null|collect"
    ),
    partition_by: str | None = option("--partition-by", "day or hour, of the timestamp in UTC; default: as the table is, else none."),
    batch_mib: int = option("--batch-mib", "Commit once rows take this much memory.", 128, "MIB"),
    compact: bool = option("--compact", "Rewrite small files into larger ones. Not for Iceberg.", False),
    append: bool = option("--append", "Land from the beginning into a table that has rows and no offsets of the topic.", False),
    start_offset: list[str] | None = option(
        "--start-offset", "For such a topic, or a new table: begin at this offset; once for each partition.", metavar="TOPIC:PARTITION=OFFSET"
    ),
    skip_lost: bool = option("--skip-lost", "Continue behind records that were deleted before they were landed.", False),
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
    as_json: bool = JSON,
) -> None:
    """Bring topics into a table of Parquet files, Delta or Iceberg, each record once; the same command again brings what is new.

    The offsets that a table has are part of its own commits: wherever a landing is killed, no row is lost or repeated.

      fletchlog land data/ orders lake/orders                       # Parquet files

      fletchlog land data/ orders lake/orders -f delta --follow

      fletchlog land kafka://h1:9092 orders sales.orders --catalog prod

      fletchlog land data/ orders lake/typed --value avro --value-schema order.avsc --flatten

      fletchlog land data/ orders lake/typed --value confluent --schema-registry http://localhost:8081

      fletchlog land --status lake/orders
    """
    import fletchlog as fl

    of_catalog = _catalog(catalog, catalog_config)
    where: dict[str, Any] = {"format": table_format, "catalog": of_catalog, "table_options": properties(table_config) or None}
    if status is not None:
        if source is not None:
            raise CommandError("--status TABLE prints the offsets of a table, and takes no SOURCE")
        _print_status(fl.land.offsets(status, **where), as_json=as_json)
        return
    if source is None or len(words or []) < 2:  # noqa: PLR2004 - a topic and the table
        raise CommandError("land wants SOURCE, one or more topics, and the table: fletchlog land data/ orders lake/orders")
    *topics, table = words or []
    client = configured(command_config, config)
    with opened(source, read_only=True, client=client) as broker:
        for name in topics:
            topic(broker, name, f"`fletchlog topics list {source}` lists what there is")
    with _stopped_by_ctrl_c() as stop, progress(unit="records") as bar:
        task = bar.add_task("landing", total=None)
        landed = fl.land(
            source.name,
            topics,
            table,
            **where,
            follow=follow,
            interval=interval,
            stop=stop,
            key=_deserializer(asked("--key", form=key, schema=key_schema, registry=schema_registry), topics, is_key=True),
            value=_deserializer(
                asked("--value", form=value, schema=value_schema, message=message, registry=schema_registry, subject=subject), topics, is_key=False
            ),
            flatten=flatten,
            on_error=_policy(on_error),
            partition_by=partition_by,  # type: ignore[arg-type]
            batch_bytes=batch_mib * _MIB,
            compact=compact,
            append=append,
            start_offsets=offsets_of(start_offset or []),
            on_lost="skip" if skip_lost else "raise",
            config=client if source.kind == CLUSTER else None,
            storage_options=storage_options() if source.kind == STORE else None,
            on_progress=lambda name, rows: bar.update(task, advance=rows, description=name),
        )
    _print(landed, as_json=as_json)
    if landed.stopped:
        raise SystemExit(INTERRUPTED)


def _catalog(name: str | None, pairs: list[str] | None) -> Mapping[str, Any] | str | None:
    found = properties(pairs)
    return ({"name": name} if name else {}) | found if found else name


def _print(landed: Any, *, as_json: bool) -> None:
    if as_json:
        skipped = [{"topic": tp.topic, "partition": tp.partition, "first": first, "end": end} for tp, (first, end) in landed.skipped.items()]
        found = {name: getattr(landed, name) for name in ("table", "format", "rows", "commits", "files", "compacted", "stopped")}
        print(json.dumps({**found, "offsets": _listed(landed.offsets), "skipped": skipped}, indent=2))
        return
    if landed.rows:
        say(f"{landed.table}: {counted(landed.rows, 'row')} in {counted(landed.commits, 'commit')}, {counted(landed.files, 'file')} ({landed.format})")
    else:
        say(f"{landed.table}: nothing new")
    if landed.compacted:
        say(f"{counted(landed.compacted, 'small file')} rewritten")
    if landed.stopped:
        note("stopped: what was read is committed, and the same command continues")


def _print_status(offsets: Mapping[Any, int], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(_listed(offsets), indent=2))
        return
    for tp, offset in offsets.items():
        say(f"{tp}: up to offset {offset}, which is the next one to land")


def _listed(offsets: Mapping[Any, int]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in offsets.items()]


def _deserializer(wanted: Format | None, topics: list[str], *, is_key: bool) -> Any:
    """With one type for all values: with a registry that of the newest schema."""
    return None if wanted is None else wanted.resolved(topics[0] if len(topics) == 1 else None, is_key=is_key).deserializer()


def _policy(word: str | None) -> Any:
    """What `on_error` of `fl.land` is."""
    from fletchlog.serde import formats

    return formats.policy(word, "--on-error", _POLICIES)


class _Stop:
    """Set by a signal: `threading.Event` has a lock that its handler might wait for."""

    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(timeout or 0)
        return self._set


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[_Stop]:
    """The first Ctrl-C ends the landing behind its next commit, a second one the command."""
    stop, before = _Stop(), signal.getsignal(signal.SIGINT)

    def first(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
