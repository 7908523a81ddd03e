"""Kills landers, and compares the tables they leave with the topic, as readers of another make see them.

A directory has a topic of three partitions, to which records are written all the time, in transactions of which some are aborted. A lander, a process of its
own, brings them into a table and commits as often as it can; at a random moment it is killed. In some rounds there are two. After each kill:

- no row is there twice, and none that is not a committed record of the topic,
- of Delta and Iceberg: the rows are exactly the committed records before the offsets that the table has (each commit is seen as a whole),
- of Parquet (in a directory, and on a server that speaks S3): none is beyond those offsets, and each file that the manifest names is there, or is staged.

The last lander of a table is not killed; then the table is the topic, column by column. Parquet is read by DuckDB, Delta and Iceberg by polars.

`python -m judges.kills.land` prints a line for each violation, then `land-kills: N, V violations (..)`. LAND_KILLS (of each format, default 200), FORMATS (default
all, with commas; `parquet-s3` is a Parquet table on a server of S3), TIME_LIMIT (seconds, of each format) and SEED are taken from the environment; PLANTED=yes lets landers commit offsets behind their rows, as sinks do
that repeat rows.
"""

# ruff: noqa: T201

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from settings import count, seconds

import fletchlog as fl
from tests.support import s3_server
from tests.support.landed import FORMATS, Place, expected

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

NAME = "land-kills"
PARTITIONS = 3
# Kills of one table.
OF_A_TABLE = 25
# A lander has so long at most: the first commit of Iceberg comes late.
SPAN = {"parquet": 0.8, "parquet-s3": 2.0, "delta": 0.8, "iceberg": 3.0}
# A Parquet table on an object store is a format of this judge.
ON_STORE = "parquet-s3"
# A request of a lander that was killed may still be carried out by the store.
IN_FLIGHT_S = 0.3
# Nothing here takes nearly as long, on a busy machine either.
HANG_SECONDS = 120
# What landers import, once, in the process that they are forked from; nothing of it is used there.
PRELOAD = [
    "pyarrow.parquet",
    "pyarrow.compute",
    "deltalake",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "fletchlog.landing.landing",
    "tests.support.landed",
]


def place_of(table_format: str, folder: Path, server: tuple[str, dict[str, str]] | None) -> Place:
    """The table of a folder; on a store it has the same name in the bucket."""
    if server is None:
        return Place(table_format, folder)
    return Place("parquet", folder, store=(f"{server[0]}/{folder.name}", server[1]))


def lander(source: str, table_format: str, folder: str, options: dict[str, Any], planted: bool, server: tuple[str, dict[str, str]] | None) -> None:
    """A process that lands until it is killed; or, unless it follows, until all is there."""
    if planted:
        _plant()
    sys.stderr = Path(folder, "stderr").open("a")  # noqa: SIM115
    place_of(table_format, Path(folder), server).land(source, **options)


def _plant() -> None:
    """Rows in one commit, offsets in the next."""
    from fletchlog.landing import tables

    real = tables.table_at

    def table_at(*arguments: Any) -> Any:
        table = real(*arguments)
        append, opened = table.append, table.open
        known: dict[str, Any] = {}

        def remembered(wanted: Any) -> Any:
            known["offsets"] = opened(wanted)
            return opened(wanted)

        def apart(rows: Any, schema: Any, partition_by: Any, positions: Any) -> int:
            before = {topic: type(one)(one.topic_id, known["offsets"][topic].offsets if topic in known["offsets"] else {}) for topic, one in positions.items()}
            made = append(rows, schema, partition_by, before)
            append(rows.slice(0, 0), schema, partition_by, positions)
            known["offsets"] = positions
            return int(made)

        table.append, table.open = apart, remembered
        return table

    fl.landing.table_at = table_at


