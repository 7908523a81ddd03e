"""`fletchlog export`: a directory as a copy that readers can open, on an object store or on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fletchlog._place import STORE
from fletchlog.cli.arguments import ANYWHERE, argument
from fletchlog.cli.common import names_in, storage_options
from fletchlog.cli.options import JSON, TOPICS
from fletchlog.cli.terminal import progress
from fletchlog.cli.text import counted, note, say

if TYPE_CHECKING:
    from fletchlog._place import Place


def export(
    directory: Place = argument("DIR", "The broker's directory, fletchlog's or Kafka's."),
    destination: Place = argument("TO", "s3://BUCKET/PREFIX, gs://, .., or a directory; empty or missing.", places=ANYWHERE),
    topics: str = TOPICS,
    as_json: bool = JSON,
) -> None:
    """Copy a directory to an object store, or to another directory, as it is at one moment.

    Works beside a writer. The copy can be opened when the command has ended, and not before: Broker(TO, read_only=True), Spark, and the commands that
    read. The same command again continues after it was stopped. Credentials and endpoint come from where the SDK of the store looks, e.g.
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL, or from the file of properties that FLETCHLOG_STORAGE_CONFIG names.

      fletchlog export data/ s3://bucket/logs

      fletchlog export data/ /mnt/backup/logs --topics orders,payments --json
    """
    from fletchlog.transfer import export as export_directory

    with progress(unit="bytes") as bar:
        task = bar.add_task("exporting", total=None)
        made = export_directory(
            directory,
            destination,
            names_in(topics),
            storage_options=storage_options() if destination.kind == STORE else None,
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        partitions = [{"topic": tp.topic, "partition": tp.partition, "start": start, "end": end} for tp, (start, end) in made.partitions.items()]
        print(
            json.dumps({"destination": made.destination, "files": made.files, "bytes": made.bytes, "reused": made.reused, "partitions": partitions}, indent=2)
        )
        return
    if made.reused:
        note(f"{counted(made.reused, 'byte')} had been copied before")
    offsets = sum(end - start for start, end in made.partitions.values())
    what = f"{counted(len(made.partitions), 'partition')} with {counted(offsets, 'offset')}, {counted(made.bytes, 'byte')} in {counted(made.files, 'file')}"
    say(f"{made.destination}: {what}")
