"""`fletchlog consume -f parquet` and `-f arrow`: files that are good to read, whatever a poll gives."""

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from fletchlog.cli import outputs

COUNT = 3000  # six polls


@pytest.fixture
def filled(data):
    with fl.Broker(data, create=True) as broker:
        for topic in ("t", "u"):
            broker.create_topic(topic, partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(COUNT):
                producer.send("tu"[number % 3 == 0], b"%d" % number, partition=number % 2)
    return data


def batches(form, file):
    """Rows of each row group or batch."""
    if form == "parquet":
        parquet = pq.ParquetFile(file)
        return [parquet.read_row_group(number) for number in range(parquet.num_row_groups)]
    with pa.ipc.open_stream(file) as stream:
        return [pa.Table.from_batches([batch]) for batch in stream]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_many_polls_make_one_row_group(cli, filled, tmp_path, form):
    cli("consume", filled, "t", "u", "-f", form, "-o", tmp_path / "all", "--group", "g")
    (only,) = batches(form, tmp_path / "all")
    assert only.num_rows == COUNT
    lines = cli("consume", filled, "t", "u", "-f", "jsonl").lines
    assert [(row["topic"], row["partition"], row["offset"]) for row in only.to_pylist()] == [(row["topic"], row["partition"], row["offset"]) for row in lines]
    # and all of it is committed
    assert cli("groups", "list", filled, "--json").json[0]["lag"] == 0


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("limit", ["GROUP_ROWS", "GROUP_BYTES"])
def test_no_row_group_grows_without_a_bound(cli, filled, tmp_path, form, limit, monkeypatch):
    monkeypatch.setattr(outputs, limit, 1100)
    cli("consume", filled, "t", "u", "-f", form, "-o", tmp_path / "all", "--group", "g")
    found = [part.num_rows for part in batches(form, tmp_path / "all")]
    assert found == ([1500, 1500] if limit == "GROUP_ROWS" else [500] * 6)
    assert cli("groups", "list", filled, "--json").json[0]["lag"] == 0


CTRL_C_IN_THE_FIRST_ROW_GROUP = """
import signal, sys
import pyarrow.parquet as pq
from fletchlog.cli import outputs
from fletchlog.cli import main

outputs.GROUP_ROWS = 1100
write = pq.ParquetWriter.write_batch

def write_batch(self, batch):
    write(self, batch)
    signal.raise_signal(signal.SIGINT)

pq.ParquetWriter.write_batch = write_batch
sys.exit(main())
"""


def test_ctrl_c_in_a_row_group_writes_no_record_twice(filled, tmp_path):
    words = ["consume", filled, "t", "u", "-f", "parquet", "-o", tmp_path / "some"]
    done = subprocess.run([sys.executable, "-c", CTRL_C_IN_THE_FIRST_ROW_GROUP, *words], check=False)
    assert done.returncode == 130
    rows = pq.read_table(tmp_path / "some").select(["topic", "partition", "offset"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows}) == 1500


def test_small_batches_of_arrow_make_large_ones_of_the_log(cli, data, tmp_path):
    with pa.ipc.new_stream(tmp_path / "a.arrow", pa.schema([("value", pa.binary())])) as stream:
        for number in range(400):
            stream.write_batch(pa.record_batch({"value": pa.array([b"%d" % number, b""], pa.binary())}))
    cli("produce", data, "t", tmp_path / "a.arrow", "--partitions", 1)
    (partition,) = cli("verify", data, "--json").json["partitions"]
    assert partition["records"] == 800
    assert partition["batches"] <= 10
