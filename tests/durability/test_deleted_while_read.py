"""Records that are deleted while they are read: every reader raises, or reports what it left out; none ends as if it had read all."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
import fletchlog.audit.partition
from fletchlog import _copying as copying
from fletchlog.audit import run as audit
from fletchlog.cli import places
from fletchlog.errors import IllegalStateError, KafkaTimeoutError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fletchlog.explain import polls as explain
from fletchlog.explain import replay
from fletchlog.transfer import export
from tests.support.command_line import invoke

COUNT, LEFT_OUT = 40_000, 20_000
# Parts of a threaded scan have 4 MiB.
VALUE = b"x" * 200


class Log:
    """A topic of two partitions, and what takes its older half away."""

    def __init__(self, path: Path) -> None:
        self.broker = fl.Broker(path)
        self.broker.create_topic("t", partitions=2, config={"segment.bytes": str(1 << 20)})
        with fl.Producer(self.broker) as producer:
            for partition in (0, 1):
                columns = {"value": [VALUE] * COUNT, "partition": [partition] * COUNT, "timestamp": range(1, COUNT + 1)}
                producer.send_arrow("t", pa.table({name: pa.array(cells) for name, cells in columns.items()}))

    def delete_records(self) -> None:
        for partition in (0, 1):
            self.broker.delete_records("t", partition, LEFT_OUT)

    def run_retention(self) -> None:
        for partition in (0, 1):
            self.broker.delete_records("t", partition, LEFT_OUT)
        assert self.broker.run_retention() > 2

    def delete_everything(self) -> None:
        for partition in (0, 1):
            self.broker.delete_records("t", partition, -1)
        self.broker.run_retention()

    def delete_topic(self) -> None:
        self.broker.delete_topic("t")

    def make_it_anew(self, count: int = 9) -> None:
        self.broker.delete_topic("t")
        self.broker.create_topic("t", partitions=2)
        with fl.Producer(self.broker) as producer:
            for partition in (0, 1):
                producer.send_arrow("t", pa.table({"value": [b"other"] * count, "partition": [partition] * count}))

    def make_it_as_long(self) -> None:
        self.make_it_anew(COUNT)


LOSSES: list[Callable[[Log], None]] = [Log.delete_records, Log.run_retention, Log.delete_everything, Log.delete_topic, Log.make_it_anew]
ALL_LOSSES = [*LOSSES, Log.make_it_as_long]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.broker.close()


def rows_or_error(batches: Iterator[pa.RecordBatch]) -> int | Exception:
    rows = 0
    try:
        for batch in batches:
            values = set(batch["value"].to_pylist())
            assert values == {VALUE}, values
            rows += batch.num_rows
    except fl.KafkaError as error:
        return error
    return rows


@pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"threads": 3, "partition": 1}, {"order": "timestamp"}], ids=str)
@pytest.mark.parametrize("read_before", [0, 1])
def test_a_scan_has_all_rows_or_an_error(log: Log, lose: Callable[[Log], None], options: dict[str, object], read_before: int) -> None:
    batches = iter(log.broker.scan("t", batch_rows=10_000, **options))
    first = [next(batches).num_rows for _ in range(read_before)]
    lose(log)
    found = rows_or_error(batches)
    whole = COUNT if "partition" in options else 2 * COUNT
    assert isinstance(found, fl.KafkaError) or found + sum(first) == whole
    if lose in (Log.delete_records, Log.run_retention, Log.delete_everything) and not read_before:
        assert isinstance(found, OffsetOutOfRangeError), found


@pytest.mark.parametrize("lose", LOSSES[:3], ids=lambda loss: loss.__name__)
def test_all_numbers_of_threads_have_the_same_error(log: Log, lose: Callable[[Log], None]) -> None:
    scans = [log.broker.scan("t", threads=threads) for threads in (1, 2, 4)]
    lose(log)
    errors = [rows_or_error(iter(scan)) for scan in scans]
    assert len({(type(error), str(error)) for error in errors}) == 1, errors
    assert "t-0 at offset 0: offset 0 is outside" in str(errors[0])


@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("order", ["offset", "timestamp"])
@pytest.mark.parametrize("read_before", [0, 1])
def test_a_scan_of_a_cluster_has_all_rows_or_an_error(log: Log, lose: Callable[[Log], None], order: str, read_before: int) -> None:
    config = {"default.api.timeout.ms": 2000, "max.partition.fetch.bytes": 100_000}
    with log.broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}", config) as cluster:
        batches = iter(cluster.scan("t", batch_rows=1000, order=order))
        first = sum(next(batches).num_rows for _ in range(read_before))
        lose(log)
        found = rows_or_error(batches)
    if lose in (Log.make_it_anew, Log.make_it_as_long):
        assert isinstance(found, UnknownTopicOrPartitionError), found
        assert "topic t was deleted and made again while it was read" in str(found)
    if lose is Log.delete_topic:
        assert isinstance(found, KafkaTimeoutError), found
        assert "this broker does not hold that topic-partition" in str(found)
    assert isinstance(found, fl.KafkaError) or found + first == 2 * COUNT


@pytest.mark.parametrize("place", ["embedded", "remote"])
@pytest.mark.parametrize("lose", LOSSES[:3], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("reset", ["none", "earliest"])
def test_a_poll_raises_without_a_reset_and_goes_on_by_kafkas_rule_with_one(log: Log, reset: str, lose: Callable[[Log], None], place: str) -> None:
    with log.broker.listen() as listener:
        where = log.broker if place == "embedded" else f"kafka://{listener.bootstrap}"
        with fl.Consumer(where, {"auto.offset.reset": reset, "max.partition.fetch.bytes": 20_000}) as consumer:
            consumer.assign([("t", 0)])
            consumer.seek(("t", 0), 0)
            assert len(consumer.poll(timeout_ms=10_000)) > 0
            lose(log)
            start = consumer.beginning_offsets([("t", 0)])["t", 0]
            seen: list[int] = []

            def read_on() -> None:
                while consumer.position(("t", 0)) < COUNT:
                    seen.extend(record.offset for record in consumer.poll(timeout_ms=200))

            if reset == "none":
                with pytest.raises(OffsetOutOfRangeError):
                    read_on()
            else:
                read_on()
                assert [offset for offset in seen if offset >= start] == list(range(start, COUNT))


class Once:
    """Loses records at its first call."""

    def __init__(self, log: Log, lose: Callable[[Log], None]) -> None:
        self._log, self._lose = log, lose
        self.done = False

    def __call__(self, *_: object) -> None:
        if not self.done:
            self.done = True
            self._lose(self._log)


def offsets_of(broker: fl.Broker) -> dict[int, list[int]]:
    """The offsets that copied records had: a timestamp is one more. No record is of another topic."""
    found: dict[int, list[int]] = {0: [], 1: []}
    for batch in broker.scan("t", timestamp_unit="ms"):
        assert set(batch["value"].to_pylist()) == {VALUE}
        for partition, milliseconds in zip(batch["partition"].to_pylist(), pa.array(batch["timestamp"]).cast(pa.int64()).to_pylist(), strict=True):
            found[partition].append(milliseconds - 1)
    return found


@pytest.mark.parametrize("place", ["directory", "embedded", "remote"])
@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
def test_a_copy_reports_what_it_leaves_out_or_has_an_error(
    log: Log, lose: Callable[[Log], None], place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    once = Once(log, lose)
    with log.broker.listen() as listener, fl.Broker(tmp_path / "copied", create=True) as into:
        source = {"directory": tmp_path, "embedded": log.broker, "remote": f"kafka://{listener.bootstrap}"}[place]
        config = {"default.api.timeout.ms": 2000} if place == "remote" else {}
        try:
            (copied,) = copying.copy(source, into, ["t"], source_config=config, on_progress=once)
        except fl.KafkaError:
            assert lose not in ALL_LOSSES[:3]
            assert all(offsets == list(range(len(offsets))) for offsets in offsets_of(into).values())
            return
        assert once.done
        for partition, offsets in offsets_of(into).items():
            first, end = copied.skipped.get(partition, (COUNT, COUNT))
            assert offsets == [*range(first), *range(end, COUNT)]
            if first < end:
                assert f"t-{partition}: the source no longer has offsets {first} to {end - 1}" in caplog.text
        assert lose not in ALL_LOSSES[3:]
        assert set(copied.skipped) >= {1}
        (again,) = copying.copy(source, into, ["t"], source_config=config)
        assert (again.records, again.skipped) == (0, {})


def test_a_copy_that_loses_a_partition_twice_ends_and_the_next_one_continues(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BATCH_ROWS", 1000)

    def lose(*_: object) -> None:
        log.broker.delete_records("t", 0, 35_000 if "to 19999" in caplog.text else 20_000)

    with fl.Broker(tmp_path / "copied", create=True) as into:
        with pytest.raises(OffsetOutOfRangeError, match=r"t-0: the source no longer has offsets \d+ to 34999, and \d+ to 19999 were skipped before"):
            copying.copy(log.broker, into, ["t"], on_progress=lose)
        before = offsets_of(into)[0]
        (copied,) = copying.copy(log.broker, into, ["t"])
        assert copied.skipped == {0: (before[-1] + 1, 35_000)}
        assert offsets_of(into) == {0: [*before, *range(35_000, COUNT)], 1: list(range(COUNT))}


def test_a_copy_that_ended_early_knows_what_the_next_one_does_not_find(log: Log, tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with fl.Broker(tmp_path / "copied", create=True) as into:
        with pytest.raises(KeyboardInterrupt):
            copying.copy(log.broker, into, ["t"], on_progress=stop)
        log.broker.delete_records("t", 1, 100)
        (copied,) = copying.copy(log.broker, into, ["t"])
        assert copied.skipped == {1: (0, 100)}


@pytest.mark.parametrize("place", ["directory", "embedded", "remote"])
@pytest.mark.parametrize("lose", [Log.make_it_anew, Log.make_it_as_long], ids=lambda loss: loss.__name__)
def test_a_topic_made_anew_is_not_copied_as_the_one_before(
    log: Log, lose: Callable[[Log], None], place: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with log.broker.listen() as listener, fl.Broker(tmp_path_factory.mktemp("copy") / "copied", create=True) as into:
        source: Any = {"directory": tmp_path, "embedded": log.broker, "remote": f"kafka://{listener.bootstrap}"}[place]
        with pytest.raises(IllegalStateError, match="topic t of the source was deleted and made again while it was copied"):
            copying.copy(source, into, ["t"], on_progress=Once(log, lose))
        assert 0 < len(offsets_of(into)[0]) < COUNT


@pytest.fixture
def in_the_audit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done when the first batch of an audit was read."""

    def hook(do: Callable[[], object]) -> None:
        look = fletchlog.audit.partition.look

        def hooked(batches: Iterable[Any], *more: Any) -> Any:
            def read() -> Iterator[Any]:
                for batch in batches:
                    do()
                    yield batch

            return look(read(), *more)

        monkeypatch.setattr(fletchlog.audit.partition, "look", hooked)

    return hook