class Writer(threading.Thread):
    """Writes transactions into the topic until it is stopped."""

    def __init__(self, broker: fl.Broker, seed: int) -> None:
        super().__init__(daemon=True)
        self.broker, self.rng, self.stopped, self.paused = broker, random.Random(seed), threading.Event(), threading.Event()
        self.idle = threading.Event()

    def run(self) -> None:
        number = 0
        with fl.Producer(self.broker, {"transactional.id": "writer"}) as producer:
            producer.init_transactions()
            while not self.stopped.is_set():
                if self.paused.is_set():
                    self.idle.set()
                    time.sleep(0.01)
                    continue
                self.idle.clear()
                producer.begin_transaction()
                for _ in range(self.rng.randint(1, 20)):
                    number += 1
                    day = 20_000 + number % 3
                    value = None if number % 11 == 0 else b"%d" % number * self.rng.choice([1, 1, 50])
                    headers = [("n", b"%d" % number)]
                    producer.send(
                        "t", value=value, key=b"k%d" % (number % 7), partition=number % PARTITIONS, timestamp_ms=day * 86_400_000 + number, headers=headers
                    )
                producer.flush()
                if self.rng.random() < 0.2:
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                time.sleep(self.rng.random() * 0.03)

    def pause(self) -> None:
        """Returns when nothing is being written."""
        self.idle.clear()
        self.paused.set()
        self.idle.wait(HANG_SECONDS)


class Campaign:
    """Kills of one format, a table after the other."""

    def __init__(
        self, table_format: str, wanted: int, deadline: float, seed: int, scratch: Path, *, planted: bool, server: tuple[str, dict[str, str]] | None = None
    ) -> None:
        self.server = server
        self.format, self.wanted, self.deadline, self.scratch, self.planted = table_format, wanted, deadline, scratch, planted
        self.rng, self.seed = random.Random(f"{seed} {table_format}"), seed
        self.kills = self.rows = self.tables = self.with_commit = self.pairs = 0
        self.violations: list[str] = []
        self.context = multiprocessing.get_context("forkserver")

    def run(self) -> None:
        """As many kills as are wanted, or until the time is over."""
        while self.kills < self.wanted and time.monotonic() < self.deadline and not self.found():
            self.tables += 1
            folder = self.scratch / f"{self.format}-{self.tables}"
            folder.mkdir()
            with fl.Broker(folder / "data", create=True) as broker:
                broker.create_topic("t", partitions=PARTITIONS)
                writer = Writer(broker, self.rng.randrange(1 << 30))
                writer.start()
                try:
                    self.of_a_table(folder, broker, writer)
                finally:
                    writer.stopped.set()
                    writer.join(HANG_SECONDS)

    def found(self) -> bool:
        """Whether what was planted is found."""
        return self.planted and bool(self.violations)

    def of_a_table(self, folder: Path, broker: fl.Broker, writer: Writer) -> None:
        """Kills of the landers of one table, then one that is not killed."""
        place = place_of(self.format, folder, self.server)
        partition_by = self.rng.choice([None, None, "day", "hour"])
        for _ in range(min(OF_A_TABLE, self.wanted - self.kills)):
            if time.monotonic() > self.deadline or self.found():
                break
            writer.paused.clear()
            before = self.version(place)
            options = {"partition_by": partition_by, "interval": 0.001, "follow": True, "compact": self.format != "iceberg" and self.rng.random() < 0.3}
            # one that does not follow compacts more often
            options["follow"] = not options["compact"] or self.rng.random() < 0.5
            several = 2 if self.rng.random() < 0.2 else 1
            landers = [self.start(place, folder, options) for _ in range(several)]
            time.sleep(self.rng.random() * SPAN[self.format])
            killed = sum(self.kill(one) for one in landers)
            time.sleep(IN_FLIGHT_S if self.server else 0)
            self.kills += bool(killed)
            self.pairs += several == 2 and bool(killed)
            self.with_commit += self.version(place) != before
            self.judge(place, broker, last=False)
        writer.pause()
        last = self.start(place, folder, {})
        last.join(HANG_SECONDS)
        if last.exitcode != 0:
            last.kill()
            self.wrong(f"the last lander ended with {last.exitcode}: {(folder / 'stderr').read_text()[-1500:] if (folder / 'stderr').exists() else ''}")
        self.judge(place, broker, last=True)

    def start(self, place: Place, folder: Path, options: dict[str, Any]) -> ForkServerProcess:
        process = self.context.Process(target=lander, args=(str(folder / "data"), place.format, str(folder), options, self.planted, self.server))
        process.start()
        return process

    def kill(self, process: ForkServerProcess) -> bool:
        """Whether it was killed, and had not ended before."""
        process.kill()
        process.join(HANG_SECONDS)
        return process.exitcode == -9

    def version(self, place: Place) -> object:
        """Something that another commit changes."""
        with contextlib.suppress(fl.KafkaError):
            return place.offsets()
        return None

    def judge(self, place: Place, broker: fl.Broker, *, last: bool) -> None:
        """What a kill has left. The offsets are read first and last: a second lander may still have been at work."""
        rows, offsets = place.rows(), self.version(place) or {}
        records = expected(broker)
        known = {row[:3]: row for row in records}
        found = Counter(row[:3] for row in rows)
        where = f"{self.format}, table {self.tables}, kill {self.kills}"
        repeated = [at for at, times in found.items() if times > 1]
        strange = [row for row in rows if known.get(row[:3]) != row]
        if repeated:
            self.wrong(f"{where}: {len(repeated)} repeated, the first at {repeated[0]}")
        if strange:
            self.wrong(f"{where}: {len(strange)} are no records of the topic, the first is {strange[0]}")
        committed = [row[:3] for row in records if row[2] < offsets.get(row[:2], 0)]
        lost = [at for at in committed if at not in found]
        ahead = [at for at in found if at[2] >= offsets.get(at[:2], 0)]
        if place.format == "parquet" and not last:
            lost = self.missing_files(place)
        if lost:
            self.wrong(f"{where}: {len(lost)} lost, the first at {lost[0]}")
        if ahead:
            self.wrong(f"{where}: {len(ahead)} beyond the offsets of the table, the first at {ahead[0]}")
        if last:
            self.rows += len(rows)
            if rows != records:
                self.wrong(f"{where}: the table is not the topic at the end: {len(rows)} rows, {len(records)} records")

    def missing_files(self, place: Place) -> list[Any]:
        """Files that the manifest names and that are neither there nor staged."""
        import json

        with contextlib.suppress(FileNotFoundError, KeyError):
            files = place.files()
            manifest = json.loads(files["_fletchlog/manifest.json"])
            staged = {path: name for name, path in manifest["publish"].items()}
            names = [one["path"] for one in manifest["files"]]
            return [name for name in names if name not in files and f"_fletchlog/staged/{staged.get(name, '-')}" not in files]
        return []

    def wrong(self, text: str) -> None:
        self.violations.append(text)
        print(text, flush=True)


