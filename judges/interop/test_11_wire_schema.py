"""Part 11: our tables of messages, and of what coordinators write, field by field, are the definitions inside Kafka's own jars."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import kafka

ROOT = Path(__file__).resolve().parents[2]
RELEASE = "4.4.0"
PART = "11 wire schema"

Json = dict[str, Any]


# where Kafka defines what is inside of records, and inside of JoinGroup and SyncGroup
JARS_OF_VALUES = ("kafka-group-coordinator", "kafka-share-coordinator", "kafka-transaction-coordinator", "kafka-clients")
VALUES = r"\w+(Key|Value)|ConsumerProtocol(Subscription|Assignment)"
# groups of Kafka Streams are not served; offsets of before 2.0 have one table for all versions here; this value is never read
NOT_OURS = r"Streams\w+|LegacyOffsetCommit\w+|ConsumerGroupPartitionMetadataValue"
# null is read as well, where Kafka has none
READ_NULL = [
    "GroupMetadataValue.members",
    "GroupMetadataValue.members.subscription",
    "GroupMetadataValue.members.assignment",
    "TransactionLogValue.transaction_partitions.partition_ids",
]


def definitions(jars: tuple[str, ...], names: str) -> dict[str, Json]:
    """Kafka's definitions with such names; their JSON has comments."""
    found = {}
    for artifact in jars:
        jar = kafka.jars(artifact, RELEASE) / f"{artifact}-{RELEASE}.jar"
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(rf"common/message/({names})\.json", name):
                    parsed = json.loads(re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE))
                    found[parsed["name"]] = parsed
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, Json]:
    return definitions(("kafka-clients",), r"\w+(Request|Response)")


@pytest.fixture(scope="module")
def tables() -> tuple[list[Json], list[Json]]:
    """Ours of messages, and of values."""
    command = ["cargo", "run", "--quiet", "--locked", "-p", "fletchlog-protocol", "--example", "wire_schema"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    messages, values = map(json.loads, done.stdout.splitlines())
    return messages, values


@pytest.fixture(scope="module")
def ours(tables: tuple[list[Json], list[Json]]) -> list[Json]:
    return tables[0]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def span(text: str | None) -> tuple[int, int] | None:
    """Versions as numbers: `3` and `3-3` are the same."""
    if text in {None, "none"}:
        return None
    low, _, high = str(text).removesuffix("+").partition("-")
    return int(low), 32767 if str(text).endswith("+") else int(high or low)


def default(kind: str, text: object) -> object:
    """A default as a value; none is the zero of the type."""
    if str(text) == "null":
        return None
    if kind == "bool":
        return str(text).lower() == "true"
    if re.fullmatch(r"u?int\d+", kind):
        return int(str(text).replace(" ", "") or "0", 0)
    return str(text)


def row(field: Json) -> Json:
    """What both have of a field, in one form."""
    kind = field["type"]
    nullable = span(field.get("nullableVersions"))
    # Kafka reads and writes records as nullable, and null is their default, whatever the definition says
    missing = "null" if kind == "records" else ""
    return {
        "name": snake(field["name"]),
        "type": kind,
        "versions": span(field.get("versions", field.get("taggedVersions"))),
        "nullable": nullable,
        "tag": field.get("tag"),
        "tagged": span(field.get("taggedVersions")),
        "default": default(kind, field.get("default", missing)),
        "ignorable": str(field.get("ignorable", False)).lower() == "true",
    }


def rows(fields: list[Json], structs: dict[str, list[Json]], place: str) -> list[tuple[str, Json]]:
    """All fields with their paths, in the order of the wire; structs that several fields share are written out."""
    found = []
    for field in fields:
        inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"), [])
        path = f"{place}.{snake(field['name'])}"
        found += [(path, row(field)), *rows(inner, structs, path)]
    return found


def compare(ours: Json, theirs: Json) -> list[str]:
    """Differences between a table and a definition."""
    found = []
    for key in ["name", "apiKey", "type"]:
        if ours[key] != theirs[key]:
            found.append(f"{ours['name']}: {key} is {ours[key]}, Kafka's {theirs[key]}")
    for key in ["validVersions", "flexibleVersions"]:
        if span(ours[key]) != span(theirs[key]):
            found.append(f"{ours['name']}: {key} is {ours[key]}, Kafka's {theirs[key]}")
    shared = {struct["name"]: struct["fields"] for struct in theirs.get("commonStructs", [])}
    mine, real = rows(ours["fields"], {}, ours["name"]), rows(theirs["fields"], shared, theirs["name"])
    if [path for path, _ in mine] != [path for path, _ in real]:
        found.append(f"{ours['name']}: fields are {[path for path, _ in mine]}, Kafka's {[path for path, _ in real]}")
    found += [f"{path}: {mine_row}, Kafka's {real_row}" for (path, mine_row), (_, real_row) in zip(mine, real, strict=False) if mine_row != real_row]
    return found


def test_every_table_is_kafkas_definition(ours: list[Json], theirs: dict[str, Json], count: Callable[..., None]) -> None:
    differences = [difference for table in ours for difference in compare(table, theirs[table["name"]])]
    assert not differences, "\n".join(differences)
    fields = sum(len(rows(table["fields"], {}, "")) for table in ours)
    count(PART, messages=len(ours), fields=fields)
    assert len(ours) >= 100
    assert fields > 800


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "other"), ("type", "int8"), ("versions", "1-2"), ("nullableVersions", "5+"), ("default", "9"), ("ignorable", True), ("tag", 3)],
)
def test_a_changed_field_is_found(ours: list[Json], theirs: dict[str, Json], key: str, value: object) -> None:
    """The comparison sees each property: of `MetadataRequest.topics.name`, changed here."""
    table = json.loads(json.dumps(next(table for table in ours if table["name"] == "MetadataRequest")))
    changed = next(field for field in table["fields"][0]["fields"] if field["name"] == "name")
    changed[key] = value
    assert compare(table, theirs["MetadataRequest"])


