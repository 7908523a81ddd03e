"""Part 11: our tables of messages, field by field, are the message definitions inside Kafka's own jar."""

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


def definitions() -> dict[str, Json]:
    """Kafka's definitions of requests and responses by name; their JSON has comments."""
    jar = kafka.jars("kafka-clients", RELEASE) / f"kafka-clients-{RELEASE}.jar"
    found = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name):
                parsed = json.loads(re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE))
                found[parsed["name"]] = parsed
    return found


@pytest.fixture(scope="module")
def theirs() -> dict[str, Json]:
    return definitions()


@pytest.fixture(scope="module")
def ours() -> list[Json]:
    command = ["cargo", "run", "--quiet", "--locked", "-p", "fletchlog-protocol", "--example", "wire_schema"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tables: list[Json] = json.loads(done.stdout)
    return tables


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
        "versions": span(field["versions"]),
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
