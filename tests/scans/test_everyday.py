"""The five everyday questions, in three engines, of a directory, an object store and a cluster: the right rows, and no more bytes than they need."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fletchlog as fl
from fletchlog import stores
from tests.scans.conftest import NOW, bytes_sent, time
from tests.support.s3_server import running

COUNT = 24_000
# one record each ten seconds, to the time of the question
FIRST = NOW - COUNT * 10_000
HOUR = time(NOW - 3_600_000)
c, f = pl.col, pc.field


class Place(NamedTuple):
    """A source, and how many bytes were read of it until now."""

    source: str
    options: dict[str, Any]
    read: Callable[[], int]


def of_this_process() -> int:
    """Bytes that this process has read of files."""
    return int(Path("/proc/self/io").read_text().partition("rchar: ")[2].partition("\n")[0])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 MB in two partitions."""
    directory = tmp_path_factory.mktemp("everyday") / "log"
    with fl.Broker(directory, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
        rows = {
            "key": [b"customer-%d" % (at % 50) for at in range(COUNT)],
            "value": [b"%01000d" % at for at in range(COUNT)],
            "partition": pa.array([at % 2 for at in range(COUNT)], pa.int32()),
            "timestamp": pa.array([FIRST + 10_000 * at for at in range(COUNT)], pa.timestamp("ms", "UTC")),
        }
        producer.send_arrow("orders", pa.table(rows))
    return directory


@pytest.fixture(scope="module", params=["directory", "store", "cluster"])
def place(request: pytest.FixtureRequest, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "directory":
        yield Place(str(directory), {}, of_this_process)
    elif request.param == "cluster":
        with fl.Broker(directory) as broker, broker.listen() as listener:
            yield Place(f"kafka://{listener.bootstrap}", {}, partial(bytes_sent, listener))
    else:
        sizes: list[int] = []
        read = stores.Store.read
        with running(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
            bucket = server.new_bucket()
            server.upload(directory, f"{bucket}/logs")

            def counted(*arguments: Any) -> bytes:
                data = read(*arguments)
                sizes.append(len(data))
                return data

            patch.setattr(stores.Store, "read", counted)
            yield Place(server.uri(f"{bucket}/logs"), {"storage_options": dict(server.options)}, lambda: sum(sizes))


@pytest.fixture(scope="module")
def everything(place: Place) -> int:
    """The bytes of the whole topic."""
    before = place.read()
    assert fl.scan_topic(place.source, "orders", **place.options).select(pl.len()).collect().item() == COUNT
    return place.read() - before


def days(rows: list[tuple[dt.date, int]]) -> bool:
    return sum(count for _, count in rows) == COUNT and len(rows) == 3 and rows == sorted(rows)


POLARS = {
    "last hour": lambda lazy: lazy().filter(c("timestamp") >= HOUR).select("key", "offset").collect().height == 360,
    "last 1000": lambda lazy: lazy(tail=1000).select("offset", "timestamp").sort("timestamp").tail(1000).collect()["offset"].min() == COUNT // 2 - 500,
    "since an offset": lambda lazy: lazy().filter(c("partition") == 1, c("offset") >= 11_000).collect().height == 1000,
    "one key": lambda lazy: lazy().filter(c("key") == b"customer-7").select("value").collect().height == COUNT // 50,
    "count by day": lambda lazy: days(lazy().group_by(c("timestamp").dt.date()).len().sort("timestamp").collect().rows()),
}
DUCKDB = {
    "last hour": lambda sql: len(sql(f"select key, \"offset\" from orders where timestamp >= timestamptz '{HOUR}'")) == 360,
    "last 1000": lambda sql: sql('select min("offset") from (select "offset" from last order by timestamp desc limit 1000)') == [(COUNT // 2 - 500,)],
    "since an offset": lambda sql: len(sql('select * from orders where partition = 1 and "offset" >= 11000')) == 1000,
    "one key": lambda sql: len(sql("select value from orders where key = 'customer-7'::blob")) == COUNT // 50,
    "count by day": lambda sql: days(sql("select (timestamp at time zone 'UTC')::date as day, count(*) from orders group by day order by day")),
}
PANDAS = {
    "last hour": lambda read: len(read()(["key", "offset"], f("timestamp") >= HOUR)) == 360,
    "last 1000": lambda read: read(tail=1000)(["offset", "timestamp"]).nlargest(1000, "timestamp")["offset"].min() == COUNT // 2 - 500,
    "since an offset": lambda read: len(read()(filter=(f("partition") == 1) & (f("offset") >= 11_000))) == 1000,
    "one key": lambda read: len(read()(["value"], f("key") == b"customer-7")) == COUNT // 50,
    "count by day": lambda read: days(sorted(read()(["timestamp"])["timestamp"].dt.date.value_counts().items())),
}
# of the bytes of the whole topic. A store is read in pieces of up to 4 MiB, a cluster is asked for 1 MiB of each partition
SHARES = {"last hour": 0.05, "last 1000": 0.2, "since an offset": 0.1, "one key": 1.05, "count by day": 1.05}


@pytest.mark.parametrize("question", SHARES)
@pytest.mark.parametrize("engine", ["polars", "duckdb", "pandas"])
def test_a_question_is_answered_and_reads_what_it_needs(place: Place, everything: int, question: str, engine: str) -> None:
    before = place.read()
    if engine == "polars":
        assert POLARS[question](partial(fl.scan_topic, place.source, "orders", **place.options))
    elif engine == "duckdb":
        with duckdb.connect() as connection:
            connection.register("orders", fl.scans.dataset(place.source, "orders", **place.options))
            connection.register("last", fl.scans.dataset(place.source, "orders", tail=1000, **place.options))
            assert DUCKDB[question](lambda query: connection.sql(query).fetchall())
    else:
        assert PANDAS[question](lambda **more: fl.scans.dataset(place.source, "orders", **place.options, **more).to_pandas)
    assert everything > COUNT * 1000
    asked = place.read() - before
    print(f"{question}, {engine}: {asked:,} of {everything:,}")  # noqa: T201
    assert asked < SHARES[question] * everything + 200_000
