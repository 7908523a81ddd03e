"""`serde.Avro` over generated schemas, reader schemas and values, with fastavro as the judge of both directions."""

import io
import itertools
import json

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from avro.test import test_io, test_schema
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fletchlog import serde
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.avro import UnresolvableError

pytestmark = pytest.mark.timeout(180)
CASES = settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
PRIMITIVES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "string": TEXT,
}
PROMOTIONS = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"], "bytes": ["string"]}
DEFAULTS = {"int": 7, "long": -(2**40), "double": 0.5, "string": "é", "bytes": "\u00ff", "boolean": True}


class Made:
    """A schema and a strategy for its values, in which a union has (name of the branch, value)."""

    def __init__(self, schema, values):
        self.schema, self.values = schema, values


def name_of(schema):
    """As fastavro names the branch of a union."""
    return schema["name"] if isinstance(schema, dict) and "name" in schema else schema["type"] if isinstance(schema, dict) else schema


@st.composite
def schemas(draw, names, depth=2):
    """A schema of every kind of type; each named type has a name from `names`."""
    kinds = ["primitive", "primitive", "enum", "fixed"] + (["array", "map", "record", "record", "union", "union"] if depth > 0 else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "primitive":
        word = draw(st.sampled_from(sorted(PRIMITIVES)))
        return Made(word, PRIMITIVES[word])
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, unique=True))
        return Made({"type": "enum", "name": f"ns.E{next(names)}", "symbols": symbols}, st.sampled_from(symbols))
    if kind == "fixed":
        size = draw(st.integers(0, 4))
        return Made({"type": "fixed", "name": f"ns.F{next(names)}", "size": size}, st.binary(min_size=size, max_size=size))
    if kind == "array":
        item = draw(schemas(names, depth - 1))
        return Made({"type": "array", "items": item.schema}, st.lists(item.values, max_size=3))
    if kind == "map":
        item = draw(schemas(names, depth - 1))
        return Made({"type": "map", "values": item.schema}, st.dictionaries(TEXT, item.values, max_size=3))
    parts = draw(st.lists(schemas(names, depth - 1), max_size=4))
    if kind == "record":
        fields = [{"name": f"f{number}", "type": part.schema} for number, part in enumerate(parts)]
        values = st.fixed_dictionaries({f"f{number}": part.values for number, part in enumerate(parts)})
        return Made({"type": "record", "name": f"ns.R{next(names)}", "fields": fields}, values)
    branches = {name_of(part.schema): part for part in parts if not isinstance(part.schema, list)}
    if not branches:
        return Made("long", PRIMITIVES["long"])
    values = [part.values.map(lambda value, name=name: (name, value)) for name, part in branches.items()]
    return Made([part.schema for part in branches.values()], st.one_of(values))


@st.composite
def evolved(draw, schema, names):
    """A reader's schema, by changes that Avro's resolution allows, some for some values only."""
    if isinstance(schema, list):
        # dropped branches make some values malformed
        branches = draw(st.lists(st.sampled_from(schema), min_size=1, max_size=len(schema), unique_by=name_of)) if draw(st.booleans()) else schema
        return branches[0] if len(branches) == 1 and draw(st.booleans()) else branches
    if draw(st.integers(0, 9)) == 0 and schema != "null":
        return draw(st.permutations(["null", schema]))
    if isinstance(schema, str):
        return draw(st.sampled_from(PROMOTIONS[schema])) if schema in PROMOTIONS and draw(st.booleans()) else schema
    if schema["type"] == "array":
        return schema | {"items": draw(evolved(schema["items"], names))}
    if schema["type"] == "map":
        return schema | {"values": draw(evolved(schema["values"], names))}
    if schema["type"] == "enum":
        kept = [*draw(st.lists(st.sampled_from(schema["symbols"]), min_size=1, unique=True)), "Z"]
        return schema | {"symbols": kept} | draw(st.sampled_from([{}, {"default": "Z"}]))
    if schema["type"] == "record":
        return draw(evolved_record(schema, names))
    return schema