@pytest.mark.parametrize("place", ["directory", "embedded", "remote"])
@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
def test_an_audit_has_an_error_when_records_go(
    log: Log, lose: Callable[[Log], None], place: str, tmp_path: Path, in_the_audit: Callable[[Callable[[], object]], None]
) -> None:
    in_the_audit(Once(log, lose))
    with log.broker.listen() as listener:
        source: Any = {"directory": tmp_path, "embedded": log.broker, "remote": f"kafka://{listener.bootstrap}"}[place]
        with pytest.raises(fl.KafkaError, match=r"\bt(-[01])?\b") as caught:
            audit(source, ["t"], config={"default.api.timeout.ms": 2000} if place == "remote" else None)
    if lose in ALL_LOSSES[:3]:
        assert isinstance(caught.value, OffsetOutOfRangeError)


@pytest.mark.parametrize("place", ["directory", "embedded", "remote"])
def test_an_audit_has_an_error_when_a_later_topic_loses_records(
    log: Log, place: str, tmp_path: Path, in_the_audit: Callable[[Callable[[], object]], None]
) -> None:
    log.broker.create_topic("z")
    with fl.Producer(log.broker) as producer:
        producer.send_arrow("z", pa.table({"value": [b"z"] * 10}))
    in_the_audit(lambda: log.broker.delete_records("z", 0, 5))
    with log.broker.listen() as listener:
        source: Any = {"directory": tmp_path, "embedded": log.broker, "remote": f"kafka://{listener.bootstrap}"}[place]
        with pytest.raises(OffsetOutOfRangeError, match="z-0"):
            audit(source)


