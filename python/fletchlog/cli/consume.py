"""`fletchlog consume`: records in the order that a Kafka consumer would see."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

from fletchlog.cli import places, share, times
from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError, configured, opened, topic
from fletchlog.cli.delivery import behind
from fletchlog.cli.interrupts import held
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, PARTITIONS, PLACE, names_of_groups, names_of_topics, typed
from fletchlog.cli.outputs import FORMATS, writer
from fletchlog.cli.terminal import progress
from fletchlog.cli.text import counted, note
from fletchlog.cli.typed import Decoder, asked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import pyarrow as pa

    import fletchlog as fl
    from fletchlog._place import Place
    from fletchlog.cli.delivery import Offsets


TABLE_ROWS = 50
# A format that is written, by the end of the name of a file.
_BY_SUFFIX = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}


def consume(
    directory: Place = PLACE,
    topics: list[str] = argument("TOPIC", "Topics to read.", complete=names_of_topics),
    form: str | None = option("--format -f", f"{', '.join(FORMATS)}, or a template of kcat; default: by the file's name, else table, with --follow jsonl."),
    output: Path | None = option("--output -o", "File to write; default or -: standard output.", writes=True),
    most: int | None = option("--max -n", f"Stop after this many records (table: {TABLE_ROWS})."),
    partition: list[int] | None = PARTITIONS,
    start: str | None = option("--from", f"Where to start; without it earliest. TIME: {times.HELP}.", metavar="earliest|latest|TIME"),
    until: str | None = option("--until", "Stop in each partition at its first record of this time or later.", metavar="TIME"),
    offset: int | None = option("--offset", "Start at this offset of each partition."),
    tail: int | None = option("--tail", "The last N records of each partition.", metavar="N"),
    group: str | None = option(
        "--group", "Consumer group: commits what was shown, and continues behind it next time. Opens the directory for writing.", complete=names_of_groups
    ),
    share_group: str | None = option(
        "--share-group",
        "Share group: reads as one of its members, and accepts what was written. Opens the directory for writing.",
        metavar="NAME",
        complete=names_of_groups,
    ),
    follow: bool = option("--follow", "Wait for more records at the end; Ctrl-C ends it.", False),
    key: str | None = typed("--key --key-format", "What keys are decoded as"),
    key_schema: Path | None = option("--key-schema", "File with the schema of the keys."),
    value: str | None = typed("--value --value-format", "What values are decoded as"),
    value_schema: Path | None = option(
        "--value-schema", "File with the schema of the values: Avro, JSON Schema, .proto; for json, their type, as in `id bigint, name string`."
    ),
    message: str | None = option(
        "--value-message --message", "Protobuf: message of the .proto file, as shop.Order; without a file a class that protoc has made.", metavar="NAME"
    ),
    schema_registry: str | None = option(
        "--schema-registry", "Registry of the schemas; values of avro, json and protobuf then begin with an id.", metavar="URL"
    ),
    subject: str | None = option("--subject", "Registry: subject whose newest version is the type in parquet and arrow. Default: TOPIC-value."),
    on_error: str | None = option(
        "--on-error", "What cannot be decoded: ends the command (default), is null, or is shown with the reason.", metavar="fail|null|show"
    ),
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    r"""Print or save records, in the order in which poll() returns them.

    Without --group nothing is committed and the directory is opened for reading only, also beside a running writer. Records that are deleted before
    they are read are reported, with their offsets; with auto.offset.reset (-c) it decides, as for a group.

    With --group the next call continues behind the last record that this one wrote, also after Ctrl-C or `| head`. What was in a pipe when its reader
    ended comes again; a table counts when all of it was printed, Parquet when the file was closed. A group without a commit begins at --from.

    With --share-group the command is a member of a share group: each record goes to one of the members, and is accepted when it was written, in a pipe
    when its reader took it. Others are released when the command ends. It ends when no record has come for some seconds. Of a table, json, parquet
    and arrow, which are complete at the end alone, records are accepted before.

    jsonl, json, csv, parquet and arrow hold whole records: `fletchlog produce` reads them back. A template has kcat's letters: %t topic, %p partition,
    %o offset, %k key, %s value, %T timestamp in ms, %h headers, %K and %S lengths, \n \t \xHH; raw is '%s\n'.

    With --value and --key, values and keys are decoded: JSON in text, with base64 for bytes; objects in jsonl and json; typed columns in parquet and arrow.
    --value json without --value-schema checks values and shows them as they are, with the digits of their numbers; parquet and arrow need the schema.
    --on-error show keeps the bytes of what cannot be decoded, with the reason: `valueError` in jsonl and json, a column value_error in parquet and arrow.

      fletchlog consume data/ orders -n 20                  # a first look

      fletchlog consume data/ orders --tail 5 -p 0          # the last ones

      fletchlog consume data/ orders --from 2h --until 15m  # of a time

      fletchlog consume data/ orders -f jsonl | jq .value   # for other tools

      fletchlog consume data/ orders --follow -f raw        # values as they come

      fletchlog consume data/ orders -f '%p@%o %k: %s\n'    # as kcat prints them

      fletchlog consume data/ orders payments -o all.parquet

      fletchlog consume kafka://h1:9092 orders -n 20        # from a cluster

      fletchlog consume kafka://h1:9093 orders --command-config client.properties

      fletchlog consume data/ orders -c fletchlog.consumer.version=4.2

      fletchlog consume data/ orders --value avro --value-schema order.avsc

      fletchlog consume data/ orders --value confluent --schema-registry http://localhost:8081
    """
    import fletchlog as fl

    output = None if output is None or str(output) == "-" else output
    named = _form_of(output)
    if output is not None and not (form or named or follow or most) and (output.is_file() or not output.exists()):
        raise CommandError(
            f"--output {output}: its name does not tell its format; give -f FORMAT, one of {', '.join(FORMATS)} (known by {', '.join(_BY_SUFFIX)})"
        )
    form = form or named or ("jsonl" if follow else "table")
    begin = start
    start = "earliest" if start is None else start
    _check(form, most, start, offset, tail, partition, until, group=group, follow=follow)
    limit = most if most is not None else TABLE_ROWS if form == "table" else None
    decoder = Decoder(
        asked("--key", form=key, schema=key_schema, registry=schema_registry),
        asked("--value", form=value, schema=value_schema, message=message, registry=schema_registry, subject=subject),
        on_error,
        topics=topics,
        as_columns=form in {"parquet", "arrow"},
    )
    client = configured(command_config, config)
    if group is None and share_group is None and "group.id" in client:
        raise CommandError(f"group.id is given as --group {client['group.id']}, or --share-group; without them the command is no member of a group")
    if share_group is not None:
        _check_shared(group, partition, begin, until, offset, tail)
        with opened(directory, read_only=False, client=client) as place:
            for name in topics:
                topic(place, name)
            with contextlib.closing(writer(form, output, follow=follow)) as shared:
                is_empty = True
                for batch in share.polls(place, topics, share_group, client, limit, follow=follow):
                    is_empty = is_empty and not batch.num_rows
                    for typed_rows in decoder.decoded(batch):
                        shared.add(typed_rows)
                    shared.wait_until_taken()
                shared.finish()
        if is_empty:
            note(
                f"share group {share_group} has no records to deliver now; a new group begins at the end of its topics, and"
                f" `fletchlog groups reset {directory} {share_group} --topic {topics[0]} --to-earliest --execute` sets it back"
            )
        if output is not None:
            note(f"wrote {counted(shared.count, 'record')} to {output}")
        return
    # without a group every partition has a place to begin at: a reset would be a loss, which is said
    skip = group is None and "auto.offset.reset" not in client
    given = {"auto.offset.reset": "none" if skip else start if start in places.RESETS else "earliest", **client}
    if group is not None:
        given |= {"group.id": group, "enable.auto.commit": "false"}
    with opened(directory, read_only=group is None, client=client) as broker:
        described = [topic(broker, name) for name in topics]
        found, existing = places.partitions(described, partition), places.Existing(broker, described)
        with fl.Consumer(broker, given) as consumer:
            ends = consumer.end_offsets(found)
            stops = {} if until is None else places.at(consumer, found, times.when("--until", until), ends)
            if group is not None:
                consumer.subscribe(topics)
            else:
                places.seek(consumer, found, start, offset, tail, existing)
            to = writer(form, output, follow=follow)
            group_offsets = _Committed(consumer) if group is not None else None
            try:
                with contextlib.closing(to):
                    for polled in _polls(consumer, None if follow else existing, ends, stops, limit, skip=skip):
                        for batch in polled.rows:
                            for typed_rows in decoder.decoded(batch):
                                to.add(typed_rows)
                        if group_offsets is not None:
                            group_offsets.polled(polled)
                            if follow:
                                group_offsets.commit(to.taken())
                    to.finish()
            finally:
                if group_offsets is not None:
                    group_offsets.commit(to.shown(), but=existing.gone)
            if most is None and to.count == limit and _are_left(consumer, polled, to.shown(), ends | stops):
                note(f"these are the first {limit} records: --max N shows more, --format jsonl all")
    if output is not None:
        note(f"wrote {counted(to.count, 'record')} to {output}")


def _are_left(consumer: Any, last: _Polled, shown: Offsets, goals: Offsets) -> bool:
    """Whether there are records behind those that were shown; `last`: the last poll."""
    return any(shown.get(tp, 0 if tp in last.cut else consumer.position(tp)) < goal for tp, goal in goals.items() if tp in consumer.assignment())


def _form_of(output: Path | None) -> str | None:
    """The format that the name of a file says, as `fletchlog produce` reads it.

    Raises:
        CommandError: A name of a compressed file.
    """
    if output and output.suffix.lower() in {".gz", ".zst"}:
        raise CommandError(f"--output {output}: nothing is compressed; `fletchlog consume .. -f jsonl | gzip` does it")
    return _BY_SUFFIX.get(output.suffix.lower()) if output else None


def _check(
    form: str, most: int | None, start: str, offset: int | None, tail: int | None, partition: list[int] | None, until: str | None,
    *, group: str | None, follow: bool
) -> None:  # fmt: skip
    """Whether the options fit each other."""
    if follow and form in {"table", "parquet", "json"}:
        raise CommandError(f"--follow never ends, and {form} is complete only at the end: use --format jsonl")
    if follow and until is not None:
        raise CommandError("--follow never ends, and --until says where to end: give one of them")
    for name, number, least in (("--max", most, 1), ("--tail", tail, 1), ("--offset", offset, 0)):
        if number is not None and number < least:
            raise CommandError(f"{name} is at least {least}, not {number}")
    begins = None if start in places.RESETS else times.when("--from", start)
    ends = None if until is None else times.when("--until", until)
    if begins is not None and ends is not None and ends <= begins:
        raise CommandError(f"--until {until} is not after --from {start}: no record is between them ({times.HELP})")
    chosen = {"--partition": bool(partition), "--offset": offset is not None, "--tail": tail is not None, "--from TIME": start not in places.RESETS}
    if group is not None and any(chosen.values()):
        first = next(name for name, given in chosen.items() if given)
        raise CommandError(f"{first} and --group do not go together: a group continues where it was; `fletchlog groups reset` sets where that is")
    if sum([chosen["--offset"], chosen["--tail"], start != "earliest"]) > 1:
        raise CommandError("--offset, --tail and --from each say where to start: give one of them")


def _check_shared(group: str | None, partition: list[int] | None, begin: str | None, until: str | None, offset: int | None, tail: int | None) -> None:
    """Refuses what a share group decides, or what it does not have.

    Raises:
        CommandError: Such an option was given.
    """
    given = {
        "--group": group is not None, "--partition": bool(partition), "--from": begin is not None, "--until": until is not None,
        "--offset": offset is not None, "--tail": tail is not None,
    }  # fmt: skip
    for name in (name for name, is_given in given.items() if is_given):
        raise CommandError(f"{name} and --share-group do not go together: a share group has no positions, and decides which records its members get")


class _Polled(NamedTuple):
    """A poll.

    Attributes:
        rows: Its records, those that are wanted.
        positions: Where the consumer is behind it, if there are no more records at the moment.
        cut: Partitions with records that are not wanted.
    """

    rows: list[pa.RecordBatch]
    positions: Offsets
    cut: set[fl.TopicPartition]


class _Committed:
    """The offsets that a group has committed.

    Behind the last record of a partition the position of the consumer is committed, as a consumer would do it: there may be offsets without a
    record, of markers, of aborted transactions, of what compaction removed.
    """

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._offsets: Offsets = {}
        self._behind: Offsets = {}  # the last record that was polled
        self._positions: Offsets = {}
        self._cut: set[fl.TopicPartition] = set()

    def polled(self, polled: _Polled) -> None:
        """Takes over what was polled and handed to the output."""
        for batch in polled.rows:
            self._behind |= behind(batch)
        self._cut |= polled.cut
        self._positions = polled.positions

    def commit(self, shown: Offsets, but: Collection[str] = ()) -> None:
        """Commits what is new; `shown`: behind the last records that were shown; `but`: topics that are gone."""
        offsets = shown | {tp: position for tp, position in self._positions.items() if tp not in self._cut and shown.get(tp) == self._behind.get(tp)}
        new = {tp: offset for tp, offset in offsets.items() if self._offsets.get(tp) != offset and tp.topic not in but}
        if new:
            with held():
                self._consumer.commit(new)
            self._offsets |= new


def _positions(consumer: Any, *, wait: bool) -> Offsets:
    """Where the consumer is in each of its partitions; without `wait`, in those in which it knows that now."""
    from fletchlog.errors import KafkaTimeoutError

    if wait:
        return {tp: consumer.position(tp) for tp in consumer.assignment()}
    found: Offsets = {}
    for tp in consumer.assignment():
        with contextlib.suppress(KafkaTimeoutError):
            found[tp] = consumer.position(tp, 0)
    return found


def _polls(consumer: Any, existing: places.Existing | None, ends: Offsets, stops: Offsets, limit: int | None, *, skip: bool = False) -> Iterator[_Polled]:
    """Polls until the partitions' ends at the beginning, or `stops`, or `limit`; or for ever, if `existing` is None.

    Raises:
        CommandError: A topic is gone, so that its end is not reached any more.
    """
    goals = ends | stops
    left = limit
    count, total = 0, None
    with progress() as bar:
        task = bar.add_task("consuming", total=limit)
        while left is None or left > 0:
            if total is None and existing is not None and (ahead := _positions(consumer, wait=False)):
                total = count + sum(max(goals.get(tp, 0) - position, 0) for tp, position in ahead.items())
                bar.update(task, total=total if limit is None else min(total, limit))
            records = places.poll(consumer, existing, skip=skip)
            count += len(records)
            rows, cut = [], set()
            for batch in records.to_pyarrow(include_headers=True, timestamp_unit="ms").to_batches() if len(records) else ():
                wanted = places.until(batch, stops)
                taken = wanted if left is None else wanted.slice(0, left)
                if taken.num_rows:
                    rows.append(taken)
                if taken.num_rows < batch.num_rows:
                    cut |= places.of(batch)
                bar.advance(task, taken.num_rows)
                left = None if left is None else left - taken.num_rows
            # a poll at the end would wait; offsets without a record make the total too large, which costs that poll
            idle = bool(stops) or not len(records) or (total is not None and count >= total)
            if idle and existing is not None:
                try:
                    existing.check()
                except CommandError:
                    yield _Polled(rows, {}, cut)  # records that came before it was noticed
                    raise
            positions = _positions(consumer, wait=existing is not None) if idle else {}
            yield _Polled(rows, positions, cut)
            if existing is not None and positions and all(position >= goals.get(tp, 0) for tp, position in positions.items()):
                break
    if existing is not None:
        existing.check(now=True)  # a topic that was made again may be as long
