"""`fletchlog produce FILE`: the name tells the format, and what cannot be read is said with its place and stores nothing wrong."""

import bz2
import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import fletchlog as fl
from tests.support.packing import zstd

fastavro = pytest.importorskip("fastavro")
pytestmark = pytest.mark.timeout(240)

ROWS = [{"id": 1, "who": "alice", "price": 1.10}, {"id": 2, "who": 'bøb; "x"', "price": 1e300}]
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}, {"name": "price", "type": "double"}]}


def separated(mark):
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, ROWS[0], delimiter=mark)
    writer.writeheader()
    writer.writerows(ROWS)
    return file.getvalue().encode()


def sink(write):
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def stream(file):
    with pa.ipc.new_stream(file, pa.Table.from_pylist(ROWS).schema) as writer:
        writer.write_table(pa.Table.from_pylist(ROWS))


FILES = {
    "a.jsonl": b"".join(json.dumps(row).encode() + b"\r\n\n" for row in ROWS),
    "a.NDJSON": b"\xef\xbb\xbf" + b"".join(json.dumps(row).encode() + b"\n" for row in ROWS),
    "array.json": json.dumps(ROWS, indent=2).encode(),
    "bom.json": b"\xef\xbb\xbf" + json.dumps(ROWS).encode(),
    "lines.json": b"\n".join(json.dumps(row).encode() for row in ROWS),
    "pretty.json": b"".join(json.dumps(row, indent=1).encode() for row in ROWS),
    "a.csv": separated(","),
    "bom.csv": b"\xef\xbb\xbf" + separated(","),
    "a.tsv": separated("\t"),
    "a.parquet": sink(lambda file: pq.write_table(pa.Table.from_pylist(ROWS), file)),
    "a.feather": sink(lambda file: pa.feather.write_feather(pa.Table.from_pylist(ROWS), file)),
    "stream.arrow": sink(stream),
    "a.avro": sink(lambda file: fastavro.writer(file, AVRO, ROWS)),
    "deflated.avro": sink(lambda file: fastavro.writer(file, AVRO, ROWS, codec="deflate")),
}


def records(path, topic="t"):
    with fl.Broker(path, read_only=True) as broker:
        return [(row["key"], row["value"]) for row in broker.scan(topic).to_pyarrow().to_pylist()]


@pytest.mark.slow
def test_the_name_tells_the_format_and_the_compression(shell):
    names = {}
    for name, data in FILES.items():
        for suffix, pack in (("", bytes), (".gz", gzip.compress), (".zst", zstd)):
            if suffix and not name.startswith("a."):
                continue
            (shell.folder / (name + suffix)).write_bytes(pack(data))
            names[f"t{len(names)}"] = name + suffix
    # parts, as `cat a.gz b.gz` and pigz make them
    (shell.folder / "parts.jsonl.gz").write_bytes(b"".join(gzip.compress(line) for line in FILES["a.jsonl"].splitlines(keepends=True)))
    (shell.folder / "parts.jsonl.zst").write_bytes(b"".join(zstd(line) for line in FILES["a.jsonl"].splitlines(keepends=True)))
    names |= {"p1": "parts.jsonl.gz", "p2": "parts.jsonl.zst"}
    done = shell.bash("set -e\n" + "\n".join(f"fletchlog produce d {topic} {name} --key who --partitions 1" for topic, name in names.items()))
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.count(b"produced 2 records to ") == len(names)
    for topic, name in names.items():
        found = records(shell.folder / "d", topic)
        assert [key.decode() for key, _ in found] == [row["who"] for row in ROWS], name
        texts = {"csv", "tsv"} & set(name.split("."))
        assert [json.loads(value) for _, value in found] == [{k: str(v) if texts else v for k, v in row.items()} for row in ROWS], name


def test_json_values_keep_their_text(shell):
    (shell.folder / "a.json").write_text('[{"n": 1.10, "big": 123456789012345678901234567890},\n\n {"n":1e2}]')
    shell.run("produce", "d", "t", "a.json", "--partitions", 1)
    assert [value for _, value in records(shell.folder / "d")] == [b'{"n": 1.10, "big": 123456789012345678901234567890}', b'{"n":1e2}']


