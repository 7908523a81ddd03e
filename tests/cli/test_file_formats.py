"""Every file format of the shell: what `consume` writes is what `produce` reads, whatever the records are and whatever others do between their lines.

The writers and readers alone, in this process; `test_round_trip.py` and the last tests here go through brokers and pipes.
"""

import base64
import io
import itertools
import json
import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import fletchlog as fl
from fletchlog.cli.inputs import SEPARATED, Input
from fletchlog.cli.outputs import writer
from fletchlog.cli.records import Record
from fletchlog.cli.sending import _table

pytestmark = pytest.mark.timeout(300)  # hypothesis would shrink a time-out
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NASTY = st.sampled_from(
    [
        "",
        '"',
        '""',
        ",",
        "\r",
        "\n",
        "\r\n",
        "a,b",
        "null",
        " ",
        "\t",
        "\x00",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\u2028",
        "[]",
        "{}",
        "\ufeff",
        "\\N",
        "\\",
        "'",
        "-1",
        "1e400",
    ]
)
PRINTED = st.one_of(st.none(), TEXT.map(str.encode), NASTY.map(str.encode))
BYTES = st.one_of(PRINTED, st.binary(max_size=12))
LAST = 2**63 - 1
TIMES = st.one_of(
    st.none(),
    st.integers(-(2**63), LAST),
    st.integers(-62_135_596_800_000, 253_402_300_799_999),
    st.sampled_from([0, -2, LAST, -LAST - 1, -62_135_596_800_001, 253_402_300_800_000, 1_700_000_000_000_000_000]),
)
HEADERS = st.lists(st.tuples(st.one_of(TEXT, NASTY), BYTES), max_size=3)
BETWEEN = {
    "as it is": lambda data: data,
    "no final newline": lambda data: data.removesuffix(b"\n"),
    "byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "blank lines at the end": lambda data: data + b"\n \r\n\n",
    "blank lines before": lambda data: b"\n\r\n" + data,
}


def records(data):
    keys = st.tuples(data, data, TIMES, HEADERS, st.integers(0, 2**31 - 1))
    return st.lists(keys, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def schema():
    """The columns that a poll has."""
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v")
        with fl.Consumer(broker) as consumer:
            consumer.assign([("t", 0)])
            return consumer.poll(timeout_ms=10_000).to_pyarrow(include_headers=True, timestamp_unit="ms").schema


def batch_of(schema, made):
    rows = [
        {"topic": "t", "partition": partition, "offset": LAST - number, "timestamp": None, "timestampType": 0, "key": key, "value": value,
         "headers": [{"key": name, "value": item} for name, item in headers] or None}
        for number, (key, value, _, headers, partition) in enumerate(made)
    ]  # fmt: skip
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    times = pa.array([time for _, _, time, _, _ in made], pa.int64()).cast(schema.field("timestamp").type)
    return batch.set_column(schema.get_field_index("timestamp"), schema.field("timestamp"), times)


def written(form, batches):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out"
        to = writer(form, file, follow=False)
        for batch in batches:
            to.add(batch)
        to.finish()
        to.close()
        return file.read_bytes()


def read(form, data, **options):
    """Tuples of key, value, time, headers, partition."""
    named = {"key": None, "value": None, "timestamp": None} | options
    source = Input("input", form, None, **named)
    source.check()
    found = []
    # as a pipe gives it and as a file does
    for item in source.read(io.BufferedReader(io.BytesIO(data))):
        table = _table([item]) if isinstance(item, Record) else item[0]
        columns = {name: table[name] for name in table.column_names}
        if "timestamp" in columns:
            columns["timestamp"] = columns["timestamp"].cast(pa.int64())
        found += [(row["key"], row["value"], row.get("timestamp"), row.get("headers") or None, row.get("partition")) for row in pa.table(columns).to_pylist()]
    return found


def expected(made):
    return [(key, value, time, [{"key": name, "value": item} for name, item in headers] or None, partition) for key, value, time, headers, partition in made]


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
@QUICK
@given(made=records(PRINTED))
@example(made=[(None, b"", None, [("h", None), ("h", b"\xff"), ("", b"")], 0), (b"", None, LAST, [], 2**31 - 1)])
def test_text_comes_back(form, between, schema, made):
    data = written(form, [batch_of(schema, made)])
    if form == "csv" and between == "no final newline" and data.endswith(b"\n\n"):
        return
    assert read(form, BETWEEN[between](data), partitions=True) == expected(made)


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "json"])
@QUICK
@given(made=records(PRINTED.filter(lambda data: data is None or not {10, 13} & set(data))))
def test_text_comes_back_with_other_ends_of_lines(form, end, schema, made):
    made = [(key, value, time, [], partition) for key, value, time, _, partition in made]
    data = written(form, [batch_of(schema, made)]).replace(b"\n", end)
    assert read(form, data, partitions=True) == expected(made)
    assert read(form, data + end + end, partitions=True) == expected(made)


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "arrow"])
@QUICK
@given(made=records(BYTES), cut=st.integers(0, 12))
def test_bytes_come_back(form, schema, made, cut):
    batch = batch_of(schema, made)
    parts = [part for part in (batch.slice(0, cut), batch.slice(cut)) if part.num_rows]
    data = written(form, parts)
    assert read(form, data, partitions=True) == expected(made)
    # known without its name
    source = Input("input", None, None, None, None, None)
    assert sum(1 if isinstance(item, Record) else item[0].num_rows for item in source.read(io.BufferedReader(io.BytesIO(data)))) == len(made)
    assert (source.form, source.as_records) == (form, True)


