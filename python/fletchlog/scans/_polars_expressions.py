"""polars' expressions as predicates that bound a scan."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from fletchlog.scans._predicate import FLIPPED, NOTHING, And, Compare, IsIn, Or, Predicate, negated

if TYPE_CHECKING:
    import polars as pl

_OPERATORS = {"Eq": "==", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">=", "NotEq": "!="}
_BOTH, _EITHER = ("And", "LogicalAnd"), ("Or", "LogicalOr")
_BOUNDS = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_CONSTANT = ("Literal", "BinaryExpr", "Alias", "Cast")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def predicate_of(expression: pl.Expr) -> Predicate:
    """What an expression says about topic, partition, offset and timestamp; None: nothing that is understood.

    It is read from polars' serialized form, which another release may change: what is not as expected bounds nothing.
    """
    try:
        return _of(json.loads(expression.meta.serialize(format="json")))
    except Exception:  # noqa: BLE001 - then the whole scan is filtered
        return None


def _of(node: Any) -> Predicate:
    match node:
        case {"Alias": [inner, str()]}:
            return _of(inner)
        case {"BinaryExpr": {"left": left, "op": str(op), "right": right}}:
            return _of_binary(left, op, right)
        case {"Function": {"input": [*inputs], "function": {"Boolean": function}}}:
            return _of_function(inputs, function)
        case {"Literal": _}:
            return NOTHING if _value(node) in (False, None) else None
    return None


def _of_binary(left: Any, op: str, right: Any) -> Predicate:
    if op in _BOTH:
        return And((_of(left), _of(right)))
    if op in _EITHER:
        return Or((_of(left), _of(right)))
    sign = _OPERATORS.get(op)
    if sign is None:
        return None
    if (column := _column(left)) is not None and _constant(right):
        return _comparison(column, sign, right)
    if (column := _column(right)) is not None and _constant(left):
        return _comparison(column, FLIPPED[sign], left)
    return None


def _of_function(inputs: list[Any], function: Any) -> Predicate:
    match function:
        case "AllHorizontal":
            return And(tuple(map(_of, inputs)))
        case "AnyHorizontal":
            return Or(tuple(map(_of, inputs)))
        case "Not":
            return negated(_of(inputs[0]))
        case {"IsBetween": {"closed": closed}}:
            column = _column(inputs[0])
            if column is None or not all(map(_constant, inputs[1:])):
                return None
            return And(tuple(_comparison(column, sign, bound) for sign, bound in zip(_BOUNDS[closed], inputs[1:], strict=True)))
        case {"IsIn": {"nulls_equal": False}}:
            column = _column(inputs[0])
            if column is None or not _constant(inputs[1]):
                return None
            values = [_plain(column, value) for value in _value(inputs[1])]
            return IsIn(column, tuple(values))
    return None


def _comparison(column: str, sign: str, literal: Any) -> Predicate:
    return Compare(column, sign, _plain(column, _value(literal)))


def _column(node: Any) -> str | None:
    match node:
        case {"Column": str(name)} if name in _COLUMNS:
            return name
    return None


def _constant(node: Any) -> bool:
    """Whether an expression is of literals alone."""
    if not isinstance(node, dict) or len(node) != 1 or next(iter(node)) not in _CONSTANT:
        return False
    match node:
        case {"BinaryExpr": {"left": left, "right": right}}:
            return _constant(left) and _constant(right)
        case {"Alias": [inner, _]} | {"Cast": {"expr": inner}}:
            return _constant(inner)
    return "Literal" in node


def _value(node: Any) -> Any:
    """A constant as polars computes it: a value, or a list of them."""
    import polars as pl

    made = pl.select(pl.Expr.deserialize(io.StringIO(json.dumps(node)), format="json")).to_series()
    return made.to_list()[0] if len(made) == 1 else made.to_list()


def _plain(column: str, value: Any) -> Any:
    """A value as `Compare` takes it; what it cannot compare raises."""
    if value is None or column != "timestamp":
        return value
    if value.tzinfo is None:
        raise TypeError("timestamps have a time zone")
    return (value - _EPOCH) // timedelta(microseconds=1) * 1000