@st.composite
def evolved_record(draw, schema, names):
    fields = []
    for field in schema["fields"]:
        change = draw(st.sampled_from(["same", "drop", "type", "type", "alias"]))
        if change == "type":
            fields.append(field | {"type": draw(evolved(field["type"], names))})
        elif change == "alias":
            fields.append(field | {"name": f"g{next(names)}", "aliases": [field["name"]]})
        elif change == "same":
            fields.append(field)
    if draw(st.booleans()):
        word = draw(st.sampled_from(sorted(DEFAULTS)))
        fields.append({"name": f"new{next(names)}", "type": word, "default": DEFAULTS[word]})
    renamed = {"name": f"other.N{next(names)}", "aliases": [schema["name"]]} if draw(st.booleans()) else {}
    return schema | {"fields": draw(st.permutations(fields))} | renamed


def written(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
    return file.getvalue()


def read(data, writer, reader=None):
    """A value by fastavro; all of the bytes."""
    file = io.BytesIO(data)
    value = fastavro.schemaless_reader(file, writer, reader)
    assert file.tell() == len(data)
    return value


def flat(value, schema):
    """A value of a column as fastavro has it: of a union the branch that is set."""
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if value is None or not branches:
            return None
        if len(branches) == 1:
            return flat(value, branches[0])
        set_ = [(branch, value[name_of(branch).rpartition(".")[2]]) for branch in branches if value[name_of(branch).rpartition(".")[2]] is not None]
        assert len(set_) == 1
        return flat(set_[0][1], set_[0][0])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [flat(item, schema["items"]) for item in value]
    if kind == "map":
        return {key: flat(item, schema["values"]) for key, item in value}
    if kind == "record":
        return {field["name"]: flat(value[field["name"]], field["type"]) for field in schema["fields"]}
    return value


def column(rows):
    return pa.array(rows, pa.binary())


@CASES
@given(st.data())
def test_a_column_is_what_fastavro_reads_and_writes(data):
    made = data.draw(schemas(itertools.count()))
    rows = data.draw(st.lists(made.values, max_size=4))
    avro, encoded = serde.Avro(json.dumps(made.schema)), [written(made.schema, row) for row in rows]
    decoded, reasons = avro.decode(column(encoded))
    assert reasons == {}
    decoded.validate(full=True)
    assert decoded.type == avro.type
    assert [flat(row, made.schema) for row in decoded.to_pylist()] == [read(one, made.schema) for one in encoded]
    if decoded.null_count == 0:
        assert avro.encode(decoded) == (column(encoded), {})


@CASES
@given(st.data())
def test_a_reader_schema_gives_what_fastavro_gives(data):
    names = itertools.count()
    made = data.draw(schemas(names, 3))
    reader = data.draw(evolved(made.schema, names))
    rows = [written(made.schema, row) for row in data.draw(st.lists(made.values, min_size=1, max_size=3))]
    judged = []
    for row in rows:
        try:
            judged.append((True, read(row, made.schema, reader)))
        except Exception:  # noqa: BLE001 - fastavro raises errors of any class
            judged.append((False, None))
    try:
        decoded, reasons = serde.Avro(made.schema, reader).decode(column(rows))
    except UnresolvableError:
        # fastavro reads an array or map without items, and a union of which another branch was written
        return
    decoded.validate(full=True)
    for number, (row, (is_read, expected)) in enumerate(zip(decoded.to_pylist(), judged, strict=True)):
        if is_read:
            assert number not in reasons
            assert deep(flat(row, reader), reader) == deep(expected, reader)


def deep(value, schema):
    """What fastavro leaves to the caller: defaults of bytes as bytes, and numbers that a float rounds."""
    if isinstance(value, float | int) and not isinstance(value, bool) and (schema == "float" or (isinstance(schema, list) and "float" in schema)):
        return float(np.float32(value))
    if isinstance(schema, list) or value is None:
        for branch in schema if isinstance(schema, list) else []:
            if isinstance(branch, dict) and type(value) is {"record": dict, "map": dict, "array": list}.get(branch["type"]):
                try:
                    return deep(value, branch)
                except (KeyError, AttributeError, TypeError):
                    continue
        return value
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "array":
        return [deep(item, schema["items"]) for item in value]
    if kind == "map":
        return {key: deep(item, schema["values"]) for key, item in value.items()}
    if kind != "record":
        return value
    made = {}
    for field in schema["fields"]:
        inner = value[field["name"]]
        text = field["type"] == "bytes" and "default" in field and isinstance(inner, str)
        made[field["name"]] = inner.encode("latin-1") if text else deep(inner, field["type"])
    return made


@CASES
@given(st.data())
def test_what_is_read_of_changed_bytes_fastavro_reads_the_same(data):
    made = data.draw(schemas(itertools.count()))
    whole = written(made.schema, data.draw(made.values))
    changed = []
    for _ in range(4):
        bytes_ = bytearray(whole)
        for _ in range(data.draw(st.integers(0, 2))):
            place = data.draw(st.integers(0, len(bytes_)))
            bytes_[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        changed.append(bytes(bytes_))
    decoded, reasons = serde.Avro(made.schema).decode(column(changed))
    decoded.validate(full=True)
    for number, (row, one) in enumerate(zip(decoded.to_pylist(), changed, strict=True)):
        if number not in reasons:
            assert repr(flat(row, made.schema)) == repr(read(one, made.schema))


@CASES
@given(st.data())
def test_confluent_reads_every_schema_of_a_column_into_the_reader_schema(data):
    names = itertools.count()
    made = data.draw(schemas(names, 2))
    writers = {number: data.draw(evolved(made.schema, names)) for number in range(3)}
    rows = data.draw(st.lists(st.tuples(st.integers(0, 3), made.values), max_size=6))
    framed = []
    for schema_id, row in rows:
        try:
            framed.append(b"\0" + schema_id.to_bytes(4, "big") + written(writers.get(schema_id, made.schema), row))
        except Exception:  # noqa: BLE001 - the value is none of that schema
            framed.append(b"\0\0\0\0\1")
    decoded, reasons = serde.Confluent(writers, reader_schema=made.schema).decode(column(framed))
    for number, one in enumerate(framed):
        schema_id, rest = int.from_bytes(one[1:5], "big"), one[5:]
        if schema_id not in writers:
            assert reasons[number] == f"schema id {schema_id} is unknown"
            continue
        try:
            single, why = serde.Avro(writers[schema_id], made.schema).decode(column([rest]))
        except UnresolvableError as error:
            single, why = pa.nulls(1), {0: str(error)}
        assert (decoded[number].as_py(), reasons.get(number)) == (single[0].as_py(), why.get(0))


def test_the_schemas_of_apaches_own_tests_are_read_or_refused_as_there():
    examples = [one for one in test_schema.EXAMPLES if hasattr(one, "valid")]
    assert len(examples) > 50
    for example in examples:
        try:
            serde.Avro(str(example))
            refusal = None
        except InvalidArgumentError as error:
            refusal = str(error)
        if refusal is not None:
            assert ("contains itself" in refusal) == example.valid, (str(example), refusal)
        else:
            assert example.valid, str(example)
    for kind, default in test_io.DEFAULT_VALUE_EXAMPLES:
        reader = {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, "default": default}]}
        decoded, reasons = serde.Avro({"type": "record", "name": "R", "fields": []}, reader).decode(column([b""]))
        assert reasons == {}
        expected = default.encode("latin-1") if isinstance(default, str) and "\xff" in default else default
        assert deep(decoded.to_pylist(maps_as_pydicts="strict")[0]["f"], kind) == deep(expected, kind)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("long", "80" * 10),
        ("long", "ff" * 9 + "02"),
        ("int", "80" * 5),
        ("int", "ffffffff1f"),
        ({"type": "array", "items": "int"}, "ffffffffffffffffff0102"),
        ({"type": "array", "items": "null"}, "ffffffffffffffffff0102"),
        ("bytes", "01"),
        ("string", "01"),
        ("bytes", "feffffffffffffffff01"),
        (["null", "int"], "01"),
        (["null", "int"], "0a"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "01"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "0a"),
    ],
)
def test_what_every_decoder_of_avro_must_reject_is_malformed(schema, data):
    # the kinds of share/test/data/binary-rejections.json in apache/avro; also where the value is skipped
    record = {"type": "record", "name": "R", "fields": [{"name": "f", "type": schema}]}
    assert list(serde.Avro(schema).decode(column([bytes.fromhex(data)]))[1]) == [0]
    assert list(serde.Avro(record).pruned([]).decode(column([bytes.fromhex(data)]))[1]) == ([] if data == "ffffffff1f" else [0])
