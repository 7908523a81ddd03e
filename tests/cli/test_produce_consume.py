"""`fletchlog produce` and `fletchlog consume`: what goes in comes out, in every format."""

import datetime as dt
import json
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from tests.support.reading import rows_of


@pytest.fixture
def orders(cli, data):
    cli("topics", "create", data, "orders", "-p", 2)
    return data


def values(data):
    return sorted(row["value"] for row in rows_of(data, "orders"))


def test_lines_from_standard_input(cli, data):
    assert "produced 3 records" in cli("produce", data, "numbers", "--partitions", 1, stdin="1\n\nüber\r\n").err
    assert [row["value"] for row in rows_of(data, "numbers")] == [b"1", b"", "über".encode()]


def test_lines_with_a_key_separator(cli, orders):
    cli("produce", orders, "orders", "--key", ":", stdin="a:1\nb:2:3\n")
    assert {row["key"]: row["value"] for row in rows_of(orders, "orders")} == {b"a": b"1", b"b": b"2:3"}
    assert "line 2" in cli("produce", orders, "orders", "--key", ":", stdin="a:1\nb\n", code=1).err


def test_json_lines_keep_the_line_or_take_a_field(cli, orders, tmp_path):
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 7, "who": "x", "at": "2024-05-01T00:00:00Z"}\n\n{"id": 8, "who": null, "at": 1700000000000}\n')
    cli("produce", orders, "orders", file, "--key", "who", "--timestamp", "at")
    found = {row["key"]: row for row in rows_of(orders, "orders")}
    assert json.loads(found[b"x"]["value"])["id"] == 7
    assert found[b"x"]["timestamp"] == dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    assert found[None]["timestamp"] == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    cli("produce", orders, "orders", file, "--value", "id", "-f", "jsonl")
    assert b"7" in values(orders)


def test_csv_rows_become_json_objects(cli, orders, tmp_path):
    file = tmp_path / "f.csv"
    file.write_text('carrier,note\nUA,"a, b"\nAA,\n')
    cli("produce", orders, "orders", file, "--key", "carrier", "-c", "enable.idempotence=true")
    assert [json.loads(row["value"]) for row in sorted(rows_of(orders, "orders"), key=lambda r: r["key"])] == [
        {"carrier": "AA", "note": ""},
        {"carrier": "UA", "note": "a, b"},
    ]


def test_parquet_out_is_parquet_in(cli, orders, tmp_path):
    cli("produce", orders, "orders", "--key", ":", stdin="a:1\nb:2\n")
    out = tmp_path / "out.parquet"
    assert "wrote 2 records" in cli("consume", orders, "orders", "-f", "parquet", "-o", out).err
    cli("produce", orders, "copy", out, "--partitions", 2)
    without_place = lambda found: sorted((r["key"], r["value"], r["timestamp"]) for r in found)  # noqa: E731
    assert without_place(rows_of(orders, "copy")) == without_place(rows_of(orders, "orders"))


def test_parquet_rows_without_a_value_column_become_json(cli, orders, tmp_path):
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))}), file)
    cli("produce", orders, "orders", file, "--timestamp", "at")
    assert json.loads(rows_of(orders, "orders")[0]["value"])["id"] == 1
    assert rows_of(orders, "orders")[0]["timestamp"] == dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def test_consume_prints_json_lines_in_poll_order_and_stops_at_the_end(cli, orders):
    cli("produce", orders, "orders", stdin="".join(f"{i}\n" for i in range(1200)))
    lines = cli("consume", orders, "orders", "-f", "jsonl").lines
    assert len(lines) == 1200
    for partition in (0, 1):
        offsets = [line["offset"] for line in lines if line["partition"] == partition]
        assert offsets == list(range(len(offsets)))
    assert len(cli("consume", orders, "orders", "-f", "jsonl", "-n", 7).lines) == 7


def test_values_that_are_no_text_are_base64(cli, orders):
    with fl.Broker(orders, create=True) as broker, fl.Producer(broker) as producer:
        producer.send("orders", value=b"\xff\x00", key=None)
    line = cli("consume", orders, "orders", "-f", "jsonl").lines[0]
    assert line["valueBase64"] == "/wA="
    assert line["key"] is None
    assert "value" not in line
    assert "\\xff" in cli("consume", orders, "orders").out


