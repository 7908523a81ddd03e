"""`fletchlog consume | fletchlog produce` gives the same records back; rows that are not records stay rows."""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from tests.support.command_line import invoke
from tests.support.reading import rows_of

pytestmark = pytest.mark.timeout(300)  # hypothesis would shrink a time-out

FORMATS = ("jsonl", "json", "csv", "parquet", "arrow")


def run(*words, stdin=b""):
    result = invoke([str(word) for word in words], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.stderr
    return result.stdout_bytes


def scan(path, topic):
    """What the topic holds, by partition."""
    with fl.Broker(path, read_only=True) as broker, fl.Consumer(broker) as consumer:
        consumer.assign([(topic, p) for p in (0, 1)])
        rows = []
        while records := consumer.poll(timeout_ms=100):
            rows += records.to_pyarrow(include_headers=True).to_pylist()
    found = {0: [], 1: []}
    for row in rows:
        found[row["partition"]].append((row["key"], row["value"], row["timestamp"], row["headers"] or None))
    return found


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.sampled_from(["", '"', '""', ",", "\r", "\n", "\r\n", "a,b", "null", " ", "\x00", "\u2028", "[]", "\ufeff", "\\N", "'"])
PRINTED = st.one_of(st.none(), TEXT.map(str.encode), NASTY.map(str.encode))
BYTES = st.one_of(PRINTED, st.binary(max_size=12))


def records(data):
    headers = st.lists(st.tuples(st.one_of(TEXT, NASTY), BYTES), max_size=3)
    return st.lists(st.tuples(data, data, st.integers(0, 1_700_000_000_000), headers, st.integers(0, 1)), min_size=1, max_size=12)


def go_round(form, made):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with fl.Broker(path, create=True) as broker:
            for topic in ("t", "copy"):  # old records are not to be deleted meanwhile
                broker.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
            with fl.Producer(broker) as producer:
                sent = [
                    producer.send("t", value, key, partition=partition, timestamp_ms=time, headers=headers) for key, value, time, headers, partition in made
                ]
            assert all(future.result() for future in sent)  # a time more than an hour ahead of now would be refused
        written = run("consume", path, "t", "-f", form)
        run("produce", path, "copy", "-f", form, "--keep-partitions", stdin=written)
        assert scan(path, "copy") == scan(path, "t")


SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@SLOW
@given(form=st.sampled_from(FORMATS), made=records(PRINTED))
@example(form="csv", made=[(None, b"", 0, [], 0), (b"", None, 1, [("h", None), ("h", b"\xff")], 0)])
def test_text_comes_back_in_every_format(form, made):
    go_round(form, made)


@pytest.mark.slow
@SLOW
@given(form=st.sampled_from([form for form in FORMATS if form != "csv"]), made=records(BYTES))
@example(form="jsonl", made=[(b"\xff", b"\xfe\x00", 0, [("", b"\xff")], 1), (None, None, 5, [], 1)])
def test_bytes_come_back_in_every_format_but_csv(form, made):
    go_round(form, made)


@pytest.fixture
def one(cli, data):
    """A topic with a text, and then bytes that are none."""
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"x", b"k", timestamp_ms=5, headers=[("h", b"1")])
            producer.send("t", b"\xff", timestamp_ms=6)
    return data


def test_csv_has_no_place_for_bytes_and_says_for_which(cli, one):
    refused = cli("consume", one, "t", "-f", "csv", code=1)
    assert "t-0, offset 1: its value is no UTF-8" in refused.err
    assert refused.out.splitlines()[1] == 't,0,0,1970-01-01T00:00:00.005000+00:00,k,x,"[{""key"": ""h"", ""value"": ""1""}]"'


