"""What is wrong with a store is said, with what to do, in seconds; secrets are not."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

import fletchlog as fl
from tests.support.s3_server import S3Server, running

SECRET = "hunter2-of-the-reader"


@pytest.fixture
def prefix(s3: S3Server, bucket: str, tmp_path: Path) -> str:
    """A log of two segments and more than one read each."""
    values = pa.array([b"%01000d" % number for number in range(12_000)], pa.binary())
    with fl.Broker(tmp_path / "log", create=True) as broker:
        broker.create_topic("orders", config={"segment.bytes": 6 << 20})
        with fl.Producer(broker) as producer:
            producer.send_arrow("orders", pa.table({"value": values}))
    s3.upload(tmp_path / "log", bucket)
    return bucket


def opened(s3: S3Server, prefix: str, **options: object) -> fl.Broker:
    return fl.Broker(f"s3://{prefix}", read_only=True, storage_options={**s3.options, **options})


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
        with pytest.raises(fl.errors.ReadOnlyError, match="to produce, open a directory on a disk without read_only"):
            fl.Producer(broker)


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    assert "there is no such bucket; check its name" in fails_within_30_s(lambda: opened(s3, "no-such-bucket/x"), fl.errors.DirectoryError)


def test_wrong_uris_and_options_are_named(tmp_path: Path) -> None:
    wrong = fl.errors.InvalidArgumentError
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


@pytest.mark.parametrize("status", [401, 403])
def test_credentials_that_google_refuses_are_named(status: int) -> None:
    """By the answer that its documentation gives: no server that can be had asks for credentials."""

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"error": {"code": status, "message": "reader does not have storage.objects.list access"}}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {"scheme": "http", "endpoint_override": f"127.0.0.1:{server.server_port}"}
        token = {"access_token": SECRET, "credential_token_expiration": "2100-01-01T00:00:00"}
        opening = lambda: fl.Broker("gs://bucket/p", read_only=True, storage_options={**options, **token})  # noqa: E731
        text = fails_within_30_s(opening, fl.errors.StorageError)
        server.shutdown()
    assert "the store refused access; check the credentials (access_token or anonymous in storage_options" in text
    assert "reader does not have storage.objects.list access" in text


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
