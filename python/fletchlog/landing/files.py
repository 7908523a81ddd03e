"""The files of a Parquet table in a directory, by steps, each of which a crash may come after; and what a table needs of files, wherever they are."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Protocol

from fletchlog.errors import TableConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import Any, BinaryIO

# Where a table keeps what is no file of its readers.
FOLDER = "_fletchlog"
MANIFEST = f"{FOLDER}/manifest.json"


class Files(Protocol):
    """The files of one table. Names are relative to it, with `/`.

    Attributes:
        place: Where they are, for messages.
        writer: What names of staged files end with, so that two landers never write the same one.
    """

    place: str
    writer: str

    def open(self) -> None:
        """Makes the place ready for writing, and keeps other landers out if it can.

        Raises:
            fletchlog.errors.TableConflictError: Another lander is at work.
            fletchlog.errors.InvalidArgumentError: A commit could not be atomic here.
        """

    def close(self) -> None:
        """Releases what `open` has taken."""

    def exist(self) -> bool:
        """Whether there is anything."""

    def read(self) -> bytes | None:
        """The manifest of the last commit; None: there is none."""

    def commit(self, manifest: bytes) -> None:
        """Makes this the manifest, if it is still the one that was read. That is the commit: after a crash it is there as a whole or not at all.

        Raises:
            fletchlog.errors.TableConflictError: Another lander has committed meanwhile.
        """

    def stage(self, name: str, fill: Callable[[BinaryIO], object]) -> int:
        """Writes a file of a commit, where no reader takes it. Returns its bytes."""

    def staged(self) -> set[str]:
        """The names of what is staged."""

    def publish(self, names: Iterable[tuple[str, str]]) -> None:
        """Brings staged files to where readers find them, each under its path. One that was brought there already is left."""

    def unstage(self, name: str) -> None:
        """Removes a staged file, which may be missing."""

    def remove(self, path: str) -> None:
        """Removes a file, which may be missing."""

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""

    def visible(self) -> Iterator[str]:
        """The files that readers find, of whichever writer."""

    def source(self, path: str) -> Any:
        """A file for `pyarrow.parquet.ParquetFile`."""


class Directory:
    """Files of a directory; see `Files`. The rename of the manifest is the commit, and a lock (flock) keeps other landers out."""

    writer = ""

    def __init__(self, root: Path) -> None:
        self.place, self._root = str(root), root
        self._folder, self._staged, self._manifest = root / FOLDER, root / FOLDER / "staged", root / MANIFEST
        self._lock: int | None = None

    def open(self) -> None:
        """As `Files.open`."""
        if self._lock is not None:
            return
        make(self._staged)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise TableConflictError(f"the table {self.place} is written by another lander at this moment; wait until it ends, or stop it") from None
        self._lock = descriptor

    def close(self) -> None:
        """As `Files.close`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def exist(self) -> bool:
        """As `Files.exist`."""
        return self._root.is_dir()

    def read(self) -> bytes | None:
        """As `Files.read`."""
        try:
            return self._manifest.read_bytes()
        except FileNotFoundError:
            return None

    def commit(self, manifest: bytes) -> None:
        """As `Files.commit`; the lock keeps others from committing meanwhile."""
        settle(self._staged)
        new = self._folder / "manifest.new"
        write(new, lambda file: file.write(manifest))
        rename(new, self._manifest)
        settle(self._folder)

    def stage(self, name: str, fill: Callable[[BinaryIO], object]) -> int:
        """As `Files.stage`."""
        return write(self._staged / name, fill)

    def staged(self) -> set[str]:
        """As `Files.staged`."""
        return {path.name for path in self._staged.iterdir()}

    def publish(self, names: Iterable[tuple[str, str]]) -> None:
        """As `Files.publish`."""
        folders = set()
        for staged, path in names:
            source, target = self._staged / staged, self._root / path
            if source.exists():
                make(target.parent)
                rename(source, target)
                folders.add(target.parent)
        for folder in folders:
            settle(folder)

    def unstage(self, name: str) -> None:
        """As `Files.unstage`."""
        remove(self._staged / name)

    def remove(self, path: str) -> None:
        """As `Files.remove`."""
        remove(self._root / path)

    def exists(self, path: str) -> bool:
        """As `Files.exists`."""
        return (self._root / path).exists()

    def visible(self) -> Iterator[str]:
        """As `Files.visible`."""
        return (str(path) for path in self._root.rglob("*.parquet") if FOLDER not in path.parts)

    def source(self, path: str) -> Any:
        """As `Files.source`."""
        return self._root / path


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
