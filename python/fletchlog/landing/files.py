"""Steps on files of a Parquet table, each of which a crash may come after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import BinaryIO


def write(path: Path, fill: Callable[[BinaryIO], object]) -> int:
    """A file with what `fill` writes, on disk. Returns its bytes."""
    with path.open("wb") as file:
        fill(file)
        file.flush()
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def rename(path: Path, name: Path) -> None:
    """Takes the place of what has this name."""
    path.replace(name)


def remove(path: Path) -> None:
    """It may have been removed before."""
    path.unlink(missing_ok=True)


def make(folder: Path) -> None:
    """A folder and those above it, durable."""
    if not folder.is_dir():
        make(folder.parent)
        folder.mkdir(exist_ok=True)
        settle(folder.parent)


def settle(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