def main() -> int:
    """Kills so often, or for so long, of each format."""
    wanted, limit, seed = count(NAME, "LAND_KILLS", 200), seconds(NAME, 3600), count(NAME, "SEED", 0)
    formats = [name for name in os.environ.get("FORMATS", "").split(",") if name] or [*FORMATS, ON_STORE]
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOAD)
    campaigns = []
    for table_format in formats:
        if any(one.found() for one in campaigns):
            break
        with tempfile.TemporaryDirectory(prefix="fletchlog-", ignore_cleanup_errors=True) as scratch:
            planted = os.environ.get("PLANTED") == "yes"
            with contextlib.ExitStack() as stack:
                server = None
                if table_format == ON_STORE:
                    s3 = stack.enter_context(s3_server.running(Path(scratch)))
                    server = (f"s3://{s3.new_bucket()}", {**s3.environment, "AWS_ALLOW_HTTP": "true"})
                campaign = Campaign(table_format, wanted, time.monotonic() + limit, seed, Path(scratch), planted=planted, server=server)
                campaign.run()
            campaigns.append(campaign)
            print(
                f"{table_format}: {campaign.kills} kills, {campaign.with_commit} with a commit, {campaign.pairs} of two, {campaign.tables} tables", flush=True
            )
    kills, violations = sum(one.kills for one in campaigns), sum(len(one.violations) for one in campaigns)
    each = ", ".join(f"{one.kills} of {one.format}" for one in campaigns)
    print(
        f"{NAME}: {kills}, {violations} violations ({each}; {sum(one.tables for one in campaigns)} tables, {sum(one.rows for one in campaigns)} rows, seed {seed})"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
