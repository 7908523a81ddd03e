"""What holds for every object store, for a server that the fixture `store` starts. The tests of a folder import all of this.

What one store alone answers, refused credentials above all, is tested where its server is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog._exporting import PLAN, export
from tests.support.ports import free_port
from tests.support.store_server import StoreServer

ROWS = 12_000


def fails(call: object, error: type[Exception], store: StoreServer, seconds: float = 40) -> str:
    """The text of an error that comes in time and shows no secret."""
    started = time.monotonic()
    with pytest.raises(error) as caught:
        call()  # type: ignore[operator]
    assert time.monotonic() - started < seconds
    text = str(caught.value)
    assert not [secret for secret in store.secrets if secret in text]
    return text


def opened(store: StoreServer, key: str) -> fl.Broker:
    return fl.Broker(store.uri(key), read_only=True, storage_options=store.options)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of two segments and more than one read each."""
    directory = tmp_path_factory.mktemp("log") / "log"
    with fl.Broker(directory, create=True) as broker:
        broker.create_topic("orders", config={"segment.bytes": 6 << 20, "retention.ms": "-1"})
        broker.create_topic("payments", partitions=2, config={"retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": pa.array([b"%01000d" % number for number in range(ROWS)], pa.binary())}))
            producer.send_arrow("payments", pa.table({"value": pa.array([b"%d" % number for number in range(100)], pa.binary())}))
    return directory


@pytest.fixture
def exported(store: StoreServer, log: Path) -> str:
    """The log, exported below a prefix."""
    key = f"{store.new_bucket()}/deep/prefix"
    export(log, store.uri(key), storage_options=store.options)
    return key


def segments(store: StoreServer, key: str) -> list[str]:
    from pyarrow.fs import FileSelector

    found = store.filesystem.get_file_info(FileSelector(store.path(f"{key}/orders-0")))
    return sorted(info.path for info in found if info.path.endswith(".log"))


def names(store: StoreServer, key: str) -> set[str]:
    from pyarrow.fs import FileSelector, FileType

    found = store.filesystem.get_file_info(FileSelector(store.path(key), recursive=True))
    return {info.path.partition(f"{key}/")[2] for info in found if info.type == FileType.File}


def test_an_export_reads_as_its_directory(store: StoreServer, exported: str, log: Path) -> None:
    place = store.uri(exported)
    with fl.Broker(log, read_only=True) as local, opened(store, exported) as remote:
        assert repr(remote) == f"<fletchlog.Broker {place!r}: 2 topics, open for reading only>"
        assert remote.topics() == local.topics()
        for topic in ("orders", "payments"):
            assert remote.describe_topic(topic) == local.describe_topic(topic)
            assert remote.scan(topic).to_pyarrow() == local.scan(topic).to_pyarrow()
    assert PLAN not in names(store, exported)
    text = fails(lambda: export(log, place, storage_options=store.options), fl.errors.DirectoryError, store)
    assert f"{place} holds a whole directory" in text
    with pytest.raises(fl.errors.ReadOnlyError, match="object stores are read-only"):
        fl.Broker(place, create=True, storage_options=store.options)


def test_what_was_copied_as_it_is_reads_too(store: StoreServer, log: Path) -> None:
    bucket = store.new_bucket()
    store.upload(log, bucket)
    with opened(store, bucket) as remote:
        assert remote.scan("payments").to_pyarrow().num_rows == 100


def test_a_segment_is_read_by_ranges(store: StoreServer, exported: str) -> None:
    assert len(segments(store, exported)) == 2
    with opened(store, exported) as broker:
        broker.describe_topic("orders")
        for start in (1_000, 5_000, 8_000, 11_000):
            with store.reading_ranges():
                rows = broker.scan("orders", start_offset=start, end_offset=start + 10, threads=1).to_pyarrow()
            assert rows["value"].to_pylist() == [b"%01000d" % number for number in range(start, start + 10)]


@pytest.mark.parametrize("last", ["fletchlog.metadata", "meta.properties"])
def test_an_export_that_died_while_it_wrote_its_last_files_is_finished(store: StoreServer, exported: str, log: Path, last: str) -> None:
    """Some stores show an object that is being written, without bytes at first."""
    properties, metadata = (store.get(f"{exported}/{name}") for name in ("meta.properties", "fletchlog.metadata"))
    last_files = {"meta.properties": properties.decode(), "fletchlog.metadata": metadata.decode()}
    plan = {"version": 1, "topics": [], "partitions": [["orders", 0, 0, ROWS]], "files": {}, "last": last_files}
    store.put(f"{exported}/{PLAN}", json.dumps(plan).encode())
    store.put(f"{exported}/{last}", b"")
    export(log, store.uri(exported), storage_options=store.options)
    assert PLAN not in names(store, exported)
    assert store.get(f"{exported}/{last}") == {"meta.properties": properties, "fletchlog.metadata": metadata}[last]


