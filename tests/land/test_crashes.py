"""Whatever is produced, landed and killed between any two steps, the table is the topic in the end, and never more than it before."""

import os
import random
import shutil
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

import fletchlog as fl
from fletchlog.landing import files
from tests.support.landed import FORMATS, Place, expected


class KilledError(BaseException):
    """Where the process ends."""


STEPS = ("write", "rename", "remove", "make", "settle")


@contextmanager
def killed_at_step(number):
    """The process ends at this step on files: before it, or, of a file that is written, when half of it is there. None: it does not."""
    steps = count()
    real = {name: getattr(files, name) for name in STEPS}

    def at(name):
        def step(*arguments):
            if next(steps) != number:
                return real[name](*arguments)
            if name == "write":
                real[name](*arguments)
                torn = arguments[0].read_bytes()
                arguments[0].write_bytes(torn[: len(torn) // 2])
            raise KilledError

        return step

    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(files, name, at(name))
        yield


@contextmanager
def killed_at_commit(table_format, number, *, after):
    """The process ends at this commit of Delta or Iceberg, when its files are there: before it is known, or after."""
    commits = count()
    module, name = (deltalake, "write_deltalake") if table_format == "delta" else (SqlCatalog, "commit_table")
    real = getattr(module, name)

    def commit(*arguments, **options):
        if next(commits) != number:
            return real(*arguments, **options)
        if after:
            real(*arguments, **options)
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, commit)
        yield


produce = st.tuples(st.just("produce"), st.integers(0, 1), st.integers(1, 5), st.sampled_from(["plain", "commit", "abort"]))
land = st.tuples(st.just("land"), st.one_of(st.none(), st.integers(0, 40)), st.booleans(), st.sampled_from([None, "day", "hour"]))
days = st.lists(st.integers(0, 3), min_size=8, max_size=8)


def run(table_format, steps, times, folder):
    """Plays the steps, and lands at the end. Returns how often it was killed."""
    place, at, committed, kills = Place(table_format, Path(folder)), 0, 0, 0
    with fl.Broker.in_memory() as broker, fl.Producer(broker, {"transactional.id": "x"}) as producer:
        broker.create_topic("t", partitions=2)
        producer.init_transactions()
        partition_by = next((step[3] for step in steps if step[0] == "land"), None)
        for step in [*steps, ("land", None, False, None)]:
            if step[0] == "produce":
                _, partition, number, kind = step
                producer.begin_transaction()
                for _ in range(number):
                    at += 1
                    time = (20_000 + times[at % len(times)]) * 86_400_000 + at
                    producer.send("t", value=b"%d" % at if at % 7 else None, key=b"k", partition=partition, timestamp_ms=time)
                producer.flush()
                producer.abort_transaction() if kind == "abort" else producer.commit_transaction()
                continue
            kill, flag = step[1:3]
            compact = flag and table_format != "iceberg"
            context = killed_at_step(kill) if table_format == "parquet" else killed_at_commit(table_format, kill and kill % 3, after=flag)
            try:
                with context:
                    place.land(broker, partition_by=partition_by, compact=compact, batch_bytes=1)
            except KilledError:
                kills += 1
            all_rows, rows = expected(broker), place.rows()
            assert len(set(rows)) == len(rows)
            assert set(rows) <= set(all_rows)
            if table_format != "parquet":
                # each commit is seen as a whole
                assert len(rows) >= committed
                committed = len(rows)
        assert place.rows() == expected(broker)
        assert place.land(broker).rows == 0
    return kills


@settings(max_examples=20, deadline=None)
@given(steps=st.lists(st.one_of(produce, land), max_size=8), times=days)
def test_a_directory_of_parquet_is_the_topic_in_the_end(steps, times):
    with TemporaryDirectory() as folder:
        run("parquet", steps, times, folder)


@pytest.mark.parametrize("table_format", FORMATS[1:])
@settings(max_examples=8, deadline=None)
@given(steps=st.lists(st.one_of(produce, land), max_size=6), times=days)
def test_a_table_of_delta_or_iceberg_is_the_topic_in_the_end(table_format, steps, times):
    with TemporaryDirectory() as folder:
        run(table_format, steps, times, folder)


@pytest.mark.slow
def test_every_step_of_a_landing_into_a_directory_can_be_the_last():
    """One commit of three days, one that compacts them with those of another; killed at each step in turn."""
    steps = [("produce", 0, 4, "commit"), ("land", None, False, "day"), ("produce", 1, 5, "commit")]
    for number in count():
        with TemporaryDirectory() as folder:
            if not run("parquet", [*steps, ("land", number, True, None)], [0, 1, 2], folder):
                break
    assert number > 20


class Disk:
    """What a disk has after a power loss: the calls of `files` on it, and the names that may be lost.

    A name (of a file or folder that was made, renamed or removed) is safe once its folder was synced after it, the bytes of a file once it was synced.
    """

    def __init__(self, root):
        self.root, self.calls, self._syncs = root, [], 0
        self._real = {name: getattr(files, name) for name in STEPS}

    @contextmanager
    def recorded(self):
        fsync = os.fsync

        def counted(descriptor):
            self._syncs += 1
            fsync(descriptor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", counted)
            for name in STEPS:
                patch.setattr(files, name, getattr(self, name))
            yield

    def write(self, path, fill):
        before = self._syncs
        size = self._real["write"](path, fill)
        content = path.read_bytes()
        self.calls.append(("name", path.parent, {path: content if self._syncs > before else content[: len(content) // 2]}))
        return size

    def rename(self, path, name):
        content = path.read_bytes()
        self._real["rename"](path, name)
        self.calls.append(("name", name.parent, {path: None, name: content}))

    def remove(self, path):
        self._real["remove"](path)
        self.calls.append(("name", path.parent, {path: None}))

    def make(self, folder):
        if not folder.is_dir():
            self.calls.append(("name", folder.parent, {folder: ""}))
        self._real["make"](folder)

    def settle(self, folder):
        before = self._syncs
        self._real["settle"](folder)
        if self._syncs > before:
            self.calls.append(("synced", folder, {}))

    def lost(self, number, is_kept):
        """Makes the root what it is if the power is lost after so many calls."""
        shutil.rmtree(self.root, ignore_errors=True)
        names = {}
        for at, (kind, folder, changes) in enumerate(self.calls[:number]):
            if kind == "name" and (("synced", folder, {}) in self.calls[at:number] or is_kept()):
                names |= changes
        for path, content in sorted(names.items()):
            if content == "" and path.parent.exists():
                path.mkdir()
            elif content and path.parent.exists():
                path.write_bytes(content)


def test_a_commit_that_was_reported_survives_a_power_loss_at_every_call(tmp_path):
    """Commits of two days, the last one with a compaction; the power is lost after each call, with every name that was not synced lost, or either."""
    chosen, place = random.Random(41), Place("parquet", tmp_path / "lake")
    disk, reported = Disk(tmp_path / "lake"), [(0, {})]
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        with disk.recorded():
            for compact in (False, True):
                with fl.Producer(broker) as producer:
                    for n in range(4):
                        producer.send("t", value=b"v%d" % n, partition=n % 2, timestamp_ms=(20_000 + n % 2) * 86_400_000)
                landed = place.land(broker, partition_by="day", compact=compact)
                reported.append((len(disk.calls), dict(landed.offsets)))
        assert landed.compacted > 0
        for number in range(len(disk.calls) + 1):
            for is_kept in (lambda: False, lambda: chosen.random() < 0.5):
                disk.lost(number, is_kept)
                promised = next(offsets for at, offsets in reversed(reported) if at <= number)
                if promised:
                    found = place.offsets()
                    assert all(found[tp] >= offset for tp, offset in promised.items()), number
                place.land(broker, partition_by="day")
                assert place.rows() == expected(broker), number
