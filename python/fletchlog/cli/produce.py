"""`fletchlog produce`: lines, JSON, CSV, Parquet, Arrow or Avro into a topic."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError, configured, in_words_of_the_shell, opened
from fletchlog.cli.common import topic as described
from fletchlog.cli.encoding import Encoder
from fletchlog.cli.inputs import BY_SUFFIX, FORMATS, Input, by_name
from fletchlog.cli.inputs.files import waiting
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG, PLACE, names_of_topics, typed
from fletchlog.cli.sending import Sender
from fletchlog.cli.template import unescaped
from fletchlog.cli.terminal import progress
from fletchlog.cli.text import counted, note
from fletchlog.cli.typed import asked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import fletchlog as fl
    from fletchlog._place import Place


# a full disk ends the command: it stays full while the command runs; idempotence needs one attempt more
RETRIES = 1


def produce(
    directory: Place = PLACE,
    topic: str = argument("TOPIC", "Topic to write to.", complete=names_of_topics),
    source: Path | None = argument("FILE", "File to read; default or -: standard input.", None),
    form: str | None = option("--format -f", f"{', '.join(FORMATS)}; default: by the file's name, or the first line of standard input."),
    key: str | None = option("--key", "Field (lines: separator before the value, \\t is a tab) that gives the key."),
    value: str | None = option("--value", "Field that gives the value; default: the whole row as JSON."),
    timestamp: str | None = option("--timestamp", "Field with the timestamp: ms since 1970, or ISO 8601."),
    delimiter: str | None = option("--delimiter", "Character between the fields of csv and tsv.", metavar="CHARACTER"),
    encoding: str | None = option("--encoding", "Encoding of a text file; default: UTF-8."),
    as_records: bool | None = option("--as-records --as-rows", "Whether rows are records that `consume` wrote; default: if they look so."),
    keep_partitions: bool = option("--keep-partitions", "Such records go to the partitions that they name.", False),
    key_format: str | None = typed("--key-format", "What keys are encoded as"),
    key_schema: Path | None = option("--key-schema", "File with the schema of the keys."),
    value_format: str | None = typed("--value-format", "What values are encoded as"),
    value_schema: Path | None = option(
        "--value-schema", "File with the schema of the values: Avro, JSON Schema, .proto; for json, their type, as in `id bigint, name string`."
    ),
    message: str | None = option(
        "--value-message --message", "Protobuf: message of the .proto file, as shop.Order; without a file a class that protoc has made.", metavar="NAME"
    ),
    schema_registry: str | None = option(
        "--schema-registry", "Registry that gets the schemas, or has them; their id is written before each value.", metavar="URL"
    ),
    subject: str | None = option("--subject", "Registry: subject of the values. Default: TOPIC-value."),
    partitions: int | None = option("--partitions", "Create the topic with this many partitions if it is missing."),
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    r"""Write records into a topic, from standard input or a file.

    A .json file holds an array of objects, or objects one after the other; their values keep their text. Rows of csv and tsv have text
    fields. Files that end in .gz or .zst are decompressed. What was read before a row that cannot be read is written, and so is what
    came through a pipe before Ctrl-C. A pipe need not end: what has come is written when nothing more comes for a moment.

    What `fletchlog consume` wrote as jsonl, json, csv, parquet or arrow becomes the same records, with keys, timestamps and headers, on standard input
    also without -f. With --key, --value or --timestamp, standard input that begins with a JSON object is jsonl, with an array json, and what could also be
    lines is refused. Other standard input is lines. Records are known by their fields: exactly topic, partition, offset, timestamp, key, value (or
    keyBase64, valueBase64) and perhaps headers; in parquet and arrow value and no others than these. The last line says that they were read
    so. With --as-rows, --key, --value or --timestamp each row becomes a value instead.

    With --value-format a row, or its field --value, is encoded: JSON by its fields, texts of csv by the type of the field, Parquet, Arrow and Avro as they
    are. Bytes within JSON are base64. What `consume --value` wrote as jsonl, csv, parquet or arrow is read back with the same format.

      seq 1000 | fletchlog produce data/ numbers --partitions 3

      fletchlog produce data/ orders orders.jsonl --key id --timestamp created_at

      fletchlog produce data/ flights flights.csv.gz --key carrier -c linger.ms=5

      fletchlog produce data/ orders excel.csv --delimiter ';' --encoding cp1252

      fletchlog produce kafka://h1:9092 orders orders.jsonl  # to a cluster

      fletchlog produce data/ orders orders.csv --value-format avro --value-schema order.avsc

      fletchlog consume data/ a -f jsonl | fletchlog produce copy/ a

      printf 'a:1\nb:2\n' | fletchlog produce data/ pairs --key :
    """
    import fletchlog as fl

    path = None if source is None or str(source) == "-" else source
    encoder = Encoder(
        topic,
        asked("--key-format", form=key_format, schema=key_schema, registry=schema_registry),
        asked("--value-format", form=value_format, schema=value_schema, message=message, registry=schema_registry, subject=subject),
    )
    read = Input(
        str(path or "standard input"),
        *_format(path, form),
        key,
        value,
        timestamp,
        _delimiter(delimiter),
        encoding,
        as_records,
        keep_partitions,
        encoder.kinds,
    )
    read.check()
    client = configured(command_config, config)
    if "transactional.id" in client:
        raise CommandError("this command writes without transactions: leave out transactional.id")
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("rb")) if path is not None else _standard_input()
        broker = stack.enter_context(_opened(directory, client, create=partitions is not None))
        is_new = partitions is not None and topic not in broker.topics()
        if is_new:
            broker.create_topic(topic, partitions=partitions or 0)
        start = _end(broker, topic)
        producer = stack.enter_context(_producer(broker, client))
        bar = stack.enter_context(progress(unit="records"))
        task = bar.add_task(f"producing to {topic}", total=None)
        sender = Sender(producer, topic, read.place, lambda count: bar.advance(task, count), encoder)
        try:
            with sender:
                for item in read.read(waiting(file, sender.send)):
                    sender.add(item)
        except CommandError as error:
            made = f"topic {topic} was created; " if is_new and not sender.count else ""
            raise CommandError(f"{error}; {made}{_written(sender.count, topic)}") from None
        except fl.KafkaError as error:
            try:
                taken = _end(broker, topic) - start
            except (CommandError, fl.KafkaError):  # it cannot be asked any more
                raise error from None
            raise CommandError(f"{taken:,} of the {counted(sender.read, 'record')} read so far are in {topic}: {in_words_of_the_shell(error)}") from None
    how = " as `fletchlog consume` wrote them" if read.as_records else ""
    note(f"produced {counted(sender.count, 'record')}{how} to {topic} in {directory}")


def _written(count: int, topic: str) -> str:
    return f"{counted(count, 'record')} before it {'is' if count == 1 else 'are'} in {topic}" if count else f"nothing was written to {topic}"


def _delimiter(given: str | None) -> str | None:
    return None if given is None else unescaped(given).decode("utf-8", "surrogateescape")


def _format(path: Path | None, form: str | None) -> tuple[str | None, str | None]:
    """Format and compression; the format of a pipe or a device, whose name gives none, is None."""
    if path is None or (path.exists() and not path.is_file()):
        return form, None
    named, compression = by_name(path)
    if form is None and named is None:
        raise CommandError(
            f"{path}: its name does not tell its format; give -f FORMAT, one of {', '.join(FORMATS)} "
            f"(known by {', '.join(BY_SUFFIX)}, each also with .gz or .zst)"
        )
    return form or named, compression


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise CommandError("standard input is closed; name a file")
    return sys.stdin.buffer


@contextlib.contextmanager
def _opened(directory: Place, asked: Mapping[str, Any], *, create: bool) -> Iterator[fl.Broker | fl.Cluster]:
    """A broker whose close and log lines do not hide why the command ends."""
    import fletchlog as fl

    broker = opened(directory, create=create, client=asked)
    with _log_held():
        try:
            yield broker
        except BaseException:
            with contextlib.suppress(fl.KafkaError):
                broker.close()
            raise
        broker.close()


def _producer(broker: fl.Broker | fl.Cluster, asked: Mapping[str, Any]) -> fl.Producer:
    import fletchlog as fl

    own = {"retries": str(RETRIES)} if isinstance(broker, fl.Broker) else {}
    return fl.Producer(broker, {**own, **asked})


def _end(broker: fl.Broker | fl.Cluster, topic: str) -> int:
    """How many records the topic has been given since it is there."""
    return sum(partition.high_watermark for partition in described(broker, topic, "give --partitions N to create it").partitions)


@contextlib.contextmanager
def _log_held() -> Iterator[None]:
    """Keeps what the engine logs until the end, and drops it when the command fails: its one sentence says why."""
    held: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            held.append(record)

    logger, handler = logging.getLogger("fletchlog"), Keep()
    propagated = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)
    for record in held:
        logging.getLogger(record.name).handle(record)
