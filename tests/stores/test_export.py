"""An export is a whole copy or nothing, goes on where it was stopped, and is what its directory was at one moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, FileType

import fletchlog as fl
from fletchlog._exporting import PLAN, export
from tests.support.command_line import invoke
from tests.support.s3_server import S3Server

COUNT = 6_000


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    with fl.Broker(path, create=True) as broker:
        for topic in ("orders", "payments"):
            broker.create_topic(topic, partitions=2, config={"retention.ms": "-1", "segment.bytes": 100_000})
            send(broker, topic, COUNT)
    return path


def send(broker: fl.Broker, topic: str, count: int) -> None:
    with fl.Producer(broker) as producer:
        producer.send_arrow(topic, pa.table({"value": [b"%0100d" % number for number in range(count)]}))


def names(s3: S3Server, prefix: str) -> dict[str, int]:
    found = s3.filesystem.get_file_info(FileSelector(prefix, recursive=True, allow_not_found=True))
    return {info.path.removeprefix(f"{prefix}/"): info.size for info in found if info.type == FileType.File}


def rows(place: object, s3: S3Server, topic: str) -> pa.Table:
    options = s3.options if str(place).startswith("s3:") else None
    with fl.Broker(place, read_only=True, storage_options=options) as broker:  # type: ignore[arg-type]
        return broker.scan(topic).to_pyarrow().combine_chunks()


def test_some_topics_are_copied_with_their_settings(s3: S3Server, bucket: str, directory: Path) -> None:
    seen: list[tuple[int, int]] = []
    made = export(directory, f"s3://{bucket}/p", ["orders"], storage_options=s3.options, on_progress=lambda *progress: seen.append(progress))
    there = names(s3, f"{bucket}/p")
    assert PLAN not in there
    assert {name.split("/")[0] for name in there if "/" in name} == {"orders-0", "orders-1"}
    assert (made.files, made.bytes, made.reused) == (len(there), sum(there.values()), 0)
    assert seen == sorted(seen)
    assert seen[-1] == (made.bytes, made.bytes)
    assert sum(end - start for start, end in made.partitions.values()) == COUNT
    with fl.Broker(directory, read_only=True) as local, fl.Broker(made.destination, read_only=True, storage_options=s3.options) as remote:
        assert remote.topics() == ["orders"]
        assert remote.describe_topic("orders") == local.describe_topic("orders")
    with pytest.raises(fl.errors.UnknownTopicOrPartitionError, match="nope"):
        export(directory, f"s3://{bucket}/q", ["nope"], storage_options=s3.options)
    assert names(s3, f"{bucket}/q") == {}


def test_users_and_acls_stay_at_home(directory: Path, tmp_path: Path) -> None:
    with fl.Broker(directory, create=True) as broker:
        broker.upsert_user_scram_credential("alice", "alice-secret")
    export(directory, tmp_path / "copy")
    assert "alice" in (directory / "fletchlog.metadata").read_text()
    assert "alice" not in (tmp_path / "copy" / "fletchlog.metadata").read_text()


@pytest.mark.parametrize("kind", ["store", "directory"])
def test_nothing_opens_a_copy_that_is_not_finished_and_the_same_call_goes_on(s3: S3Server, bucket: str, directory: Path, tmp_path: Path, kind: str) -> None:
    """The process is killed at several points of the copy; between two tries no reader sees a directory."""
    place = f"s3://{bucket}/p" if kind == "store" else str(tmp_path / "copy")
    options = s3.options if kind == "store" else None
    reused = []
    for stop_after in (0, 1, 7, 12):
        assert stopped(directory, place, options, stop_after)
        with pytest.raises(fl.errors.DirectoryError, match="export that is not finished"):
            fl.Broker(place, read_only=True, storage_options=options)
        if kind == "directory":
            with pytest.raises(fl.errors.DirectoryError, match="export that is not finished"):
                fl.Broker(place, create=True)
    made = export(directory, place, storage_options=options)
    reused.append(made.reused)
    assert made.reused > 0
    for topic in ("orders", "payments"):
        assert rows(place, s3, topic) == rows(directory, s3, topic)
    with pytest.raises(fl.errors.DirectoryError, match="holds a whole directory"):
        export(directory, place, storage_options=options)


def stopped(directory: Path, place: str, options: object, files: int) -> bool:
    """Exports in a process that kills itself once so many files are written."""
    code = f"""
