"""Where `fletchlog consume` begins and ends, and what its templates and files are."""

import csv
import json
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from fletchlog.cli.common import CommandError
from fletchlog.cli.consume import _polls
from fletchlog.cli.places import Existing
from tests.support.command_line import invoke

HOUR = 3_600_000


@pytest.fixture
def ten(data):
    """Two partitions of ten records, each an hour younger than the one before it; the last is half an hour old."""
    now = time.time_ns() // 1_000_000
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            for number in range(20):
                at = now - HOUR // 2 - (9 - number // 2) * HOUR
                producer.send("t", b"v%d" % number, b"k", partition=number % 2, timestamp_ms=at)
    return data


def places(cli, data, *words):
    lines = cli("consume", data, "t", "-f", "jsonl", *words).lines
    return {p: [line["offset"] for line in lines if line["partition"] == p] for p in sorted({line["partition"] for line in lines})}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-p", 1], {1: range(10)}),
        (["-p", 1, "-p", 0, "--offset", 8], {0: range(8, 10), 1: range(8, 10)}),
        (["--offset", 99], {}),
        (["--tail", 3], {0: range(7, 10), 1: range(7, 10)}),
        (["--tail", 99, "-p", 0], {0: range(10)}),
        (["--from", "earliest", "-n", 1000], {0: range(10), 1: range(10)}),
        (["--from", "latest"], {}),
        (["--from", "2h", "-p", 0], {0: range(8, 10)}),
        (["--from", "-1h30m", "-p", 0], {0: range(9, 10)}),
        (["--from", "120m ago", "--until", "1h", "-p", 0], {0: range(8, 9)}),
        (["--until", "8h"], {0: range(2), 1: range(2)}),
        (["--until", "1970-01-02"], {}),
        (["--until", "9999-01-01T00:00:00+01:00", "-p", 1], {1: range(10)}),
        (["--from", "1970-01-01", "--until", "now", "-p", 0], {0: range(10)}),
        (["--from", "now"], {}),
    ],
)
def test_where_it_begins_and_ends(cli, ten, words, expected):
    assert places(cli, ten, *words) == {p: list(offsets) for p, offsets in expected.items()}


def test_a_number_is_a_time_in_milliseconds(cli, ten):
    rows = cli("consume", ten, "t", "-p", 0, "-f", "%o %T\n").out.splitlines()
    at = dict(map(int, row.split()) for row in rows)
    assert places(cli, ten, "-p", 0, "--from", at[4], "--until", at[6]) == {0: [4, 5]}
    assert places(cli, ten, "-p", 0, "--from", at[4] + 1) == {0: list(range(5, 10))}


def test_the_last_records_are_counted_without_markers(cli, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            for number in range(6):
                with producer.transaction():
                    producer.send("t", b"%d" % number)
    assert [line["value"] for line in cli("consume", data, "t", "-f", "jsonl", "--tail", 3).lines] == ["3", "4", "5"]


def test_an_open_transaction_does_not_keep_a_reader_of_committed_records_waiting(cli, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker, {"transactional.id": "x"}) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"1").result(5)
            assert cli("consume", data, "t", "-f", "jsonl", "-c", "isolation.level=read_committed").out == ""
            producer.abort_transaction()