def per_version(table: Json, versions: range, first: int = 0) -> dict[tuple[int, str], Json]:
    """The rows of each version and path that exist, in the order of the wire. `first`: what is added to the versions of the table."""
    shared = {struct["name"]: struct["fields"] for struct in table.get("commonStructs", [])}
    found = {}
    for version in versions:
        absent: list[str] = []
        for path, field in rows(table["fields"], shared, table["name"]):
            low, high = field["versions"]
            if not low + first <= version <= high + first or any(path.startswith(f"{struct}.") for struct in absent):
                absent.append(path)
                continue
            low, high = field["nullable"] or (1, 0)
            found[version, path] = {
                # ours has no type of its own for bytes that may be null
                "type": field["type"].replace("records", "bytes"),
                "tag": field["tag"],
                "nullable": path in READ_NULL or low + first <= version <= high + first,
                "default": None if field["default"] in ("None", "") else field["default"],
            }
    return found


def value_differences(ours: Json, theirs: Json) -> list[str]:
    """Differences between a table of a key or value, and a definition. In the bytes the version of a key is its type."""
    first = theirs["apiKey"] if theirs["type"] == "coordinator-key" else 0
    low, high = span(theirs["validVersions"]) or (0, 0)
    versions = range(low + first, high + first + 1)
    mine, real = per_version(ours, versions), per_version(theirs, versions, first)
    found = [f"{place}: {mine.get(place)}, Kafka's {real.get(place)}" for place in sorted({*mine, *real}) if mine.get(place) != real.get(place)]
    order = [[place for place, field in of.items() if field["tag"] is None] for of in (mine, real)]
    if order[0] != order[1]:
        found.append(f"{ours['name']}: the fields are {order[0]}, Kafka's {order[1]}")
    if span(ours["flexibleVersions"]) != span(theirs["flexibleVersions"]):
        found.append(f"{ours['name']}: flexible {ours['flexibleVersions']}, Kafka's {theirs['flexibleVersions']}")
    return found


@pytest.fixture(scope="module")
def real_values() -> dict[str, Json]:
    found = definitions(JARS_OF_VALUES, VALUES)
    return {name: definition for name, definition in found.items() if not re.fullmatch(NOT_OURS, name)}


def test_every_key_and_value_is_kafkas_definition(tables: tuple[list[Json], list[Json]], real_values: dict[str, Json], count: Callable[..., None]) -> None:
    ours = {table["name"]: table for table in tables[1]}
    assert set(ours) == set(real_values)
    differences = [difference for name, table in ours.items() for difference in value_differences(table, real_values[name])]
    assert not differences, "\n".join(differences)
    count(PART, values=len(ours))
    assert len(ours) >= 35


@pytest.mark.parametrize(("key", "value"), [("name", "other"), ("type", "int8"), ("versions", "1"), ("nullableVersions", "0+"), ("default", "9"), ("tag", 3)])
def test_a_changed_field_of_a_value_is_found(tables: tuple[list[Json], list[Json]], real_values: dict[str, Json], key: str, value: object) -> None:
    """Of `ShareSnapshotValue.start_offset`."""
    table = json.loads(json.dumps(next(table for table in tables[1] if table["name"] == "ShareSnapshotValue")))
    changed = next(field for field in table["fields"] if field["name"] == "start_offset")
    changed[key] = value
    assert value_differences(table, real_values["ShareSnapshotValue"])
