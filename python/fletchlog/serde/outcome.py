"""What every deserializer returns, and the search for the rows that cannot be decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fletchlog.interop import require

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

Reasons = dict[int, str]
"""Row number -> why its value cannot be decoded."""


class Deserializer(Protocol):
    """Anything with these two can be given to `deserialize`."""

    @property
    def type(self) -> pa.DataType | None:
        """Arrow type of the result; None if it depends on the values."""

    def decode(self, column: pa.BinaryArray) -> tuple[pa.Array, Reasons]:
        """Decodes one value per row. A null stays null; a row with a reason is null in the result."""


def arrow() -> Any:
    """The module pyarrow."""
    return require("pyarrow", "serde")


def by_halves(rows: int, arrow_type: pa.DataType, attempt: Callable[[int, int], pa.Array], reasons: Reasons) -> pa.Array:
    """Decodes rows [0, rows) with as few calls of `attempt(start, stop)` as possible.

    `attempt` raises if any of its rows cannot be decoded; then each half is tried alone, down to single rows, which become null
    and get a reason. So one bad row costs about log2(rows) calls more, and every good row is kept.
    """
    pa = arrow()
    parts: list[Any] = []

    def decode(start: int, stop: int) -> None:
        try:
            parts.append(attempt(start, stop))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if stop - start <= 1:
                parts.append(pa.nulls(stop - start, arrow_type))
                reasons.setdefault(start, str(error))
                return
            middle = (start + stop) // 2
            decode(start, middle)
            decode(middle, stop)

    decode(0, rows)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