def test_a_group_goes_on_after_its_commit(cli, orders):
    cli("produce", orders, "orders", stdin="1\n2\n")
    assert len(cli("consume", orders, "orders", "-f", "jsonl", "--group", "g").lines) == 2
    assert cli("consume", orders, "orders", "-f", "jsonl", "--group", "g").out == ""
    cli("produce", orders, "orders", stdin="3\n")
    assert [line["value"] for line in cli("consume", orders, "orders", "-f", "jsonl", "--group", "g").lines] == ["3"]


def test_a_reader_does_not_need_the_writers_lock(cli, orders):
    with fl.Broker(orders, create=True) as broker, fl.Producer(broker) as producer:
        producer.send("orders", value=b"1").result(5)
        assert len(cli("consume", orders, "orders", "-f", "jsonl").lines) == 1
        assert "open for writing in this process" in cli("produce", orders, "orders", stdin="2\n", code=1).err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["produce", "{data}", "order"], "order"),
        (["produce", "{data}", "orders", "-f", "xml"], "lines, jsonl, json, csv, tsv, parquet"),
        (["produce", "{data}", "orders", "/nonexistent/file"], "/nonexistent/file"),
        (["produce", "{data}", "orders", "-f", "jsonl"], "line 1, column 1: not a JSON text"),
        (["produce", "{data}", "orders", "-f", "csv", "--key", "id"], "--key id is no field"),
        (["produce", "{data}", "orders", "-f", "parquet"], "not a Parquet file"),
        (["produce", "{data}", "orders", "--value", "x"], "need rows with fields"),
        (["produce", "{data}", "orders", "-c", "linger=5"], "linger.ms"),
        (["produce", "{data}", "orders", "-f", "lines", "--keep-partitions"], "--keep-partitions is for what `consume` wrote as jsonl, "),
        (["produce", "{data}", "orders", "--keep-partitions", "-f", "csv", "--key", "a"], "--keep-partitions is for what `consume` wrote as jsonl, "),
        (["produce", "{data}", "orders", "--keep-partitions"], "--keep-partitions is for what `consume` wrote as jsonl, "),
        (["produce", "{data}", "orders", "--keep-partitions", "-f", "csv"], "standard input: --keep-partitions needs records as `consume` wrote them"),
        (["consume", "{data}", "order"], "order"),
        (["consume", "{data}", "orders", "-f", "xml"], "table, jsonl, json, csv, raw, parquet, arrow"),
        (["consume", "{data}", "orders", "-f", "parquet", "-o", "{data}.parquet"], "no record to write"),
        (["consume", "{data}", "orders", "-n", "0"], "at least 1"),
        (["consume", "{data}", "orders", "--follow", "-f", "table"], "--format jsonl"),
        (["consume", "{data}", "orders", "--from", "middle"], "--from middle is no time"),
        (["consume", "{data}", "orders", "-c", "max.poll.record=5"], "max.poll.records"),
    ],
)
def test_mistakes_are_one_sentence(cli, orders, words, text):
    assert text in cli(*[word.format(data=orders) for word in words], stdin="no json\n", code=1).err


def test_what_was_sent_before_a_bad_line_is_kept(cli, orders):
    stdin = "".join(f'{{"n": {i}}}\n' for i in range(20_000)) + "oops\n"
    assert "line 20001" in cli("produce", orders, "orders", "-f", "jsonl", stdin=stdin, code=1).err
    assert len(rows_of(orders, "orders")) == 20_000


@pytest.mark.parametrize("config", [[], ["-c", "enable.idempotence=true"]])
def test_a_disk_that_takes_no_more_ends_it_with_one_line(data, config):
    # a file may have 100 kB in this process; a full disk fails in the same way, but needs rights to make one
    program = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));from fletchlog.cli import main; sys.exit(main())"
    lines = "".join(f"{i}\n" for i in range(30_000))
    words = ["produce", data, "t", "--partitions", "1", *config]
    done = subprocess.run([sys.executable, "-c", program, *map(str, words)], input=lines, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "File too large" in line
    assert "t-0/00000000000000000000.log" in line
    taken = int(line.split()[1].replace(",", ""))
    with fl.Broker(data, create=True) as broker:
        assert taken == broker.describe_topic("t").partitions[0].high_watermark > 0
    read = int(line.split()[4].replace(",", ""))
    assert 20_000 <= read <= 30_000
    assert f"{taken:,} of the {read:,} records read so far are in t: " in line
