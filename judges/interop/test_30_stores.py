"""Part 30: logs on Azure, HDFS and Google Cloud Storage, by servers that are no Python packages; what holds for every store, and what each refuses."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.transfer import export
from tests.support.every_store import *  # noqa: F403
from tests.support.every_store import environment, fails
from tests.support.store_server import StoreServer

from . import store_servers

PART = "30 object stores"
SERVERS = {"azure": store_servers.azurite, "hdfs": store_servers.hadoop, "fake-gcs": store_servers.fake_gcs}
WRONG_KEY = "aHVudGVyMi1vZi10aGUtcmVhZGVyLWh1bnRlcjItb2YtdGhlLXJlYWRlci1odW50ZXIyLW9mLXRoZS1yZQ=="
SIGNATURE = "aHVudGVyMi1vZi10aGUtcmVhZGVy"


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], StoreServer]]:
    """Each is started once, when it is asked for."""
    from contextlib import ExitStack

    with ExitStack() as running:
        started: dict[str, StoreServer] = {}

        def server(name: str) -> StoreServer:
            if name not in started:
                started[name] = running.enter_context(SERVERS[name](tmp_path_factory.mktemp(name)))
            return started[name]

        yield server


@pytest.fixture(scope="session", params=list(SERVERS))
def store(servers: Callable[[str], StoreServer], request: pytest.FixtureRequest) -> StoreServer:
    """Each of them."""
    return servers(request.param)


@pytest.fixture(autouse=True)
def _counted(count: Callable[..., None]) -> None:
    count(PART, tests=1)


@pytest.mark.parametrize("kind", ["key", "token"])
def test_credentials_that_azure_refuses_are_named(servers: Callable[[str], StoreServer], log: Path, kind: str) -> None:
    store = servers("azure")
    bucket = store.new_bucket()
    store.put(f"{bucket}/p/x", b"x")
    others = {name: value for name, value in store.options.items() if name != "account_key"}
    token = f"?sv=2021-08-06&ss=b&srt=co&sp=rl&se=2100-01-01T00%3A00%3A00Z&sig={SIGNATURE}"
    options = {**others, **({"account_key": WRONG_KEY} if kind == "key" else {"sas_token": token})}
    uri = store.uri(f"{bucket}/p")
    for call in (lambda: fl.Broker(uri, read_only=True, storage_options=options), lambda: export(log, uri, storage_options=options)):
        text = fails(call, fl.errors.StorageError, store)
        assert "the store refused access; check the credentials (account_key or sas_token in storage_options" in text
        assert "403" in text
        assert WRONG_KEY not in text
        assert SIGNATURE not in text


def test_a_user_that_hdfs_refuses_is_named(servers: Callable[[str], StoreServer], log: Path) -> None:
    store = servers("hdfs")
    uri = store.uri(f"{store.new_bucket()}/p")
    text = fails(lambda: export(log, uri, storage_options={"user": "somebody"}), fl.errors.StorageError, store)
    assert "the store refused access; check the credentials (user in storage_options" in text


@pytest.mark.parametrize("name", ["azure", "fake-gcs"])
def test_a_bucket_that_is_not_there_is_named(servers: Callable[[str], StoreServer], log: Path, name: str) -> None:
    store = servers(name)
    what = "container" if name == "azure" else "bucket"
    uri = store.uri("no-such-bucket/x")
    opening = fails(lambda: fl.Broker(uri, read_only=True, storage_options=store.options), fl.errors.DirectoryError, store)
    exporting = fails(lambda: export(log, uri, storage_options=store.options), fl.errors.StorageError, store)
    for text in (opening, exporting):
        assert f"there is no such {what}; check its name" in text


@pytest.mark.timeout(120)
def test_a_name_node_that_says_nothing_is_named(servers: Callable[[str], StoreServer]) -> None:
    store = servers("hdfs")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        uri = f"hdfs://127.0.0.1:{listener.getsockname()[1]}/x"
        for options in (store.options, None):
            text = fails(lambda options=options: fl.Broker(uri, read_only=True, storage_options=options), fl.errors.StorageError, store)
            assert "the store does not answer; check the endpoint (host and port of the NameNode" in text


def test_a_process_without_libhdfs_says_what_is_missing(servers: Callable[[str], StoreServer]) -> None:
    uri = servers("hdfs").uri("bucket-1")
    without = {name: value for name, value in environment().items() if name not in {"ARROW_LIBHDFS_DIR", "HADOOP_HOME"}}
    code = f"import fletchlog as fl; fl.Broker({uri!r}, read_only=True)"
    done = subprocess.run([sys.executable, "-c", code], env=without, capture_output=True, text=True, timeout=60, check=False)
    assert "InvalidArgumentError" in done.stderr
    assert "set ARROW_LIBHDFS_DIR to the directory of libhdfs.so" in done.stderr