def test_a_group_begins_and_ends_where_it_says(cli, ten):
    assert sum(map(len, places(cli, ten, "--group", "g", "--until", "8h").values())) == 4
    assert places(cli, ten, "--group", "g") == {0: list(range(2, 10)), 1: list(range(2, 10))}
    assert places(cli, ten, "--group", "h", "--from", "latest") == {}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-p", 2], "t has no partition 2; it has 2"),
        (["--tail", 0], "--tail is at least 1"),
        (["--offset", -1], "--offset is at least 0"),
        (["--tail", 1, "--offset", 1], "give one of them"),
        (["--tail", 1, "--from", "1h"], "give one of them"),
        (["--until", "yesterday"], "--until yesterday is no time"),
        (["--from", "now", "--until", "1h"], "--until 1h is not after --from now"),
        (["--from", "1970-01-02", "--until", "1970-01-02"], "--until 1970-01-02 is not after --from 1970-01-02"),
        (["--from", "99999999999999999999"], ""),
        (["--group", "g", "--tail", 1], "fletchlog groups reset"),
        (["--group", "g", "--from", "1h"], "fletchlog groups reset"),
        (["--follow", "--until", "now", "-f", "jsonl"], "--until"),
        (["--follow", "-f", "json"], "--format jsonl"),
        (["-o", "a.jsonl.gz"], "--output a.jsonl.gz: nothing is compressed"),
        (["-o", "a.xls"], "--output a.xls: its name does not tell its format; give -f FORMAT, one of table, jsonl"),
        (["-f", "%q"], "%q means nothing"),
        (["-f", "%"], "means nothing"),
        (["-f", r"\x1"], "means nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(cli, ten, words, text):
    assert text in cli("consume", ten, "t", *words, code=1).err


def test_a_table_says_that_there_is_more(cli, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t", partitions=2)
        with fl.Producer(broker) as producer:
            producer.send_many("t", [b"v"] * 50, partition=0)
    said = "these are the first 50 records: --max N shows more, --format jsonl all\n"
    assert cli("consume", data, "t").err == ""
    with fl.Broker(data) as broker, fl.Producer(broker) as producer:
        producer.send("t", b"one more", partition=1)
    for words in ([], ["--group", "g"], ["-p", 0, "-p", 1, "--tail", 50]):
        assert cli("consume", data, "t", *words).err == said
    for words in (["--group", "g"], ["-p", 0], ["-n", 50], ["-n", 51], ["-f", "raw"], ["--tail", 49]):
        assert cli("consume", data, "t", *words).err == ""


def test_to_follow_is_to_print_lines_as_they_come(cli, ten):
    assert [line["offset"] for line in cli("consume", ten, "t", "--follow", "-n", 3).lines] == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "words", "read"),
    [
        ("a.parquet", [], lambda file: pq.read_table(file).num_rows),
        ("a.FEATHER", [], lambda file: pa.ipc.open_stream(file).read_all().num_rows),
        ("a.json", [], lambda file: len(json.loads(file.read_bytes()))),
        ("a.jsonl", ["--follow", "-n", 20], lambda file: len(file.read_bytes().splitlines())),
        ("a.csv", ["-f", "raw"], lambda file: len(file.read_bytes().splitlines())),
        ("a.txt", ["-n", 20], lambda file: file.read_text().count("\n│")),
    ],
)
def test_the_name_of_a_file_says_its_format(cli, ten, tmp_path, name, words, read):
    cli("consume", ten, "t", "-o", tmp_path / name, *words)
    assert read(tmp_path / name) == 20


