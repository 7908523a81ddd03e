"""Times on the shell: those of records are kept whatever they are, and a bound means what it means to Python."""

import datetime as dt

import pyarrow as pa
import pytest

import fletchlog as fl
from fletchlog.cli import times

LAST = 2**63 - 1
TIMES = [0, -2, -62_135_596_800_001, 253_402_300_800_000, 1_700_000_000_000_000_000, LAST, -LAST]


@pytest.fixture
def any_time(cli, data):
    """A topic that takes every time, with records of such times."""
    limits = ["-c", "retention.ms=-1", "-c", f"message.timestamp.after.max.ms={LAST}", "-c", f"message.timestamp.before.max.ms={LAST}"]
    for topic in ("t", "jsonl", "json", "csv", "parquet", "arrow"):
        cli("topics", "create", data, topic, *limits)
    with fl.Broker(data) as broker, fl.Producer(broker) as producer:
        producer.send_arrow("t", pa.table({"value": [b"v"] * len(TIMES), "timestamp": pa.array(TIMES, pa.int64())}))
    return data


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_every_time_comes_back(cli, any_time, tmp_path, form):
    cli("consume", any_time, "t", "-f", form, "-o", tmp_path / "out")
    cli("produce", any_time, form, tmp_path / "out", "-f", form)
    for topic in ("t", form):
        assert [int(text) for text in cli("consume", any_time, topic, "-f", r"%T\n").out.split()] == TIMES
    assert [line["timestamp"] for line in cli("consume", any_time, form, "-f", "jsonl").lines] == [
        "1970-01-01T00:00:00+00:00", "1969-12-31T23:59:59.998000+00:00", *TIMES[2:],
    ]  # fmt: skip
    assert len(cli("consume", any_time, form, "--tail", 3, "-f", "jsonl").lines) == 3
    assert f"{LAST} ms" in cli("consume", any_time, form).out


def test_rows_keep_every_time_too(cli, any_time):
    lines = "".join(f'{{"at": {time}}}\n' for time in TIMES)
    cli("produce", any_time, "jsonl", "-f", "jsonl", "--timestamp", "at", stdin=lines)
    assert [int(text) for text in cli("consume", any_time, "jsonl", "-f", r"%T\n").out.split()] == TIMES


@pytest.mark.parametrize("microseconds", [0, 1, 499, 500, 999])
@pytest.mark.parametrize("year", [1, 1969, 2024, 9999])
def test_a_bound_is_rounded_up_and_the_time_of_a_record_down(year, microseconds):
    time = dt.datetime(year, 5, 1, 0, 0, 0, 7000 + microseconds, tzinfo=dt.UTC)
    whole = (dt.datetime(year, 5, 1, 0, 0, 0, 7000, tzinfo=dt.UTC) - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(milliseconds=1)
    assert times.moment(time.isoformat()) == whole
    assert times.when("--from", time.isoformat()) == whole + (microseconds > 0)


def test_a_bound_is_that_of_scan_and_seek(cli, any_time):
    with fl.Broker(any_time) as broker, fl.Producer(broker) as producer:
        for ms in (1000, 1001, 1002):
            producer.send("json", b"%d" % ms, timestamp_ms=ms)
    bound = dt.datetime.fromtimestamp(1, dt.UTC) + dt.timedelta(microseconds=400)
    with fl.Broker(any_time, read_only=True) as broker, fl.Consumer(broker) as consumer:
        scanned = [row["value"].decode() for row in broker.scan("json", start_time=bound).to_pyarrow().to_pylist()]
        consumer.assign([("json", 0)])
        consumer.seek(("json", 0), bound)
        polled = [record.value.decode() for record in consumer.poll(timeout_ms=10_000)]
    assert (
        [line["value"] for line in cli("consume", any_time, "json", "-f", "jsonl", "--from", bound.isoformat()).lines] == scanned == polled == ["1001", "1002"]
    )