@QUICK
@given(made=records(BYTES))
@example(made=[(b"\xef\xbb\xbf", None, None, [], 0)] * 2)
def test_a_template_that_encodes_nothing_gives_lines(schema, made):
    """`-f '%k\\t%s\\n'` and `-f lines --key '\\t'`, for keys without tabs and data without line feeds."""
    made = [
        (key, value, *rest)
        for key, value, *rest in made
        if not {9, 10} & set(key or b"") and b"\n" not in (value or b"") and not (value or b"").endswith(b"\r")
    ]
    # a mark at the beginning of a file is no data
    made = list(itertools.dropwhile(lambda row: (row[0] or b"").startswith(b"\xef\xbb\xbf"), made))
    data = written(r"%k\t%s\n", [batch_of(schema, made)])
    assert [row[:2] for row in read("lines", data, key="\\t")] == [(key or b"", value or b"") for key, value, *_ in made]
    times = written(r"%T %p %o\n", [batch_of(schema, made)])
    assert times.split() == [
        b"%d" % number for place, (_, _, time, _, partition) in enumerate(made) for number in (-1 if time is None else time, partition, LAST - place)
    ]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), LAST), st.floats(allow_nan=False, allow_infinity=False), TEXT, NASTY)


@st.composite
def rows(draw, values):
    names = draw(st.lists(NAMES, min_size=2, max_size=4, unique=True))
    return draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, values)), min_size=1, max_size=6))


def values_of(form, data, **options):
    return [json.loads(value) for _, value, *_ in read(form, data, as_records=False, **options)]


@pytest.mark.parametrize("form", ["jsonl", "json"])
@QUICK
@given(
    made=rows(
        st.recursive(st.one_of(SCALARS, st.integers()), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5)
    )
)
def test_rows_of_json_keep_their_text(form, made):
    texts = [json.dumps(row, ensure_ascii=False, indent=None if form == "jsonl" else 1) for row in made]
    data = ("\n\n".join(texts) if form == "jsonl" else "[" + ",\n".join(texts) + "]").encode()
    assert [value.decode() for _, value, *_ in read(form, data, as_records=False)] == texts


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
@pytest.mark.parametrize("form", SEPARATED)
@QUICK
@given(made=rows(st.one_of(TEXT, NASTY)), quoted=st.booleans())
def test_rows_of_separated_fields_become_json(form, end, made, quoted):
    mark, names = SEPARATED[form], list(made[0])

    def cell(text):
        plain = not quoted and not any(c in text for c in f'"\r\n{mark}\ufeff')
        return text if plain else '"' + text.replace('"', '""') + '"'

    data = "".join(mark.join(map(cell, line)) + end for line in [names, *([row[name] for name in names] for row in made)])
    assert values_of(form, data.encode()) == made
    assert [row[:1] for row in read(form, data.encode(), as_records=False, key=names[0])] == [(row[names[0]].encode(),) for row in made]