import os, signal
from fletchlog import _exporting as exporting
left = {files}
def count(done, total):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
exporting.export({str(directory)!r}, {place!r}, storage_options={options!r}, on_progress=count)
"""
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == -signal.SIGKILL


def test_a_copy_that_was_stopped_before_its_last_file_is_finished_as_it_is(s3: S3Server, bucket: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fletchlog import _exporting as exporting

    write = exporting._Objects.write

    def fail(self: object, name: str, chunks: object) -> None:
        if name == "meta.properties":
            raise OSError("the cable")
        write(self, name, chunks)  # type: ignore[arg-type]

    monkeypatch.setattr(exporting._Objects, "write", fail)
    with pytest.raises(fl.errors.StorageError, match="the cable; the same export goes on"):
        export(directory, f"s3://{bucket}", storage_options=s3.options)
    monkeypatch.undo()
    first = rows(f"s3://{bucket}", s3, "orders")
    with fl.Broker(directory, create=True) as broker:
        send(broker, "orders", 10)
    made = export(directory, f"s3://{bucket}", storage_options=s3.options)
    assert "meta.properties" in names(s3, bucket)
    assert PLAN not in names(s3, bucket)
    assert rows(f"s3://{bucket}", s3, "orders") == first
    assert sum(end - start for start, end in made.partitions.values()) == 2 * COUNT


def test_files_of_another_moment_are_not_mixed_in(s3: S3Server, bucket: str, directory: Path) -> None:
    assert stopped(directory, f"s3://{bucket}", s3.options, 30)
    with fl.Broker(directory, create=True) as broker:
        broker.alter_topic_config("payments", {"cleanup.policy": "compact"})
        send(broker, "orders", 1_000)
        broker.delete_records("orders", 0, 2_000)
        broker.delete_topic("payments")
    export(directory, f"s3://{bucket}", storage_options=s3.options)
    assert rows(f"s3://{bucket}", s3, "orders") == rows(directory, s3, "orders")
    assert not [name for name in names(s3, bucket) if name.startswith("payments")]


def test_beside_a_writer_that_appends_and_deletes(s3: S3Server, bucket: str, directory: Path) -> None:
    ended = threading.Event()

    def work(broker: fl.Broker) -> None:
        deletions = 0
        while not ended.is_set():
            send(broker, "orders", 500)
            deletions += 1
            if deletions > 5:  # each may make a new plan, and there is an end to those
                continue
            end = broker.describe_topic("orders").partitions[0].high_watermark
            broker.delete_records("orders", 0, max(0, end - 3_000))
            broker.run_retention()

    with fl.Broker(directory, create=True) as broker:
        writer = threading.Thread(target=work, args=(broker,))
        writer.start()
        try:
            made = export(directory, f"s3://{bucket}", storage_options=s3.options)
        finally:
            ended.set()
            writer.join()
        original = broker.scan("orders", 1, columns=["offset", "value"]).to_pyarrow()
    with fl.Broker(f"s3://{bucket}", read_only=True, storage_options=s3.options) as copy:
        for (topic, number), (start, end) in made.partitions.items():
            found = copy.scan(topic, number, columns=["offset", "value"]).to_pyarrow()
            assert found["offset"].to_pylist() == list(range(start, end))
            if (topic, number) == ("orders", 1):
                assert found.combine_chunks() == original.slice(0, found.num_rows).combine_chunks()


def test_a_kafka_brokers_directory_stays_one(s3: S3Server, bucket: str, directory: Path, tmp_path: Path) -> None:
    (directory / "fletchlog.metadata").unlink()
    export(directory, f"s3://{bucket}", storage_options=s3.options)
    assert "fletchlog.metadata" not in names(s3, bucket)
    assert rows(f"s3://{bucket}", s3, "orders") == rows(directory, s3, "orders")


def test_wrong_places_are_named(directory: Path, tmp_path: Path, s3: S3Server) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    with pytest.raises(fl.errors.DirectoryError, match=r"holds thesis\.txt, which is of no export"):
        export(directory, tmp_path / "full")
    with pytest.raises(fl.errors.InvalidArgumentError, match="is in the directory that is copied"):
        export(directory, directory / "copy")
    with pytest.raises(fl.errors.StorageError, match="there is no such bucket"):
        export(directory, "s3://no-such-bucket/p", storage_options=s3.options)
    with pytest.raises(fl.errors.DirectoryError, match="does not exist"):
        export(tmp_path / "nowhere", tmp_path / "copy")


@pytest.fixture
def shell(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Runs the command; options of the store are in a file."""
    config = tmp_path / "store.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in s3.options.items()))
    monkeypatch.setenv("FLETCHLOG_STORAGE_CONFIG", str(config))

    def run(*words: object) -> tuple[int, str, str]:
        result = invoke([str(word) for word in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout, result.stderr

    return run


def test_the_command_exports_and_commands_read_the_copy(shell, s3: S3Server, bucket: str, directory: Path, tmp_path: Path) -> None:
    place = f"s3://{bucket}/p"
    code, out, err = shell("export", directory, place, "--topics", "orders", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["destination"] == place
    assert sum(p["end"] - p["start"] for p in report["partitions"]) == COUNT
    assert shell("export", directory, place)[0] == 1
    assert "orders" in shell("topics", "list", place)[1]
    assert shell("topics", "describe", place, "orders")[0] == 0
    code, out, _ = shell("consume", place, "orders", "-n", "3", "-f", "jsonl")
    assert (code, len(out.splitlines())) == (0, 3)
    assert shell("audit", place, "--max", "gaps_unexplained=0")[0] == 0
    code, out, _ = shell("explain", place, "--topics", "orders")
    assert code == 0
    assert place in out
    assert shell("copy", place, tmp_path / "back")[0] == 0
    with fl.Broker(tmp_path / "back", read_only=True) as broker:
        assert sum(p.high_watermark for p in broker.describe_topic("orders").partitions) >= COUNT
    for arguments in (("topics", "create", place, "new"), ("produce", place, "orders"), ("clean", place, "orders"), ("copy", directory, place)):
        code, _, err = shell(*arguments)
        assert code == 1
        assert "object stores are read-only" in err
    assert not list(Path.cwd().glob("s3:*"))


def test_the_command_exports_into_a_directory(shell, s3: S3Server, directory: Path, tmp_path: Path) -> None:
    code, out, err = shell("export", directory, tmp_path / "copy")
    assert (code, err) == (0, "")
    assert f"{tmp_path / 'copy'}: 4 partitions with 12,000 offsets" in out
    assert rows(tmp_path / "copy", s3, "payments") == rows(directory, s3, "payments")
    assert (tmp_path / "copy" / "meta.properties").is_file()


def test_what_makes_it_a_directory_is_written_after_everything_else(s3: S3Server, bucket: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fletchlog import _exporting as exporting

    events: list[tuple[str, str]] = []
    write = exporting._Objects.write

    def watched(self: exporting._Objects, name: str, chunks: Iterable[bytes]) -> None:
        events.append(("begins", name))
        write(self, name, chunks)
        events.append(("ends", name))

    monkeypatch.setattr(exporting._Objects, "write", watched)
    made = export(directory, f"s3://{bucket}", storage_options=s3.options)
    assert len(events) == 2 * (made.files + 1)
    assert events[:2] == [("begins", PLAN), ("ends", PLAN)]
    assert events[-4:] == [(what, name) for name in ("fletchlog.metadata", "meta.properties") for what in ("begins", "ends")]
