"""What changes the logs of a directory at once: `fletchlog delete-records`, `clean`, `retention`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.cli import places, times
from fletchlog.cli.arguments import option
from fletchlog.cli.common import CommandError, configured, confirm, opened, opened_directory, topic
from fletchlog.cli.options import COMMAND_CONFIG, DIR, JSON, PARTITIONS, PLACE, TOPIC, YES
from fletchlog.cli.tables import done, show
from fletchlog.cli.text import counted, note

if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._place import Place


def delete_records(
    directory: Place = PLACE,
    name: str = TOPIC,
    partition: list[int] | None = PARTITIONS,
    before_offset: int | None = option("--before-offset", "Delete the records before this offset; -1: all. Needs --partition, except for -1."),
    before: str | None = option("--before", f"Delete what is before the first record of this time or later: {times.HELP}.", metavar="TIME"),
    yes: bool = YES,
    as_json: bool = JSON,
    command_config: Path | None = COMMAND_CONFIG,
) -> None:
    """Delete the oldest records of a topic.

    fletchlog delete-records data/ orders --partition 0 --before-offset 1000

    fletchlog delete-records data/ orders --before 2024-05-01 --yes
    """
    import fletchlog as fl

    if (before_offset is None) == (before is None):
        raise CommandError("say which records: one of --before-offset, --before")
    if before_offset is not None and before_offset < -1:
        raise CommandError(f"--before-offset is at least 0, or -1 for all, not {before_offset}")
    if before_offset is not None and before_offset >= 0 and not partition:
        raise CommandError("--before-offset is for one partition: give --partition as well")
    time = None if before is None else times.when("--before", before)
    asked = configured(command_config)
    with opened(directory, client=asked) as broker, fl.Consumer(broker, asked) as consumer:
        found = places.partitions([topic(broker, name)], partition)
        begin, ends = consumer.beginning_offsets(found), {(name, p.partition): p.high_watermark for p in broker.describe_topic(name).partitions}
        if time is not None:
            limits = places.at(consumer, found, time, {tp: ends[tp] for tp in found})
        else:
            limits = {tp: ends[tp] if before_offset == -1 else before_offset or 0 for tp in found}
        for tp, limit in limits.items():
            if limit > ends[tp]:
                raise CommandError(f"{tp} ends at {ends[tp]}, before {limit}; nothing was deleted")
        limits = {tp: max(limit, begin[tp]) for tp, limit in limits.items()}
        count = sum(limits[tp] - begin[tp] for tp in found)
        confirm(f"delete {counted(count, 'offset')} of {name} in {directory}", yes=yes or not count)
        rows = [{"topic": name, "partition": tp.partition, "before": begin[tp], "after": broker.delete_records(name, tp.partition, limits[tp])} for tp in found]
    show(rows, as_json=as_json, empty="no partition")


def take_over(directory: Place = DIR, as_json: bool = JSON) -> None:
    """Let fletchlog write to a directory that a Kafka broker has written. The broker must be stopped.

    The logs stay as they are; fletchlog.metadata and .lock are added. A Kafka broker can use the directory again.

    fletchlog take-over /var/lib/kafka/data
    """
    import fletchlog as fl

    with fl.Broker(directory, take_over=True) as broker:
        names = broker.topics()
    done(f"{directory} can be written now; it has {counted(len(names), 'topic')}", as_json=as_json, topics=names)


def clean(
    directory: Place = DIR,
    name: str = TOPIC,
    force: bool = option("--force", "Every partition up to its end, also where it is not due.", False),
    as_json: bool = JSON,
) -> None:
    """Compact a topic now: of each key the newest record stays.

    fletchlog clean data/ accounts --force
    """
    with opened_directory(directory) as broker:
        policy = (topic(broker, name).config or {}).get("cleanup.policy", "")
        if "compact" not in policy:
            raise CommandError(f"{name} is not compacted; `fletchlog topics alter {directory} {name} -c cleanup.policy=compact` makes it so")
        rows = [partition._asdict() for partition in broker.clean_topic(name, force=force)]
    if as_json:
        show(rows, as_json=True, empty="")
        return
    counts = {"records before": "messages_read", "records after": "messages_written", "bytes before": "bytes_read", "bytes after": "bytes_written"}
    table = [
        {"partition": row["partition"], "cleaned": "yes" if row["rounds"] else "not due"}
        # what was not read is not counted
        | {column: row[field] if row["rounds"] else None for column, field in counts.items()}
        for row in rows
    ]
    show(table, as_json=False, empty=f"{name} has no log yet")
    if not_due := sum(not row["rounds"] for row in rows):
        what = counted(not_due, "partition is", "partitions are")
        note(f"{what} not due: the active segment is left out, and min.cleanable.dirty.ratio counts; --force compacts up to the end")


def retention(directory: Place = DIR, as_json: bool = JSON) -> None:
    """Delete now what retention.ms and retention.bytes of the topics do not keep.

    fletchlog retention data/
    """
    with opened_directory(directory) as broker:
        count = broker.run_retention()
    done(f"deleted {counted(count, 'segment')}", as_json=as_json, segments=count)
