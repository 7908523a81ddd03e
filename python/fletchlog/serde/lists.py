"""Kafka's lists of values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fletchlog import _core
from fletchlog.errors import InvalidArgumentError
from fletchlog.serde.typed import ByEngine, type_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa


@dataclass(frozen=True)
class List(ByEngine[list[Any]]):
    """Lists of values <-> list, as Kafka's ListSerializer writes them (KIP-466).

    Args:
        items: What reads and writes an item, such as `Long()`, `String()` or `Avro(schema)`; also another `List`.

    Lists may be empty, and items null. Items of `Short`, `Integer`, `Long`, `Float` and `Double` have no sizes of their own, as in Kafka; lists with them are
    read too. Bytes after the last item are ignored, as by Kafka's ListDeserializer.

    Raises:
        fletchlog.errors.InvalidArgumentError: `items` is no such object, or one whose values have no type of their own (`Json()`, `Confluent`).
    """

    items: Any

    def __post_init__(self) -> None:
        if isinstance(self.items, type) or getattr(self.items, "value_reader", None) is None:
            raise InvalidArgumentError(f"List takes an object that gives all items one type, such as Long(), String() or Json(type), got {self.items!r:.60}")

    def __getstate__(self) -> dict[str, Any]:
        return {"items": self.items}

    @property
    def _size(self) -> int | None:
        return getattr(self.items, "size", None)

    @cached_property
    def type(self) -> pa.DataType:
        """Arrow type of the result."""
        return type_of(self.value_reader)

    @cached_property
    def value_reader(self) -> _core.ValueReader:
        """What the engine reads columns with."""
        return _core.list_reader(self.items.value_reader, self._size)

    @cached_property
    def value_writer(self) -> _core.ValueWriter:
        """What the engine writes columns with."""
        writer = getattr(self.items, "value_writer", None)
        if writer is None:
            raise InvalidArgumentError(f"List reads what {self.items!r:.60} reads, and cannot write it")
        return _core.list_writer(writer, self._size)

    def pruned(self, fields: Iterable[str | Sequence[str]]) -> List:
        """The same with these fields of the items alone, see `Avro.pruned`."""
        return List(self.items.pruned(fields))
