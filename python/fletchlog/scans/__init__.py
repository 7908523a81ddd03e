"""Topics for engines that push a query down: they ask for columns, rows and fields, and no more is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog.scans._engines import to_daft, to_ray
from fletchlog.scans._plan import TopicScan, plan
from fletchlog.scans._polars import scan_topic
from fletchlog.scans._ranges import Range

if TYPE_CHECKING:
    from fletchlog.scans._dataset import TopicDataset, TopicScanner, dataset

__all__ = ["Range", "TopicDataset", "TopicScan", "TopicScanner", "dataset", "plan", "scan_topic", "to_daft", "to_ray"]

# their classes are of pyarrow, which is imported when they are asked for
_HOMES = {"TopicDataset": "_dataset", "TopicScanner": "_dataset", "dataset": "_dataset"}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports what is asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        try:
            home = import_module(f"{__name__}.{_HOMES[name]}")
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "pyarrow":
                raise
            raise ImportError("pyarrow is needed for this and is not installed; pip install 'fletchlog[arrow]'", name="pyarrow") from error
        return getattr(home, name)
