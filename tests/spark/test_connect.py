"""Spark Connect and spark-pipelines, as their page has them: a server, and clients in processes of their own, since the other tests have a classic session."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest

import fletchlog as fl
from tests.python.test_docs import blocks

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = blocks("howto/spark-connect.md")
SESSION, DEFINITIONS = (text for kind, text in PAGE if kind == "python")
(SPECIFICATION,) = (text for kind, text in PAGE if kind == "text")
CLIENT = Path(__file__).with_name("connect_client.py")
ENVIRONMENT = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
SPARK = Path(pyspark.__file__).parent
# Nothing takes nearly as long.
START_SECONDS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the server runs: its tables are there."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def server(folder):
    """Of Spark Connect, in a process of its own, with fletchlog in its Python; its address."""
    settings = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    settings |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    settings["spark.python.unix.domain.socket.enabled"] = "true"
    command = [SPARK / "sbin" / "start-connect-server.sh", "--master", "local[2]", *(f"--conf={name}={value}" for name, value in settings.items())]
    places = {"SPARK_HOME": str(SPARK), "SPARK_LOG_DIR": str(folder), "SPARK_PID_DIR": str(folder), "SPARK_NO_DAEMONIZE": "yes"}
    log, end = folder / "log", time.monotonic() + START_SECONDS
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT | places, stdout=output, stderr=output, start_new_session=True)
    try:
        while not (started := re.search(r"Spark Connect server started at: \S*:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{started[1]}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def create(broker, topics):
    for topic, partitions in topics.items():
        broker.create_topic(topic, partitions=partitions)


def send(broker, first, end):
    with fl.Producer(broker) as producer:
        for number in range(first, end):
            producer.send("orders", key=b"k", value=b"%d" % number, partition=number % 2)


def answer(process):
    for line in process.stdout:
        if line.startswith("["):
            return json.loads(line)
    pytest.fail(f"the client ended with {process.wait()}, see its standard error")


def test_a_client_reads_writes_and_streams_in_directories_and_clusters(server, tmp_path):
    topics = {"orders": 2, "out": 2, "streamed": 2, "each": 1, "tasks": 2}
    with fl.Broker.in_memory() as served, served.listen() as listener:
        with fl.Broker(tmp_path / "log", create=True) as log:
            for broker in (log, served):
                create(broker, topics)
                send(broker, 0, 100)
        places = [{"path": str(tmp_path / "log")}, {"kafka.bootstrap.servers": listener.bootstrap}]
        code = SESSION.replace("sc://server:15002", server).replace("/data/log", places[0]["path"])
        command = [sys.executable, CLIENT, json.dumps(places), code]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, **streams) as process:
            of_page, *first = answer(process)
            with fl.Broker(tmp_path / "log") as log:
                for broker in (log, served):
                    send(broker, 100, 120)
            process.stdin.write("go on\n")
            process.stdin.flush()
            again = answer(process)
    assert process.returncode == 0
    assert of_page == 80
    for found in first:
        assert (found["count"], found["filtered"], found["audited"]) == (100, 20, [50, 50])
        assert "unknown option subscrib" in found["option"]
        assert "has no topic none" in found["topic"]
        assert found["out"] == sorted([*range(50), *range(10)])
        assert found["streamed"] == list(range(100))
        assert (set(found["behind"]), found["behind"][-1]) == ({100, 60, 20, 0}, 0)  # the first progress is that of no records
    for found in again:
        assert (found["streamed"], found["each"], found["seen"]) == (list(range(120)), list(range(120)), [])
    assert [found.get("tasks") for found in again] == [None, list(range(50))]


def test_a_pipeline_reads_into_tables_and_writes_through_a_sink_each_record_once(server, folder, tmp_path):
    log, definitions = tmp_path / "log", tmp_path / "transformations"
    definitions.mkdir()
    (definitions / "orders.py").write_text(DEFINITIONS.replace("/data/log", str(log)))
    (tmp_path / "spark-pipeline.yaml").write_text(SPECIFICATION.replace("/data/pipeline", str(tmp_path / "state")))
    command = [Path(sys.executable).with_name("spark-pipelines"), "--remote", server, "run"]
    for first, end in ((0, 100), (100, 130)):
        with fl.Broker(log, create=True) as broker:
            if not first:
                create(broker, {"orders": 2, "shouted": 1})
            send(broker, first, end)
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        orders, by_partition = (pq.read_table(folder / "spark-warehouse" / name) for name in ("orders", "by_partition"))
        assert sorted(map(int, orders["value"].to_pylist())) == list(range(end))
        assert by_partition["count"].to_pylist() == [end // 2, end // 2]
        with fl.Broker(log) as broker:
            written = broker.scan("shouted", isolation_level="read_committed").to_pyarrow()
        assert sorted(map(int, written["value"].to_pylist())) == list(range(end))