def test_what_is_not_there_is_named(store: StoreServer, exported: str, log: Path) -> None:
    nowhere = f"{exported.partition('/deep')[0]}/nowhere"
    text = fails(lambda: opened(store, nowhere), fl.errors.DirectoryError, store)
    assert f"{store.uri(nowhere)}: there is no object with this prefix" in text
    text = fails(lambda: opened(store, f"{exported}/orders-0"), fl.errors.DirectoryError, store)
    assert "so it is no broker's directory" in text
    text = fails(lambda: opened(store, exported).scan("nope"), fl.errors.UnknownTopicOrPartitionError, store)
    wrong = {**store.options, "nope": 1}
    assert "nope" in fails(lambda: fl.Broker(store.uri(exported), read_only=True, storage_options=wrong), fl.errors.InvalidArgumentError, store)


@pytest.mark.timeout(120)
def test_an_endpoint_where_nobody_listens_is_named(store: StoreServer) -> None:
    place, options = store.elsewhere(free_port())
    text = fails(lambda: fl.Broker(place, read_only=True, storage_options=options), fl.errors.StorageError, store)
    assert f"{place}: the store does not answer; check the endpoint" in text


@pytest.mark.parametrize("what", ["deleted", "longer", "of the same size"])
def test_an_object_that_changes_while_it_is_read_ends_the_scan(store: StoreServer, exported: str, what: str) -> None:
    victim = segments(store, exported)[1]
    data = store.get(victim)
    time.sleep(1.1)  # HDFS has whole seconds
    with opened(store, exported) as broker:
        rows = 0

        def read() -> None:
            nonlocal rows
            for batch in broker.scan("orders", batch_rows=500, threads=1):
                if rows == 0:
                    if what == "deleted":
                        store.delete(victim)
                    else:
                        store.put(victim, data + b"x" if what == "longer" else bytes(len(data)))
                rows += batch.num_rows

        text = fails(read, fl.errors.StorageError, store)
    assert "the object was deleted or has changed since the store was opened; open it again" in text
    assert victim.rpartition("/")[2] in text
    assert 0 < rows < ROWS


def test_a_change_between_two_reads_of_one_object_is_seen(store: StoreServer, exported: str) -> None:
    victim = segments(store, exported)[0]
    data = store.get(victim)
    with opened(store, exported) as broker:
        assert broker.scan("orders", end_offset=100).to_pyarrow().num_rows == 100
        time.sleep(1.1)
        store.put(victim, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        text = fails(lambda: broker.scan("orders").to_pyarrow(), fl.errors.StorageError, store)
    assert "the object was deleted or has changed" in text


def environment(**more: str) -> dict[str, str]:
    """That of a process which has what it reads in the variables given, and nothing else of a store."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUD_STORAGE", "FLETCHLOG_"))}
    return {**clean, **more}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["options", "environment"])
@pytest.mark.timeout(180)
def test_commands_read_it_with_options_and_with_the_environment(store: StoreServer, log: Path, tmp_path: Path, way: str) -> None:
    key = f"{store.new_bucket()}/p"
    given, place, shown = store.environment, store.uri(key, in_environment=True), store.uri(key)
    if way == "options":
        config = tmp_path / "store.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in store.options.items()))
        given, place = {**store.process_environment, "FLETCHLOG_STORAGE_CONFIG": str(config)}, shown

    def run(*words: object, code: int = 0) -> str:
        command = [str(Path(sys.executable).parent / "fletchlog"), *map(str, words)]
        done = subprocess.run(command, env=environment(**given), capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == code, done.stderr
        assert not [secret for secret in store.secrets if secret in done.stdout + done.stderr]
        return done.stdout if code == 0 else done.stderr

    assert json.loads(run("export", log, place, "--json"))["files"] > 8
    assert "holds a whole directory" in run("export", log, place, code=1)
    assert len(run("consume", place, "payments", "-n", "3", "-f", "jsonl").splitlines()) == 3
    run("audit", place, "--max", "gaps_unexplained=0")
    assert "object stores are read-only" in run("topics", "create", place, "new", code=1)


SPARK = """
import json, sys
from tests.support import spark_session

spark = spark_session.start()
for options in json.loads(sys.argv[1]):
    frame = spark.read.format("fletchlog").options(**options).load()
    print(json.dumps([frame.count(), frame.rdd.getNumPartitions(), frame._jdf.queryExecution().toString()]), flush=True)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_reads_it_with_options_and_with_the_environment(store: StoreServer, exported: str) -> None:
    store_options = {f"store.{name}": str(value) for name, value in store.options.items()}
    asked = [
        {"path": store.uri(exported), "subscribe": "orders", **store_options},
        {"path": store.uri(exported), "subscribe": "orders", "minPartitions": "4", **store_options},
        {"path": store.uri(exported, in_environment=True), "subscribe": "orders"},
    ]
    command = [sys.executable, "-c", SPARK, json.dumps(asked)]
    variables = environment(**store.environment, PYTHONPATH=str(Path(__file__).parents[2]))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [rows for rows, *_ in seen] == [ROWS] * 3
    assert seen[1][1] >= 4
    assert not [secret for secret in store.secrets if secret in done.stdout]
