"""Part 40: topics into tables of an Iceberg REST catalog: Apache Iceberg's own implementation of the protocol, in a JVM.

Its server is in the module `iceberg-open-api`, as test fixtures. What is landed is read by polars.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import fletchlog as fl
from fletchlog import serde
from fletchlog.errors import TableConflictError
from tests.support.ports import free_port
from tests.support.store_server import serving

from . import kafka

# its own planner is another package
os.environ["POLARS_ICEBERG_PLANNER"] = "pyiceberg"

PART = "40 Iceberg REST catalog"
VALUE, GROWN = (serde.Json(pa.schema({"id": pa.int64()} | more)) for more in ({}, {"note": pa.string()}))
LANDER = """
import sys
import fletchlog as fl
print("begins", flush=True)
fl.land(sys.argv[1], "t", sys.argv[2], catalog={"type": "rest", "uri": sys.argv[3]}, batch_bytes=1)
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The server, and how a lander finds it."""
    jars = kafka.CACHE / "jars" / "iceberg-rest"
    if not jars.exists():
        pom = kafka.JAVA_SOURCES / "iceberg" / "pom.xml"
        command = ["mvn", "-q", "-B", "-f", str(pom), f"{kafka.DEPENDENCY_PLUGIN}:copy-dependencies", f"-DoutputDirectory={jars}.new"]
        subprocess.run(command, check=True, timeout=600)
        Path(f"{jars}.new").rename(jars)
    folder, port = tmp_path_factory.mktemp("iceberg"), free_port()
    command = [*kafka.JVM, "-cp", f"{jars}/*", "org.apache.iceberg.rest.RESTCatalogServer"]
    # the default is a database in memory, whose tables are locked as a whole
    settings = {"REST_PORT": str(port), "WAREHOUSE": str(folder / "warehouse"), "URI": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=20000"}
    with serving(command, port, folder / "server.log", **{f"CATALOG_{name}": value for name, value in settings.items()}):
        yield {"type": "rest", "uri": f"http://127.0.0.1:{port}"}


def read(catalog: dict[str, str], name: str) -> pl.DataFrame:
    return pl.scan_iceberg(load_catalog("default", **catalog).load_table(name)).sort("partition", "offset").collect()


def send(broker: Any, rows: int) -> None:
    with fl.Producer(broker) as producer:
        for number in range(rows):
            producer.send("t", value=b'{"id": %d}' % number, partition=number % 2)


def test_a_table_grows_and_one_of_three_landers_commits(catalog: dict[str, str], count: Callable[..., None]) -> None:
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t", partitions=2)
        send(broker, 100)
        assert fl.land(broker, "t", "lake.grows", catalog=catalog, value=VALUE, flatten=True, partition_by="day").rows == 100
        assert fl.land(broker, "t", "lake.grows", catalog=catalog, value=VALUE, flatten=True).rows == 0
        send(broker, 10)
        assert fl.land(broker, "t", "lake.grows", catalog=catalog, value=GROWN, flatten=True).rows == 10
        assert fl.land.offsets("lake.grows", catalog=catalog) == {("t", 0): 55, ("t", 1): 55}
        send(broker, 50)
        found: list[Any] = []

        def lander() -> None:
            try:
                found.append(fl.land(broker, "t", "lake.grows", catalog=catalog, value=GROWN, flatten=True).rows)
            except TableConflictError as error:
                found.append(error)

        threads = [threading.Thread(target=lander) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sum(one for one in found if isinstance(one, int)) == 50, found
        frame = read(catalog, "lake.grows")
    assert frame.select("partition", "offset").rows() == [(partition, offset) for partition in range(2) for offset in range(80)]
    assert (frame["note"].null_count(), frame["day"].null_count()) == (160, 0)
    count(PART, rows=frame.height)


@pytest.mark.timeout(600)
def test_killed_landers_leave_each_row_once(catalog: dict[str, str], tmp_path: Path, seed: int, count: Callable[..., None]) -> None:
    chosen, kills = random.Random(seed), 0
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t", partitions=2, config={"segment.bytes": "16384"})
        while kills < 15:
            send(broker, 2_000)
            command = [sys.executable, "-c", LANDER, str(tmp_path / "data"), "lake.killed", catalog["uri"]]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(chosen.uniform(0.0, 6.0))
                process.kill()
                kills += process.wait() == -9
        fl.land(broker, "t", "lake.killed", catalog=catalog)
        ends = {described.partition: described.high_watermark for described in broker.describe_topic("t").partitions}
        rows = read(catalog, "lake.killed").select("partition", "offset").rows()
    assert rows == [(partition, offset) for partition, end in ends.items() for offset in range(end)]
    commits = len(load_catalog("default", **catalog).load_table("lake.killed").metadata.snapshots)
    assert commits > 1
    count(PART, kills=kills, rows=len(rows), commits=commits)
