"""What is wrong with a store is said, with what to do, in seconds; secrets are not."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl
from s3_server import S3Server, running

SECRET = "hunter2-of-the-reader"


@pytest.fixture
def prefix(s3: S3Server, bucket: str, tmp_path: Path) -> str:
    """A log of two segments and more than one read each."""
    values = pa.array([b"%01000d" % number for number in range(12_000)], pa.binary())
    with fl.Broker(tmp_path / "log") as broker:
        broker.create_topic("orders", config={"segment.bytes": 6 << 20})
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": values}))
    s3.upload(tmp_path / "log", bucket)
    return bucket


def opened(s3: S3Server, prefix: str, **options: object) -> fl.Broker:
    return fl.Broker(f"s3://{prefix}", read_only=True, storage_options={**s3.options, **options})


def segments(s3: S3Server, prefix: str) -> list[str]:
    from pyarrow.fs import FileSelector

    found = s3.filesystem.get_file_info(FileSelector(f"{prefix}/orders-0"))
    return sorted(info.path for info in found if info.path.endswith(".log"))


def fails_within_30_s(call: object, error: type[Exception]) -> str:
    started = time.monotonic()
    with pytest.raises(error) as caught:
        call()  # type: ignore[operator]
    assert time.monotonic() - started < 30
    text = str(caught.value)
    assert SECRET not in text
    return text


def test_a_store_is_opened_for_reading_only(s3: S3Server, prefix: str) -> None:
    with pytest.raises(fl.errors.ReadOnlyError, match="object stores are read-only; open it with read_only=True"):
        fl.Broker(f"s3://{prefix}", storage_options=s3.options)
    with opened(s3, prefix) as broker:
        for write in (
            lambda: broker.create_topic("new"),
            lambda: broker.delete_topic("orders"),
            lambda: broker.run_retention(),
            lambda: broker.delete_records("orders", 0, 5),
            lambda: broker.alter_topic_config("orders", {"retention.ms": "1"}),
        ):
            with pytest.raises(fl.errors.KafkaError, match="object stores are read-only; to "):
                write()
        producer = fl.Producer(broker, {"retries": 0})
        with pytest.raises(fl.errors.KafkaError, match=r"object stores are read-only|POLICY_VIOLATION"):
            producer.send("orders", b"x").result(20)
        producer.close(timeout_ms=0)


def test_what_is_not_there_is_named(s3: S3Server, prefix: str) -> None:
    assert "there is no such bucket; check its name" in fails_within_30_s(lambda: opened(s3, "no-such-bucket/x"), fl.errors.DirectoryError)
    assert f"s3://{prefix}/nowhere: there is no object with this prefix" in fails_within_30_s(lambda: opened(s3, f"{prefix}/nowhere"), fl.errors.DirectoryError)
    text = fails_within_30_s(lambda: opened(s3, f"{prefix}/orders-0"), fl.errors.DirectoryError)
    assert "so it is no broker's directory" in text
    assert "an export that is not finished" in text


def test_wrong_uris_and_options_are_named(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    wrong = fl.errors.InvalidArgumentError
    assert "nope" in fails_within_30_s(lambda: opened(s3, prefix, nope=1), wrong)
    assert "ftp://x/y" in fails_within_30_s(lambda: fl.Broker("ftp://x/y", read_only=True), wrong)
    assert "Cluster" in fails_within_30_s(lambda: fl.Broker("kafka://x/y", read_only=True), wrong)
    assert "storage_options are for an object store" in fails_within_30_s(lambda: fl.Broker(tmp_path, storage_options={"region": "x"}), wrong)


def test_credentials_that_are_refused_are_named(tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    # moto asks for credentials it knows from the third request on
    with running(tmp_path / "s3", INITIAL_NO_AUTH_ACTION_COUNT="3") as server:
        for _ in range(4):
            try:
                server.new_bucket()
            except OSError:
                break
        text = fails_within_30_s(lambda: opened(server, "bucket-0"), fl.errors.StorageError)
        assert "the store refused access; check the credentials" in text


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_endpoint_that_does_not_answer_is_named(s3: S3Server, silent: int) -> None:
    for port in (1, silent):
        text = fails_within_30_s(lambda port=port: opened(s3, "bucket-0", endpoint_override=f"http://127.0.0.1:{port}"), fl.errors.StorageError)
        assert "s3://bucket-0: the store does not answer; check the endpoint" in text


@pytest.mark.parametrize("what", ["deleted", "longer", "of the same size"])
def test_an_object_that_changes_while_it_is_read_ends_the_scan(s3: S3Server, prefix: str, what: str) -> None:
    victim = segments(s3, prefix)[1]
    with s3.filesystem.open_input_file(victim) as file:
        data = file.read()
    with opened(s3, prefix) as broker:
        rows = 0

        def read() -> None:
            nonlocal rows
            # several threads may have read the second segment before the first rows are handed out
            for batch in broker.scan("orders", batch_rows=500, threads=1):
                if rows == 0:
                    if what == "deleted":
                        s3.filesystem.delete_file(victim)
                    else:
                        s3.put(victim, data + b"x" if what == "longer" else bytes(len(data)))
                rows += batch.num_rows

        text = fails_within_30_s(read, fl.errors.StorageError)
        assert "the object was deleted or has changed since the store was opened; open it again" in text
        assert victim.rpartition("/")[2] in text
        assert 0 < rows < 12_000


def test_a_change_between_two_reads_of_one_object_is_seen(s3: S3Server, prefix: str) -> None:
    victim = segments(s3, prefix)[0]
    with s3.filesystem.open_input_file(victim) as file:
        data = file.read()
    with opened(s3, prefix) as broker:
        assert broker.scan("orders", end_offset=100).to_pyarrow().num_rows == 100
        # the same bytes: only the store knows that it is another object
        s3.put(victim, data[:-1] + bytes([data[-1]]))
        s3.put(victim, data)
        time.sleep(1.1)
        s3.put(victim, data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
        fails_within_30_s(lambda: broker.scan("orders").to_pyarrow(), fl.errors.StorageError)


def test_no_secret_is_shown(s3: S3Server, prefix: str) -> None:
    with opened(s3, prefix) as broker:
        assert repr(broker) == f"<fletchlog.Broker 's3://{prefix}': 1 topic, open for reading only>"
    host = s3.endpoint.removeprefix("http://").replace(":", "%3A")
    with fl.Broker(f"s3://reader:{SECRET}@{prefix}?scheme=http&endpoint_override={host}", read_only=True) as broker:
        assert repr(broker) == f"<fletchlog.Broker 's3://{prefix}': 1 topic, open for reading only>"
        assert broker.scan("orders").to_pyarrow().num_rows == 12_000


def test_the_environment_has_endpoint_and_credentials(s3: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    for scheme in ("s3", "s3a"):
        with fl.Broker(f"{scheme}://{prefix}", read_only=True) as broker:
            assert broker.topics() == ["orders"]


def test_a_signal_and_other_threads_do_not_block_it(s3: S3Server, prefix: str) -> None:
    """Many threads read one broker; each request takes the GIL, which others hold meanwhile."""
    with opened(s3, prefix) as broker:
        counts: list[int] = []

        def read() -> None:
            counts.append(sum(batch.num_rows for batch in broker.scan("orders", threads=2)))

        threads = [threading.Thread(target=read) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        assert counts == [12_000] * 6


@pytest.mark.slow
def test_ctrl_c_ends_a_read(s3: S3Server, prefix: str, silent: int) -> None:
    code = f"""
import fletchlog as fl
print("begins", flush=True)
try:
    fl.Broker("s3://{prefix}", read_only=True, storage_options={{**{s3.options!r}, "endpoint_override": "http://127.0.0.1:{silent}"}})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(1)
    process.send_signal(2)
    assert process.communicate(timeout=30)[0] == "interrupted\n"
