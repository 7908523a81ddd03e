"""`fletchlog copy`: topics from and to directories and clusters."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from fletchlog._place import CLUSTER, refuse_within
from fletchlog.cli.arguments import ANYWHERE, argument, option
from fletchlog.cli.common import CommandError, configured, opened, topics_of
from fletchlog.cli.options import JSON, TOPICS
from fletchlog.cli.terminal import progress
from fletchlog.cli.text import counted, say

if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._place import Place


OF_A_SIDE = "A property of this side's clients, if it is a cluster; may be repeated."
OF_A_FILE = "A file of such properties, a line NAME=VALUE each."


def copy(
    source: Place = argument("FROM", "The broker's directory, kafka://HOST:PORT, or s3://BUCKET/PREFIX.", places=ANYWHERE),
    destination: Place = argument("TO", "A directory, which is made if it is missing, or kafka://HOST:PORT.", places=ANYWHERE),
    topics: str = TOPICS,
    source_config: list[str] | None = option("--source-config", OF_A_SIDE, metavar="NAME=VALUE"),
    destination_config: list[str] | None = option("--destination-config", OF_A_SIDE, metavar="NAME=VALUE"),
    source_command_config: Path | None = option("--source-command-config", OF_A_FILE, metavar="FILE"),
    destination_command_config: Path | None = option("--destination-command-config", OF_A_FILE, metavar="FILE"),
    append: bool = option("--append", "Copy from the beginning into topics that have records and no entry in the ledger.", False),
    start_offset: list[str] | None = option(
        "--start-offset", "For such a topic: continue at this offset of the source; once for each partition.", metavar="TOPIC:PARTITION=OFFSET"
    ),
    as_json: bool = JSON,
) -> None:
    """Copy topics up to their ends as of now; the same command again copies what is new.

    Keys, values, headers, timestamps, partitions and their order are kept; each record arrives exactly once, also if the copy is killed.
    How far a topic is copied is kept in topic __fletchlog_ledger of TO.

    fletchlog copy kafka://h1:9092 data/ --topics orders

    fletchlog copy data/ kafka://h1:9092
    """
    from fletchlog.transfer import copy as copy_topics

    starts = offsets_of(start_offset or [])
    if str(source) == str(destination):
        raise CommandError("source and destination are the same")
    refuse_within(destination, source, "copied")
    of_source = configured(source_command_config, source_config)
    names = topics_of(source, topics, of_source)
    with ExitStack() as stack:

        def at(place: Place, *, read_only: bool) -> Any:
            return place.name if place.kind == CLUSTER else stack.enter_context(opened(place, read_only=read_only, create=not read_only))

        bar = stack.enter_context(progress(unit="records"))
        task = bar.add_task("copying", total=None)
        copied = copy_topics(
            at(source, read_only=True),
            at(destination, read_only=False),
            names,
            source_config=of_source,
            destination_config=configured(destination_command_config, destination_config),
            append=append,
            start_offsets=starts,
            on_progress=lambda topic, records: bar.update(task, advance=records, description=topic),
        )
    if as_json:
        skipped = {topic.topic: [{"partition": p, "first": first, "end": end} for p, (first, end) in topic.skipped.items()] for topic in copied}
        print(json.dumps([{"topic": topic.topic, "records": topic.records, "skipped": skipped[topic.topic]} for topic in copied], indent=2))
        return
    for topic in copied:
        say(f"{topic.topic}: {counted(topic.records, 'record')} copied")


def offsets_of(texts: list[str]) -> dict[tuple[str, int], int]:
    """`TOPIC:PARTITION=OFFSET` texts as a mapping.

    Raises:
        CommandError: A text of another form.
    """
    found = {}
    for text in texts:
        match = re.fullmatch(r"([^:=]+):([0-9]{1,9})=([0-9]{1,18})", text.strip())
        if match is None:
            raise CommandError(f"--start-offset wants TOPIC:PARTITION=OFFSET, got {text}")
        found[match[1], int(match[2])] = int(match[3])
    return found
