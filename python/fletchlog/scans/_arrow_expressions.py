"""pyarrow's expressions: as predicates that bound a scan, and the fields that they read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from fletchlog.interop import require
from fletchlog.scans._predicate import FLIPPED, NOTHING, And, Compare, IsIn, Or, Predicate, negated

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    import pyarrow.compute as pc

_OPERATORS = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "not_equal": "!="}
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_PART = re.compile(r"(\w+): '([^']*)'")
_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1000, "ns": 1}


class Field(NamedTuple):
    """A column, or a field of a struct: its path."""

    path: tuple[str, ...]


class Literal(NamedTuple):
    """A constant: a `pyarrow.Scalar`."""

    value: Any


class Call(NamedTuple):
    """A function of expressions; its options are a struct, or None."""

    name: str
    inputs: tuple[Node, ...]
    options: Any


Node: TypeAlias = Field | Literal | Call


def tree(expression: pc.Expression, schema: pa.Schema) -> Node | None:
    """What an expression over these columns is made of; None if it cannot be read.

    pyarrow shows no parts of an expression. They are read from its pickled form, which another release may change.
    """
    try:
        # a name with an end of a line could pass for a part
        return _tree(expression) if all(map(str.isprintable, _names(schema))) else None
    except Exception:  # noqa: BLE001 - then nothing is known of it
        return None


def _names(of: Any) -> Iterator[str]:
    """The names of columns, and of fields within them."""
    for field in of:
        yield field.name
        if field.type.num_fields and hasattr(field.type, "field"):
            yield from _names([field.type.field(at) for at in range(field.type.num_fields)])


def fields(node: Node | None) -> set[tuple[str, ...]] | None:
    """The paths of all fields that an expression reads; None if that is not known."""
    found: set[tuple[str, ...]] = set()
    left = [node]
    while left:
        part = left.pop()
        if part is None:
            return None
        if isinstance(part, Field):
            found.add(part.path)
        elif isinstance(part, Call):
            left.extend(part.inputs)
    return found


def predicate_of(node: Node | None) -> Predicate:
    """What an expression says about topic, partition, offset and timestamp; None: nothing that is understood."""
    try:
        return _of(node)
    except Exception:  # noqa: BLE001 - then the whole scan is filtered
        return None


def _of(node: Node | None) -> Predicate:
    match node:
        case Literal(value=value):
            return NOTHING if value.as_py() in (False, None) else None
        case Call(name="and" | "and_kleene", inputs=inputs):
            return And(tuple(map(_of, inputs)))
        case Call(name="or" | "or_kleene", inputs=inputs):
            return Or(tuple(map(_of, inputs)))
        case Call(name="invert", inputs=(inner,)):
            return negated(_of(inner))
        # DuckDB: an `in` that is null for a null
        case Call(name="if_else", inputs=(_, then, Literal(value=otherwise))) if not otherwise.is_valid:
            return _of(then)
        case Call(name="is_in", inputs=(Field(path=(column,)),), options=options) if column in _COLUMNS:
            return IsIn(column, tuple(_plain(column, value) for value in options["value_set"]))
        case Call(name=name, inputs=(Field(path=(column,)), Literal(value=value))) if name in _OPERATORS and column in _COLUMNS:
            return Compare(column, _OPERATORS[name], _plain(column, value))
        case Call(name=name, inputs=(Literal(value=value), Field(path=(column,)))) if name in _OPERATORS and column in _COLUMNS:
            return Compare(column, FLIPPED[_OPERATORS[name]], _plain(column, value))
    return None


def _plain(column: str, value: pa.Scalar) -> Any:
    """A value as `Compare` takes it; what it cannot compare raises."""
    if not value.is_valid or column != "timestamp":
        return value.as_py()
    if value.type.tz is None:
        raise TypeError("timestamps have a time zone")
    return value.value * _NS[value.type.unit]


def _tree(expression: pc.Expression) -> Node:
    """An expression is pickled as a file of one batch: its parts are the schema's metadata, in the order of a walk, and its constants are columns."""
    pa = require("pyarrow", "arrow")
    _, (buffer, *_) = expression.__reduce__()
    with pa.ipc.open_file(buffer) as file:
        batch = file.get_batch(0)
    # `metadata` would be a dict, which has each key once
    text = batch.schema.to_string(show_schema_metadata=True, truncate_metadata=False)
    lines = text.partition("-- schema metadata --\n")[2].splitlines()
    parts = [_PART.fullmatch(line) for line in lines]
    if not all(parts):
        raise ValueError(f"unknown parts: {lines}")
    walk = iter([(part[1], part[2]) for part in parts if part])
    made = _node(*next(walk), walk, batch)
    if next(walk, None) is not None:
        raise ValueError("more than one expression")
    return made


def _node(kind: str, value: str, walk: Iterator[tuple[str, str]], batch: pa.RecordBatch) -> Node:
    """The node that begins with this part."""
    match kind:
        case "literal":
            return Literal(batch.column(int(value))[0])
        case "field_ref":
            return Field((value,))
        case "nested_field_ref":
            path = [next(walk) for _ in range(int(value))]
            if any(one != "field_ref" for one, _ in path):
                raise ValueError(f"a path of {path}")
            return Field(tuple(name for _, name in path))
        case "call":
            inputs: list[Node] = []
            options = None
            while (part := next(walk)) != ("end", value):
                if part[0] == "options":
                    options = batch.column(int(part[1]))[0]
                else:
                    inputs.append(_node(*part, walk, batch))
            return Call(value, tuple(inputs), options)
    raise ValueError(f"a part {kind}")