def test_a_minus_is_standard_output(cli, ten, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("consume", ten, "t", "-f", "raw", "-o", "-").out == cli("consume", ten, "t", "-f", "raw").out
    assert not (tmp_path / "-").exists()


def test_templates_are_kcats(data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"\xff\x00", b"k", timestamp_ms=5, headers=[("a", b"1"), ("b", None), ("c", b"")])
            producer.send("t", None, None, timestamp_ms=6)

    def printed(form):
        return invoke(["consume", str(data), "t", "-f", form]).stdout_bytes

    assert printed(r"%t [%p] at %o: %k(%K)=%s(%S) %T %h %%\x41\n") == b"t [0] at 0: k(1)=\xff\x00(2) 5 a=1,b=NULL,c= %A\nt [0] at 1: (-1)=(-1) 6  %A\n"
    assert printed("%R") == b"\x00\x00\x00\x02\xff\xff\xff\xff"
    assert printed("raw") == b"\xff\x00\n\n"


def test_headers_are_in_every_text(cli, data, tmp_path):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v", headers=[("color", b"red")])
    assert "color=red" in cli("consume", data, "t").out
    assert cli("consume", data, "t", "-f", "json").json[0]["headers"] == [{"key": "color", "value": "red"}]
    cli("consume", data, "t", "-f", "csv", "-o", tmp_path / "o.csv")
    (row,) = csv.DictReader((tmp_path / "o.csv").read_text().splitlines())
    assert json.loads(row["headers"]) == [{"key": "color", "value": "red"}]


def test_no_records_are_an_empty_array_and_a_head_without_rows(cli, data):
    cli("topics", "create", data, "t")
    assert cli("consume", data, "t", "-f", "json").json == []
    assert cli("consume", data, "t", "-f", "csv").out == "topic,partition,offset,timestamp,key,value,headers\n"


def test_a_file_is_as_before_or_complete(cli, ten, tmp_path):
    for form in ("parquet", "arrow"):
        file = tmp_path / f"out.{form}"
        file.write_bytes(b"old")
        cli("consume", ten, "t", "-f", form, "-o", file, "--from", "latest", code=1)
        assert file.read_bytes() == b"old"
        cli("consume", ten, "t", "-f", form, "-o", file)
        assert file.stat().st_size > 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out.arrow", "out.parquet"]


def test_columns_are_not_written_to_a_terminal(shell, ten):
    said, code = shell.terminal("consume", ten, "t", "-f", "parquet")
    assert code == 1
    assert b"--output FILE" in said


def test_a_narrow_terminal_gets_a_line_a_field(shell, ten):
    said, code = shell.terminal("consume", ten, "t", "--tail", 1, "-p", 0, columns=60)
    assert code == 0
    fields = dict(line.split(maxsplit=1) for line in said.decode().splitlines() if len(line.split()) > 1)
    assert (fields["offset"].strip(), fields["value"].strip()) == ("9", "v18")


def test_what_is_read_before_a_deleted_topic_is_noticed_is_not_lost():
    with fl.Broker.in_memory() as broker:
        for name in ("t", "other"):
            broker.create_topic(name)
        with fl.Producer(broker) as producer:
            for _ in range(3):
                producer.send("t", b"v")
        existing = Existing(broker, [broker.describe_topic(name) for name in ("t", "other")])
        broker.delete_topic("other")
        with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([("t", 0)])
            # with --until the topics are looked at behind each poll, also one with records
            polls = _polls(consumer, existing, {}, {fl.TopicPartition("t", 0): 3}, None)
            assert [offset for batch in next(polls).rows for offset in batch["offset"].to_pylist()] == [0, 1, 2]
            with pytest.raises(CommandError, match="topic other was deleted while it was read"):
                next(polls)


def test_the_bar_has_an_end_and_no_poll_waits_behind_it(shell, ten):
    with fl.Broker(ten, read_only=True) as broker, fl.Consumer(broker, {"auto.offset.reset": "earliest", "max.poll.records": 10}) as consumer:
        existing, ends = Existing(broker, [broker.describe_topic("t")]), consumer.end_offsets([("t", 0), ("t", 1)])
        consumer.assign([("t", 0), ("t", 1)])
        for partition in (0, 1):
            consumer.seek(("t", partition), 0)
        assert [sum(batch.num_rows for batch in polled.rows) for polled in _polls(consumer, existing, ends, {}, None)] == [10, 10]
    for words, end in (([], b"20/20"), (["-n", 5], b"5/5"), (["--group", "g"], b"20/20")):
        said, code = shell.terminal("consume", ten, "t", "-o", "o.jsonl", *words)
        assert code == 0
        assert end in said, words


def test_what_a_reader_of_a_pipe_did_not_take_of_a_batch_comes_again(shell, data):
    with fl.Broker(data, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            for number in range(400):
                producer.send("t", b"%04d" % number + b"x" * 995)
    # a record is 1,000 bytes, the batch is larger than the pipe, and the reader ends within the sixth record
    shell.bash(f"fletchlog consume {data} t -f raw --group g | head -c 5500 >/dev/null")
    with fl.Broker(data, read_only=True) as broker:
        committed = {tp.partition: at.offset for tp, at in broker.group_offsets("g").items()}
    first = shell.run("consume", data, "t", "-f", "raw", "--group", "g", "-n", 1).stdout[:4]
    assert int(first) == committed.get(0, 0)
    assert int(first) < 400