@pytest.mark.slow
def test_text_of_other_encodings_and_delimiters(shell):
    (shell.folder / "excel.csv").write_bytes("näme;x\r\nÄ;1\r\n".encode("cp1252"))
    (shell.folder / "unicode.tsv").write_bytes("näme\tx\r\nÄ\t1\r\n".encode("utf-16"))
    (shell.folder / "l.txt").write_bytes(b"\xff\xfe\n\xef\xbb\xbfx\n")
    (shell.folder / "bom.txt").write_bytes(b"\xef\xbb\xbfx\ny\n")
    (shell.folder / "latin.jsonl").write_bytes('{"näme": "Ä"}\n'.encode("latin-1"))
    done = shell.bash(r"""set -e
        fletchlog produce d a excel.csv --partitions 1 --delimiter ';' --encoding cp1252 --key näme
        fletchlog produce d b unicode.tsv --partitions 1 --encoding utf-16 --key näme
        fletchlog produce d c l.txt --partitions 1
        fletchlog produce d e bom.txt --partitions 1
        fletchlog produce d f latin.jsonl --partitions 1 --encoding latin-1
        fletchlog produce d g --partitions 1 -f csv --delimiter '\t' < <(printf 'a\tb\n1\t2\n')
        fletchlog produce d h <(seq 3) --partitions 1
        seq 1 | fletchlog produce d i --partitions 1""")
    assert done.returncode == 0, done.stderr.decode()
    found = {topic: records(shell.folder / "d", topic) for topic in "abcefghi"}
    assert found["a"] == found["b"] == [("Ä".encode(), '{"näme": "Ä", "x": "1"}'.encode())]
    # lines are bytes; only the mark at the beginning of a file is none of them
    assert [value for _, value in found["c"]] == [b"\xff\xfe", b"\xef\xbb\xbfx"]
    assert [value for _, value in found["e"]] == [b"x", b"y"]
    assert found["f"] == [(None, '{"näme": "Ä"}'.encode())]
    assert found["g"] == [(None, b'{"a": "1", "b": "2"}')]
    assert len(found["h"]) == 3
    assert b"produced 1 record to i in d" in done.stderr.splitlines()