@QUICK
@given(made=rows(st.one_of(st.none(), TEXT)))
def test_rows_of_columns_become_json(made):
    table = pa.Table.from_pylist(made, schema=pa.schema([(name, pa.string()) for name in made[0]]))
    for form in ("parquet", "arrow"):
        assert values_of(form, columns(form, table)) == made


def columns(form, table):
    file = io.BytesIO()
    if form == "parquet":
        pq.write_table(table, file, row_group_size=2)
    else:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    return file.getvalue()


@QUICK
@given(
    made=st.lists(
        st.tuples(st.integers(-(2**63), LAST), st.floats(allow_nan=False, allow_infinity=False), st.one_of(st.none(), TEXT), st.binary(max_size=9)),
        min_size=1,
        max_size=6,
    )
)
def test_rows_of_avro_become_json(made):
    fastavro = pytest.importorskip("fastavro")
    fields = [{"name": "n", "type": "long"}, {"name": "d", "type": "double"}, {"name": "s", "type": ["null", "string"]}, {"name": "b", "type": "bytes"}]
    file = io.BytesIO()
    fastavro.writer(file, {"type": "record", "name": "R", "fields": fields}, [dict(zip("ndsb", row, strict=True)) for row in made])
    found = values_of("avro", file.getvalue())
    assert [(row["n"], row["s"]) for row in found] == [(n, s) for n, _, s, _ in made]
    assert all(math.isclose(row["d"], d, rel_tol=0) for row, (_, d, _, _) in zip(found, made, strict=True))
    assert [row[1] for row in read("avro", file.getvalue(), value="b")] == [b for *_, b in made]


ALL = [(None, b"", 5), (b"", None, -2), (b"k", b"\xff\x00", LAST), (b'"', b"a,b\r\n\n", 253_402_300_800_000), (b"\r", b"\n", -62_135_596_800_001)]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_through_a_real_pipe(shell, form):
    kept = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(LAST), "message.timestamp.after.max.ms": str(LAST)}
    sent = [row for row in ALL if form != "csv" or row[1] != b"\xff\x00"]
    for name in ("d", "copy"):
        with fl.Broker(shell.folder / name, create=True) as broker:
            broker.create_topic("t", config=kept)
            if name == "d":
                with fl.Producer(broker) as producer:
                    keys, values, times = zip(*sent, strict=True)
                    producer.send_arrow(
                        "t", pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), "timestamp": pa.array(times, pa.int64())})
                    )
    done = shell.bash(f"fletchlog consume d t -f {form} | fletchlog produce copy t")
    assert done.returncode == 0, done.stderr
    with fl.Broker(shell.folder / "copy", read_only=True) as broker:
        table = broker.scan("t", timestamp_unit="ms").to_pyarrow()
    found = zip(table["key"].to_pylist(), table["value"].to_pylist(), table["timestamp"].cast(pa.int64()).to_pylist(), strict=True)
    assert list(found) == sent


def test_base64_is_what_consume_writes(schema):
    data = written("jsonl", [batch_of(schema, [(b"\xff", b"\xfe", 1, [("h", b"\xfd")], 0)])])
    row = json.loads(data)
    assert (base64.b64decode(row["keyBase64"]), base64.b64decode(row["valueBase64"])) == (b"\xff", b"\xfe")