@pytest.mark.parametrize("place", ["directory", "remote"])
@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
def test_consume_names_the_offsets_that_it_leaves_out_or_has_an_error(log: Log, lose: Callable[[Log], None], place: str, tmp_path: Path) -> None:
    once = Once(log, lose)
    with log.broker.listen() as listener:
        where = str(tmp_path) if place == "directory" else f"kafka://{listener.bootstrap}"
        words = ["consume", where, "t", "-f", "%p %o %s\n", "-c", "max.partition.fetch.bytes=100000"]
        with subprocess.Popen([sys.executable, "-m", "fletchlog", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
            assert command.stdout is not None
            assert command.stderr is not None
            lines = [next(command.stdout)]
            once()  # a pipe holds 64 KiB
            lines += command.stdout
            said = command.stderr.read()
    if lose in ALL_LOSSES[3:]:
        assert (command.returncode, "topic t was deleted while it was read" in said) == (1, True), said
        return
    assert command.returncode == 0, said
    read: dict[int, set[int]] = {0: set(), 1: set()}
    for partition, offset, value in map(str.split, lines):
        assert value == VALUE.decode()
        read[int(partition)].add(int(offset))
    assert said.count("were deleted before they were read") == 2
    for partition, first, end in re.findall(r"t-(\d): offsets (\d+) to (\d+) were deleted before they were read", said):
        assert read[int(partition)] == {*range(int(first)), *range(int(end) + 1, COUNT)}


@pytest.fixture
def in_consume(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Has something done when `fletchlog consume` has polled the first records."""

    def hook(do: Callable[[], object]) -> None:
        polls = places.poll

        def poll(*given: Any, **more: Any) -> Any:
            found = polls(*given, **more)
            if len(found):
                do()
            return found

        monkeypatch.setattr(places, "poll", poll)

    return hook


@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
def test_a_parquet_file_has_all_but_what_is_named_or_there_is_an_error(
    log: Log, lose: Callable[[Log], None], tmp_path: Path, in_consume: Callable[[Callable[[], object]], None]
) -> None:
    in_consume(Once(log, lose))
    written = tmp_path.with_suffix(".parquet")
    words = ["consume", str(tmp_path), "t", "-f", "parquet", "-o", str(written), "-c", "max.partition.fetch.bytes=100000"]
    result = invoke(words)
    if lose in ALL_LOSSES[3:]:
        assert (result.exit_code, "topic t was deleted while it was read" in result.stderr) == (1, True), result.stderr
        return
    assert result.exit_code == 0, result.stderr
    left_out = sum(int(end) + 1 - int(first) for first, end in re.findall(r"offsets (\d+) to (\d+) were deleted before", result.stderr))
    assert left_out > 0
    assert pq.read_table(written).num_rows + left_out == 2 * COUNT


@pytest.mark.parametrize("lose", ALL_LOSSES[:3], ids=lambda loss: loss.__name__)
def test_the_last_records_are_those_that_are_left(
    log: Log, lose: Callable[[Log], None], tmp_path: Path, in_consume: Callable[[Callable[[], object]], None]
) -> None:
    in_consume(Once(log, lose))
    words = ["consume", str(tmp_path), "t", "-p", "0", "--tail", "30000", "-f", "%o\\n", "-c", "max.partition.fetch.bytes=100000"]
    result = invoke(words)
    assert result.exit_code == 0, result.stderr
    assert [int(line) for line in result.stdout.split()] == (list(range(LEFT_OUT, COUNT)) if lose is Log.delete_records else [])


@pytest.mark.parametrize("lose", [Log.delete_records, Log.delete_everything, Log.make_it_as_long], ids=lambda loss: loss.__name__)
def test_a_group_is_reset_by_kafkas_rule_and_commits_nothing_for_another_topic(
    log: Log, lose: Callable[[Log], None], in_consume: Callable[[Callable[[], object]], None]
) -> None:
    in_consume(Once(log, lose))
    with log.broker.listen() as listener:
        words = ["consume", f"kafka://{listener.bootstrap}", "t", "--group", "g", "-f", "%p %o\\n", "-c", "max.partition.fetch.bytes=100000"]
        result = invoke(words)
    committed = {tp.partition: at.offset for tp, at in log.broker.group_offsets("g").items()}
    if lose is Log.make_it_as_long:
        assert (result.exit_code, committed) == (1, {})
        return
    assert (result.exit_code, committed) == (0, {0: COUNT, 1: COUNT})
    read: dict[int, list[int]] = {0: [], 1: []}
    for partition, offset in map(str.split, result.stdout.splitlines()):
        read[int(partition)].append(int(offset))
    for offsets in read.values():
        left = [offset for offset in offsets if offset >= LEFT_OUT]
        assert left == (list(range(LEFT_OUT, COUNT)) if lose is Log.delete_records else [])


@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("calls_before", [0, 3])
def test_an_export_is_of_one_moment_before_or_behind_a_loss(log: Log, lose: Callable[[Log], None], calls_before: int, tmp_path: Path) -> None:
    calls = 0

    def progress(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == calls_before + 1:
            lose(log)

    log_of = log.broker.describe_topic("t")
    try:
        made = export(tmp_path, tmp_path.with_name(tmp_path.name + "-exported"), ["t"], on_progress=progress)
    except UnknownTopicOrPartitionError:
        assert lose is Log.delete_topic
        return
    with fl.Broker(made.destination, read_only=True) as exported:
        is_old = exported.describe_topic("t").topic_id == log_of.topic_id
        for partition in (0, 1):
            first, end = made.partitions[fl.TopicPartition("t", partition)]
            offsets: list[int] = []
            for batch in exported.scan("t", partition):
                assert set(batch["value"].to_pylist()) == {VALUE if is_old else b"other"}
                offsets += batch["offset"].to_pylist()
            assert offsets == list(range(first, end))
            assert end == (9 if lose is Log.make_it_anew and not is_old else COUNT)


def test_an_export_is_not_mistaken_when_files_of_a_topic_made_again_have_the_inodes_of_those_before(tmp_path: Path) -> None:
    home, kept = tmp_path / "log" / "t-0", tmp_path / "kept"
    kept.mkdir()
    with fl.Broker(tmp_path / "log", create=True) as broker:

        def make(value: bytes) -> None:
            broker.create_topic("t")
            with fl.Producer(broker) as producer:
                producer.send_arrow("t", pa.table({"value": [value] * 100}))

        def make_again(*_: object) -> None:
            if any(kept.iterdir()):
                return
            for file in home.iterdir():
                (kept / file.name).hardlink_to(file)
            broker.delete_topic("t")
            make(b"new")
            for file in [file for file in home.iterdir() if (kept / file.name).exists()]:
                (kept / file.name).write_bytes(file.read_bytes())
                (kept / file.name).replace(file)
            (kept / "done").touch()

        make(b"old")
        made = export(tmp_path / "log", tmp_path / "exported", on_progress=make_again)
        with fl.Broker(made.destination, read_only=True) as exported:
            assert exported.describe_topic("t").topic_id == broker.describe_topic("t").topic_id
            assert {value for batch in exported.scan("t") for value in batch["value"].to_pylist()} == {b"new"}


def hooked(do: Callable[[], object]) -> type:
    """A consumer that has something done behind the first poll with records."""

    class Hooked:
        def __init__(self, *given: Any) -> None:
            self._consumer = fl.Consumer(*given)

        def __enter__(self) -> Any:
            self._consumer.__enter__()
            return self

        def __exit__(self, *given: object) -> None:
            self._consumer.__exit__(*given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._consumer, name)

        def poll(self, **given: Any) -> Any:
            records = self._consumer.poll(**given)
            if len(records):
                do()
            return records

    return Hooked


EXPLAINED = {"max.poll.records": 5000, "max.partition.fetch.bytes": 300_000}


@pytest.mark.parametrize("place", ["directory", "embedded", "remote"])
@pytest.mark.parametrize("lose", ALL_LOSSES, ids=lambda loss: loss.__name__)
def test_an_explanation_shows_a_reset_or_there_is_an_error(
    log: Log, lose: Callable[[Log], None], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fletchlog.explain.run.Consumer", hooked(Once(log, lose)))
    with log.broker.listen() as listener:
        source: Any = {"directory": tmp_path, "embedded": log.broker, "remote": f"kafka://{listener.bootstrap}"}[place]
        try:
            found = explain(source, ["t"], EXPLAINED, polls=60, timeout_ms=300)
        except fl.KafkaError:
            return
    assert (place, lose in ALL_LOSSES[:3]) == ("remote", True)
    start = LEFT_OUT if lose is Log.delete_records else COUNT
    for partition in (0, 1):
        assert f"position of t-{partition}: Earliest offset looked up: {start:,}" in found.text(full=True)


@pytest.mark.parametrize("lose", LOSSES, ids=lambda loss: loss.__name__)
def test_a_replay_is_not_the_same_when_records_go_in_it(log: Log, lose: Callable[[Log], None], monkeypatch: pytest.MonkeyPatch) -> None:
    trace = explain(log.broker, ["t"], EXPLAINED, polls=10).trace
    assert replay(trace, log.broker).same
    monkeypatch.setattr("fletchlog.explain._replay.Consumer", hooked(Once(log, lose)))
    monkeypatch.setattr("fletchlog.explain._replay.TIMEOUT_MS", 300)
    try:
        assert not replay(trace, log.broker).same
    except fl.KafkaError as error:
        assert str(error)  # noqa: PT017


class Reader(Log):
    """The log, and a broker that reads its directory beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reader = fl.Broker(path, read_only=True)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    with made.reader:
        yield made
    made.broker.close()


@pytest.mark.parametrize("lose", [Log.delete_topic, Log.make_it_anew, Log.make_it_as_long], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"order": "timestamp"}], ids=str)
@pytest.mark.parametrize("read_before", [0, 1])
def test_a_scan_beside_the_writer_says_that_the_topic_is_gone(
    beside: Reader, lose: Callable[[Log], None], options: dict[str, object], read_before: int
) -> None:
    batches = iter(beside.reader.scan("t", batch_rows=10_000, **options))
    first = [next(batches).num_rows for _ in range(read_before)]
    lose(beside)
    found = rows_or_error(batches)
    if not isinstance(found, UnknownTopicOrPartitionError):
        assert found == 2 * COUNT - sum(first)


def test_questions_beside_the_writer_are_about_the_topics_that_there_are(beside: Reader) -> None:
    tp = fl.TopicPartition("t", 0)
    with fl.Consumer(beside.reader, {"default.api.timeout.ms": 500}) as consumer:
        questions: list[Callable[[], object]] = [
            lambda: consumer.end_offsets([tp]),
            lambda: consumer.beginning_offsets([tp]),
            lambda: consumer.offsets_for_times({tp: 0}),
            lambda: beside.reader.scan("t", 0),
        ]
        for ask in questions:
            ask()
        beside.make_it_anew()
        assert consumer.end_offsets([tp]) == {tp: 9}
        assert beside.reader.scan("t", 0).to_pyarrow().num_rows == 9
        beside.delete_topic()
        for ask in questions[:3]:
            # as in a cluster, where a topic may be on its way
            with pytest.raises(fl.errors.KafkaTimeoutError):
                ask()
        with pytest.raises(UnknownTopicOrPartitionError):
            questions[3]()
    assert beside.reader.topics() == []


@pytest.mark.parametrize("lose", [Log.delete_topic, Log.make_it_anew], ids=lambda loss: loss.__name__)
def test_a_poll_beside_the_writer_outlives_the_topic(beside: Reader, lose: Callable[[Log], None]) -> None:
    with fl.Consumer(beside.reader, {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 20_000}) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        while consumer.position(("t", 0)) < LEFT_OUT or consumer.position(("t", 1)) < LEFT_OUT:
            assert len(consumer.poll(timeout_ms=10_000)) > 0
        lose(beside)
        values = [record.value for _ in range(50) for record in consumer.poll(timeout_ms=50)]
        # what was fetched before, and then what the new topic has
        assert len(values) < COUNT
        assert values.count(b"other") == (0 if lose is Log.delete_topic else 18)


def test_a_folder_that_was_moved_away_is_a_failure_of_the_storage(beside: Reader, tmp_path: Path) -> None:
    beside.reader.scan("t", 0).to_pyarrow()
    (tmp_path / "t-0").rename(tmp_path / "elsewhere")
    with pytest.raises(fl.errors.DirectoryError, match="t-0: is missing, although its topic was not deleted"):
        beside.reader.scan("t", 0)
    with fl.Consumer(beside.reader) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek(("t", 0), LEFT_OUT)
        with pytest.raises(fl.errors.StorageError, match="t-0: is missing"):
            consumer.poll(timeout_ms=10_000)
    (tmp_path / "elsewhere").rename(tmp_path / "t-0")
    assert beside.reader.scan("t", 0).to_pyarrow().num_rows == COUNT


def test_a_scan_of_the_writer_says_that_the_topic_is_gone(log: Log) -> None:
    batches = iter(log.broker.scan("t", 0, batch_rows=1000, threads=1))
    assert next(batches).num_rows == 1000
    log.delete_topic()
    found = rows_or_error(batches)
    assert isinstance(found, UnknownTopicOrPartitionError), found