DEEP = "[" * 100_000
WRONG = [
    ("orders", b"1\n", [], "its name does not tell its format; give -f FORMAT, one of lines, jsonl, json, csv, tsv, parquet, arrow, avro"),
    ("orders.xml", b"<a/>", [], "give -f FORMAT"),
    ("orders.gz", gzip.compress(b"1\n"), [], "give -f FORMAT"),
    ("a.jsonl.bz2", bz2.compress(b"{}"), [], "give -f FORMAT"),
    ("a.json", b"[1]", [], "a.json, line 1: not a JSON object"),
    ("a.json", b'[{"a":1},\n{"a":2}', [], "after the object of line 2 a comma or the end of the array is missing"),
    ("a.json", b'[{"a":1},\n]', [], "a.json, line 2, column 1: not a JSON text: Expecting value"),
    ("a.json", b'{"a":\n1 2}', [], "a.json, line 2, column 3: not a JSON text: Expecting ',' delimiter"),
    ("a.json", b'[{"a":1}] x', [], "something follows the array"),
    ("a.json", b"[", [], "the array does not end"),
    ("a.json", b'{"a":NaN}', [], "NaN is no JSON"),
    ("a.json", DEEP.encode(), [], "nested too deep"),
    ("a.jsonl", b'{"a":' + DEEP.encode(), [], "nested too deep"),
    ("a.jsonl", b'{"a":1}\n{"a":1} {"a":2}\n', [], "line 2, column 9: not a JSON text: something follows the object"),
    ("a.jsonl", b'{"a":1}\n\n5\n', [], "line 3: not a JSON object"),
    ("a.jsonl", b'{"a":1}\n{"a":"\xff"}\n', [], "a.jsonl, line 2, column 7: byte 0xff is no utf-8; name the encoding with --encoding"),
    ("a.jsonl", b'{"a":"\\ud800"}\n', ["--key", "a"], "line 1: cannot be written as JSON text"),
    ("a.jsonl", b'{"a":1e400}\n', ["--timestamp", "a"], "line 1: inf is no timestamp"),
    ("a.jsonl", b'{"a":1e30}\n', ["--timestamp", "a"], "has no place in 64 bits"),
    ("a.jsonl", b'{"a":[1]}\n', ["--timestamp", "a"], "is no timestamp"),
    ("latin.csv", b"a,b\n1,2\n1,\xfc\n", [], "latin.csv, line 3, column 3: byte 0xfc is no utf-8; name the encoding with --encoding, for example latin-1"),
    ("wide.csv", "a,b\n1,2\n".encode("utf-16"), [], "line 1, column 1: byte 0xff is no utf-8; name the encoding with --encoding, for example utf-16"),
    ("true.csv", b"\x7fELF\x02\x01\x00\xb0\xc0", [], "line 1, column 8: byte 0xb0"),
    ("s.csv", b"id;name\n1;x\n", [], "its only field is 'id;name'; if ; separates the fields, give --delimiter ';'"),
    ("s.csv", b"id\tname\n1\tx\n", [], r"give --delimiter '\t'"),
    ("s.tsv", b"id,name\n1,x\n", [], "give --delimiter ','"),
    ("s.csv", b"id,id\n1,2\n", [], "two fields are called 'id'"),
    ("s.csv", b"id,x\n1,2\n1\n", [], "line 3: the row does not have 2 fields"),
    ("s.csv", b'id,x\n1,"2\n1,3\n', [], "s.csv, line 3: not csv: unexpected end of data"),
    ("s.csv", b"a,b\n1,2\n", ["--encoding", "klingon"], "--encoding klingon: there is no such encoding"),
    ("s.csv", b"a,b\n1,2\n", ["--encoding", "hex"], "--encoding hex: there is no such encoding"),
    ("s.csv", b"a,b\n1\n2", ["--encoding", "utf-16"], "not utf-16"),
    ("s.csv", b"a,b\n1,2\n", ["--delimiter", ";;"], "--delimiter is one character"),
    ("a.jsonl", b"{}\n", ["--delimiter", ";"], "--delimiter is one character between the fields of csv or tsv"),
    ("a.parquet", FILES["a.parquet"], ["--encoding", "latin-1"], "--encoding is for text"),
    ("a.parquet", FILES["a.parquet"][:50], [], "not a Parquet file that can be read"),
    ("a.parquet", FILES["a.parquet"][:8] + bytes(200) + FILES["a.parquet"][208:], [], "a.parquet"),
    ("a.arrow", b"ARROW1\x00\x00garbage", [], "not an Arrow file or stream that can be read"),
    ("a.arrow", FILES["stream.arrow"][:-60], [], "a.arrow"),
    ("s.csv", b'id,"x\n', [], "s.csv, line 1: not csv: unexpected end of data"),
    ("a.jsonl", b'{"a":1}\n  {"a" 1}\n', [], "a.jsonl, line 2, column 8: not a JSON text: Expecting ':' delimiter"),
    ("a.avro", b"Obj\x01garbage", [], "a.avro: not an Avro file that can be read"),
    ("a.avro", FILES["a.avro"][:-20], [], "not an Avro file that can be read"),
    ("null.avro", sink(lambda file: fastavro.writer(file, "null", [None] * 3)), [], "may have any size"),
    ("int.avro", sink(lambda file: fastavro.writer(file, "int", [1])), [], "record 1 is no Avro record with fields"),
    ("a.avro", FILES["a.avro"], ["--key", "x"], "--key x is no field of it; fields are id, who, price"),
    ("a.csv.gz", b"a,b\n", [], "a.csv.gz: not a gzip file, or one that is cut off or damaged"),
    ("a.csv.gz", gzip.compress(FILES["a.csv"] * 99)[:-30], [], "a.csv.gz: not a gzip file, or one that is cut off or damaged"),
    ("a.jsonl.zst", b"{}\n", [], "a.jsonl.zst: not a zstd file, or one that is cut off or damaged"),
    ("a.jsonl.zst", zstd(FILES["a.jsonl"] * 99)[:-30], [], "a.jsonl.zst: not a zstd file, or one that is cut off or damaged"),
]


