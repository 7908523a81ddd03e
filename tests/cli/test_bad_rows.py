"""`fletchlog produce`: what was read before a row that cannot be read is written, in every format, and the error says how much that is."""

import gzip
import io
import json
import os
import select
import signal
import subprocess

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from fletchlog.cli import sending
from fletchlog.cli.common import CommandError
from fletchlog.cli.inputs import Input
from fletchlog.cli.inputs.columns import parts
from fletchlog.cli.records import Record
from tests.support.packing import zstd
from tests.support.reading import values_of

fastavro = pytest.importorskip("fastavro")
pytestmark = pytest.mark.timeout(240)

GOOD = 3


def record(number, **other):
    row = {"topic": "t", "partition": 0, "offset": number, "timestamp": 1_700_000_000_000, "key": None, "value": f"v{number}"}
    return json.dumps(row | other)


def columns(write, kind, items):
    file = io.BytesIO()
    write(pa.table({"value": pa.array([f"v{number}" for number in range(len(items))]), "timestamp": pa.array(items, kind)}), file)
    return file.getvalue()


def arrow(table, file):
    with pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def avro():
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": ["null", "long"]}]}
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"at": number} for number in (1, 2, 3)] + [{"at": None}])
    return file.getvalue()


LINES = b"".join(b'{"n":%d}\n' % number for number in range(GOOD))
OBJECTS = b",\n".join(b'{"n":%d}' % number for number in range(GOOD))
FAR = [1_700_000_000_000] * GOOD
BAD = {
    "not JSON": ("a.jsonl", LINES + b'{"n":\n', [], "line 4, column 6: not a JSON text"),
    "no key": ("a.jsonl", LINES + b'{"m":1}\n', ["--key", "n"], "line 4: --key n is no field"),
    "a part of a millisecond": ("a.jsonl", LINES + b'{"n":1.5}\n', ["--timestamp", "n"], "line 4: 1.5 is no timestamp"),
    "null as a timestamp": ("a.jsonl", LINES + b'{"n":null}\n', ["--timestamp", "n"], "line 4: null is no timestamp"),
    "no UTF-8": ("a.jsonl", LINES + b'{"n":"\xff"}\n', [], "line 4, column 7: byte 0xff is no utf-8"),
    "a record of another partition": (
        "a.jsonl", "\n".join([*map(record, range(GOOD)), record(3, partition=7)]).encode(), ["--keep-partitions"],
        "line 4: topic t has no partition 7: it has 1, numbered from 0",
    ),
    "half of a surrogate pair": ("a.jsonl", "\n".join([*map(record, range(GOOD)), record(3, headers=[{"key": "\ud800", "value": None}])]).encode(), [], "line 4: no record"),
    "too large": ("a.jsonl", LINES + b'{"n":"%s"}\n' % (b"x" * 2000), ["-c", "max.request.size=1500"], "line 4: "),
    "array": ("a.json", b"[" + OBJECTS + b",\n5]", [], "line 4: not a JSON object"),
    "array that is no UTF-8": ("a.json", b"[" + OBJECTS + b',\n{"n":"\xff"}]', [], "line 4, column 7: byte 0xff is no utf-8"),
    "array without an end": ("a.json", b"[" + OBJECTS, [], "after the object of line 3 a comma or the end of the array is missing"),
    "csv": ("a.csv", b"a,b\n1,2\n1,2\n1,2\n1\n", [], "line 5: the row does not have 2 fields"),
    "open quotes": ("a.csv", b'a,b\n1,2\n1,2\n1,2\n1,"2\n', [], "line 5: not csv: unexpected end of data"),
    "tsv": ("a.tsv", b"a\tb\n1\t2\n1\t2\n1\t2\n1\n", [], "line 5: the row does not have 2 fields"),
    "no separator": ("a.txt", b"a:1\nb:2\nc:3\nd\n", ["--key", ":"], "line 4: there is no key separator ':' in it"),
    "time in parquet": ("a.parquet", columns(pq.write_table, pa.uint64(), [*FAR, 2**63]), [], "row 4: "),
    "time in arrow": ("a.arrow", columns(arrow, pa.uint64(), [*FAR, 2**63]), [], "row 4: "),
    "time that Python has not": ("a.parquet", columns(pq.write_table, pa.timestamp("s"), [*[0] * GOOD, 2**50]), ["--as-rows"], "row 4: "),
    "avro": ("a.avro", avro(), ["--timestamp", "at"], "record 4: null is no timestamp"),
    "cut gzip": ("a.txt.gz", gzip.compress(b"1\n2\n3\n")[:-8] , [], "not a gzip file, or one that is cut off or damaged"),
    "cut zstd": ("a.txt.zst", zstd(b"1\n2\n3\n") + zstd(b"x" * 99)[:-9], [], "not a zstd file, or one that is cut off or damaged"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_rows_before_a_bad_one_are_written(cli, data, tmp_path, name):
    file, content, words, text = BAD[name]
    (tmp_path / file).write_bytes(content)
    # times of long ago are to stay
    cli("topics", "create", data, "t", "-c", "retention.ms=-1")
    said = cli("produce", data, "t", tmp_path / file, *words, code=1).err
    assert text in said
    assert said.endswith(f"; {GOOD} records before it are in t\n")
    assert len(values_of(data)) == GOOD


def test_it_says_so_when_nothing_is_written(cli, data):
    said = cli("produce", data, "t", "-f", "jsonl", "--partitions", 1, stdin="oops\n", code=1).err
    assert said.endswith("; topic t was created; nothing was written to t\n")
    assert values_of(data) == []
    said = cli("produce", data, "t", "-f", "jsonl", "--partitions", 1, stdin="oops\n", code=1).err
    assert "was created" not in said
    assert said.endswith("; nothing was written to t\n")


@pytest.mark.slow
def test_a_bad_row_is_named_also_behind_many(cli, data):
    lines = "".join(f"k{number}:v\n" for number in range(45_000))
    said = cli("produce", data, "t", "--key", ":", "--partitions", 1, stdin=lines + "bad\n", code=1).err
    assert said == "fletchlog: standard input, line 45001: there is no key separator ':' in it; 45,000 records before it are in t\n"
    assert len(values_of(data)) == 45_000


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "jsonl", "csv", "arrow"])
def test_what_has_come_through_a_pipe_waits_for_nothing(shell, form):
    """Neither for the end of the pipe nor for more; Ctrl-C loses none of it."""
    path = shell.folder / "d"
    first = {
        "lines": b"1\n2\n",
        "jsonl": b'{"n":1}\n{"n":2}\n',
        "csv": b"n\n1\n2\n",
        "arrow": columns(arrow, pa.timestamp("ms"), [1_700_000_000_000] * 2)[:-8],  # without the mark at the end
    }[form]
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t", config={"retention.ms": "-1"})
    process = shell.start("produce", "d", "t", "-f", form, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(first)
    process.stdin.flush()
    while len(values_of(path)) < 2:
        assert not select.select([process.stderr], [], [], 0.05)[0], process.stderr.read()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == b"interrupted\n"
    process.stdin.close()
    process.stderr.close()
    assert len(values_of(path)) == 2


@pytest.mark.parametrize(("escape", "separator"), [("\\t", "\t"), ("\\x01", "\x01"), ("\\\\", "\\"), ("\\", "\\"), ("\\q", "\\q"), ("ü", "ü")])
def test_the_separator_of_a_key_has_the_escapes_of_a_template(cli, data, escape, separator):
    cli("produce", data, "t", "--key", escape, "--partitions", 1, stdin=f"k{separator}v\n")
    with fl.Broker(data, read_only=True) as broker:
        assert [(row["key"], row["value"]) for row in broker.scan("t").to_pyarrow().to_pylist()] == [(b"k", b"v")]


def test_an_empty_name_is_no_missing_one(cli, data):
    assert "--key is empty" in cli("produce", data, "t", "--key", "", "--partitions", 1, stdin="a\n", code=1).err
    for option in ("--key", "--value", "--timestamp"):
        assert f"{option}  is no field of it" in cli("produce", data, "t", "-f", "jsonl", option, "", "--partitions", 1, stdin='{"a":1}\n', code=1).err
    cli("produce", data, "t", "-f", "jsonl", "--key", "", stdin='{"":"k"}\n')
    with fl.Broker(data, read_only=True) as broker:
        assert [row["key"] for row in broker.scan("t").to_pyarrow().to_pylist()] == [b"k"]


@pytest.mark.parametrize("bad", [None, 0, 4, 9])
def test_rows_that_are_too_many_for_one_part_make_several(bad):
    """As 20,000 large values, which have more bytes than one column of bytes can have."""

    def convert(batch):
        rows = batch["n"].to_pylist()
        if len(rows) > 3 or bad in rows:
            raise ValueError(f"no part of {rows}")
        return rows

    found = list(parts(pa.record_batch({"n": list(range(10))}), convert))
    converted = [row for _, rows, wrong in found if wrong is None for row in rows]
    assert converted == list(range(10 if bad is None else bad))
    assert [rows[0] for _, rows, wrong in found if wrong is None] == [start for start, _, wrong in found if wrong is None]
    assert [(start, str(wrong)) for start, _, wrong in found if wrong is not None] == ([] if bad is None else [(bad, f"no part of [{bad}]")])


def test_a_compressed_file_that_becomes_shorter_ends_the_command():
    class Shorter(io.BytesIO):
        def seek(self, place, whence=0):
            self.truncate(0)
            return super().seek(place, whence)

    cut_off = gzip.compress(os.urandom(100_000).hex().encode())[:-500]
    with pytest.raises(CommandError, match="it became shorter while it was read"):
        list(Input("p.gz", "lines", "gzip", None, None, None).read(Shorter(cut_off)))


def test_ctrl_c_while_records_become_columns_loses_none(data, monkeypatch):
    made = sending._table

    def interrupted(records):
        monkeypatch.setattr(sending, "_table", made)
        raise KeyboardInterrupt

    monkeypatch.setattr(sending, "_table", interrupted)
    with fl.Broker(data, create=True) as broker, fl.Producer(broker) as producer:
        broker.create_topic("t")
        with pytest.raises(KeyboardInterrupt), sending.Sender(producer, "t", str, lambda count: None) as sender:
            sender.add(Record(None, b"v", None, None, None, 1))
            sender.send()
    assert values_of(data) == [b"v"]