@pytest.mark.slow
def test_through_a_file_and_through_a_pipe(cli, shell, one):
    for form in ("jsonl", "json", "parquet", "arrow"):
        file = one.parent / f"out.{form}"
        cli("consume", one, "t", "-f", form, "-o", file)
        assert "2 records as `fletchlog consume` wrote them" in cli("produce", one, f"file-{form}", file, "--partitions", 1).err
        shell.bash(f"fletchlog consume data t -f {form} | fletchlog produce copy {form} -f {form} --partitions 1")
        assert [row["value"] for row in rows_of(shell.folder / "copy", form)] == [row["value"] for row in rows_of(one, f"file-{form}")] == [b"x", b"\xff"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_a_pipe_of_records_is_known_without_a_format(cli, shell, data, form):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t", config={"retention.ms": "-1"})
        with fl.Producer(broker) as producer:
            # the first line is longer than any buffer
            sent = [producer.send("t", value, b"k", timestamp_ms=5, headers=[("h", b"1")]) for value in (b"x" * 200_000, b"y")]
        assert all(future.result() for future in sent)
    said = shell.bash(f"fletchlog consume data t -f {form} | fletchlog produce copy t --partitions 1 && echo done")
    assert said.stdout == b"done\n", said.stderr
    assert b"produced 2 records as `fletchlog consume` wrote them to t" in said.stderr
    assert scan_one(shell.folder / "copy") == [(b"k", b"x" * 200_000, [{"key": "h", "value": b"1"}]), (b"k", b"y", [{"key": "h", "value": b"1"}])]


def scan_one(path):
    return [(row["key"], row["value"], row["headers"]) for row in rows_of(path, "t", include_headers=True)]


LINES = [b'{"id": 1, "value": "v"}', b"[", b"[1, 2", b"", b"{", b"[[", b"topic,partition", b"[" * 100_000]


@pytest.mark.parametrize("first", LINES, ids=range(len(LINES)))
def test_other_lines_stay_lines(cli, data, first):
    done = cli("produce", data, "t", "--partitions", 1, stdin=first + b"\nnext\n")
    assert "wrote them" not in done.err
    assert [row["value"] for row in rows_of(data, "t")] == [first, b"next"]


def test_lines_of_records_are_lines_on_request(cli, data):
    line = json.dumps(ALMOST)
    for words in (["--as-rows"], ["-f", "lines"]):
        assert "wrote them" not in cli("produce", data, "t", "--partitions", 1, *words, stdin=line + "\n").err
    assert [row["value"].decode() for row in rows_of(data, "t")] == [line, line]
    refused = cli("produce", data, "t", "--key", ":", stdin=line + "\n", code=1).err
    assert "standard input begins as `fletchlog consume -f jsonl` writes records; give -f jsonl" in refused
    assert "--as-records is for what `consume` wrote" in cli("produce", data, "t", "--as-records", stdin="a\n", code=1).err


ALMOST = {"topic": "t", "partition": 0, "offset": 1, "timestamp": 5, "key": "k", "value": "v"}


@pytest.mark.parametrize(
    "row",
    [
        {"id": 1, "value": "v"},
        {"key": "k", "value": "v", "timestamp": 5},
        ALMOST | {"extra": 1},
        {name: item for name, item in ALMOST.items() if name != "offset"},
        ALMOST | {"valueBase64": "eA=="},
    ],
)
def test_an_object_of_ones_own_stays_whole(cli, data, row):
    done = cli("produce", data, "t", "-f", "jsonl", "--partitions", 1, stdin=json.dumps(row) + "\n")
    assert "wrote them" not in done.err
    assert json.loads(rows_of(data, "t")[0]["value"]) == row


def test_a_record_is_a_row_on_request(cli, data):
    line = json.dumps(ALMOST) + "\n"
    cli("produce", data, "t", "-f", "jsonl", "--partitions", 1, "--as-rows", stdin=line)
    cli("produce", data, "t", "-f", "jsonl", "--key", "offset", stdin=line)
    assert [(row["key"], json.loads(row["value"])) for row in rows_of(data, "t")] == [(None, ALMOST), (b"1", ALMOST)]


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (ALMOST | {"more": 1}, "line 2: no record as `fletchlog consume` writes it"),
        (ALMOST | {"value": 3}, "line 2: no record as `fletchlog consume` writes it: its value is neither text nor null"),
        (ALMOST | {"timestamp": "soon"}, "line 2: 'soon' is no timestamp"),
        (ALMOST | {"headers": [{"key": "h"}]}, "line 2: no record"),
        (ALMOST | {"headers": 1}, "line 2: no record"),
        (ALMOST | {"partition": -1}, "line 2: no record"),
        ({name: item for name, item in ALMOST.items() if name != "value"} | {"valueBase64": "?"}, "line 2: no record"),
    ],
)
def test_a_file_of_records_holds_nothing_else(cli, data, second, text):
    stdin = json.dumps(ALMOST) + "\n" + json.dumps(second) + "\n"
    assert text in cli("produce", data, "t", "-f", "jsonl", "--partitions", 1, stdin=stdin, code=1).err


def test_columns_of_ones_own_are_not_cut_down_to_the_value(cli, data, tmp_path):
    pq.write_table(pa.table({"sensor": ["a"], "value": ["v"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"value": [1.5], "timestamp": [7]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"key": ["k"], "value": ["v"]}), tmp_path / "c.parquet")
    for name in "abc":
        cli("produce", data, "t", tmp_path / f"{name}.parquet", "--partitions", 1)
    assert [(row["key"], row["value"]) for row in rows_of(data, "t")] == [
        (None, b'{"sensor": "a", "value": "v"}'), (None, b'{"value": 1.5, "timestamp": 7}'), (b"k", b"v"),
    ]  # fmt: skip
    assert "no records" in cli("produce", data, "t", tmp_path / "a.parquet", "--as-records", code=1).err