@pytest.mark.parametrize(("name", "content", "words", "text"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_read_is_said_with_its_place(cli, data, tmp_path, name, content, words, text):
    (tmp_path / name).write_bytes(content)
    said = cli("produce", data, "t", tmp_path / name, "--partitions", 1, *words, code=1).err
    assert said.startswith("fletchlog: ")
    assert text in said
    assert "FORMAT" not in text or not data.exists()


def test_a_field_of_any_length_is_read(shell):
    (shell.folder / "a.csv").write_text("a,b\n" + "x" * 300_000 + ",1\n")
    shell.run("produce", "d", "t", "a.csv", "--partitions", 1)
    assert len(records(shell.folder / "d")[0][1]) > 300_000


def test_nested_values_and_times_become_json(shell):
    table = pa.table({"at": pa.array([[0]], pa.list_(pa.timestamp("us"))), "raw": [{"b": b"\xffx"}], "day": pa.array([1], pa.date32())})
    pq.write_table(table, shell.folder / "a.parquet")
    shell.run("produce", "d", "t", "a.parquet", "--partitions", 1)
    assert json.loads(records(shell.folder / "d")[0][1]) == {"at": ["1970-01-01 00:00:00"], "raw": {"b": "\\xffx"}, "day": "1970-01-02"}


@pytest.mark.parametrize("encoding", [[], ["--encoding", "utf-8"]])
@pytest.mark.parametrize("key", [None, b"::"])
def test_lines_end_where_the_text_says(cli, data, tmp_path, key, encoding):
    """Not where a read of the file ends: only a line's end is taken off, and the bytes in front of it stay."""
    texts = [b"first", b"", b"two\r", b"k::v", b"k::v::w", b"::", b"x" * 200_000, "ä".encode()]
    sizes = [65_530 - len(text) for text in texts]  # ends of lines on both sides of 65,536 bytes
    texts = [part for text, size in zip(texts, sizes, strict=True) if size > 0 for part in (text, b"y" * size)] + texts
    if key is not None:
        texts = [text if key in text else b"a::" + text for text in texts]
    content = b"\xef\xbb\xbf" + b"".join(text + end for text, end in zip(texts, [b"\n", b"\r\n", b"\r\n"] * len(texts), strict=False)) + b"a::last\r"
    (tmp_path / "a.txt").write_bytes(content)
    words = [] if key is None else ["--key", key.decode()]
    cli("produce", data, "t", tmp_path / "a.txt", *words, *encoding, "--partitions", 1)
    wanted = [*texts, b"a::last\r"]
    assert records(data) == [(None, text) if key is None else (text.partition(key)[0], text.partition(key)[2]) for text in wanted]


JSON_ROWS = b'{"id":1,"at":5}\n{"id":2,"at":6}\n'


@pytest.mark.parametrize("stdin", [JSON_ROWS, b'[{"id":1,"at":5},\n{"id":2,"at":6}]', b'[\n{"id":1,"at":5},\n{"id":2,"at":6}\n]'])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--key", "id"], [(b"1", b'{"id":1,"at":5}'), (b"2", b'{"id":2,"at":6}')]),
        (["--value", "at", "--key", "id"], [(b"1", b"5"), (b"2", b"6")]),
        (["--timestamp", "at", "--value", "id"], [(None, b"1"), (None, b"2")]),
    ],
)
def test_standard_input_that_begins_as_json_is_json_where_options_name_fields(cli, data, stdin, words, expected):
    cli("produce", data, "t", "--partitions", 1, *words, stdin=stdin)
    with fl.Broker(data, read_only=True) as broker:
        found = broker.scan("t").to_pyarrow()
    assert list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True)) == expected


@pytest.mark.parametrize(
    ("stdin", "words", "said"),
    [
        (JSON_ROWS, ["--key", "idd"], "begins as jsonl, with the fields id, at; give -f jsonl if --key names a field, -f lines if"),
        (JSON_ROWS, ["--key", ":"], "begins as jsonl, with the fields id, at; give -f jsonl"),
        (JSON_ROWS, ["--value", "nothing"], "--value nothing is no field of it; fields are id, at"),
        (b'{ "id": 1,\n"at": 5}', ["--key", "id"], "give -f json if --key names a field"),
        (b"id,who\n1,a\n", ["--key", "id"], "begins as csv, with the fields id, who; give -f csv if --key names a field"),
        (b"id\twho\n1\ta\n", ["--key", "who"], "give -f tsv if --key names a field"),
        (b"id,who\n1,a\n", ["--value", "who"], "--value and --timestamp need rows with fields"),
        (b"", ["--value", "who"], "--value and --timestamp need rows with fields"),
        (b"", ["--key", "id", "-f", "csv"], "standard input: there are no fields, and --key, --value and --timestamp name fields"),
    ],
)
def test_standard_input_that_may_be_lines_or_rows_is_refused(cli, data, stdin, words, said):
    cli("topics", "create", data, "t")
    error = cli("produce", data, "t", *words, stdin=stdin, code=1).err
    assert said in error
    with fl.Broker(data, read_only=True) as broker:
        assert broker.scan("t").to_pyarrow().num_rows == 0


@pytest.mark.parametrize(("stdin", "key", "pairs"), [(b"a,b:c\n", ":", [(b"a,b", b"c")]), (b"a,b\n", ",", [(b"a", b"b")]), (b"{x}:y\n", ":", [(b"{x}", b"y")])])
def test_what_separates_keys_of_lines_needs_no_format(cli, data, stdin, key, pairs):
    cli("produce", data, "t", "--partitions", 1, "--key", key, stdin=stdin)
    cli("produce", data, "t", "--key", ":", "-f", "lines", stdin=JSON_ROWS)
    with fl.Broker(data, read_only=True) as broker:
        found = broker.scan("t").to_pyarrow()
    assert list(zip(found["key"].to_pylist(), found["value"].to_pylist(), strict=True))[:1] == pairs
    assert found["key"].to_pylist()[1] == b'{"id"'
