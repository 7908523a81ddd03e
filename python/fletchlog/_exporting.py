"""Copying a directory as files, to an object store or another directory, so that readers can open the copy.

```text
moment     each partition is taken as it is at one moment: its whole segments, and the
           last one up to its end
plan       `fletchlog.export` in the destination lists the files of that moment; an
           export that was stopped goes on with those that are the same
last       `fletchlog.metadata` and `meta.properties`, which say what the directory is:
           without them nothing opens it
```
A file that retention or compaction takes away meanwhile makes a new plan. Nothing of a finished copy is ever changed.
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

from fletchlog._core import Broker
from fletchlog._place import Place, refuse_within
from fletchlog.errors import DirectoryError, InvalidArgumentError, StorageError
from fletchlog.stores import Store, is_uri
from fletchlog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PLAN = "fletchlog.export"
_LAST = ("fletchlog.metadata", "meta.properties")
_CHUNK = 8 << 20
_THREADS = 4
# New plans, each because a file went away meanwhile.
_ATTEMPTS = 20


class Exported(NamedTuple):
    """What `export` has made.

    Attributes:
        destination: Where.
        partitions: The first offset and the end of each partition with a log.
        files: Files of the copy.
        bytes: Their bytes.
        reused: Bytes of those that an earlier call had written.
    """

    destination: str
    partitions: dict[TopicPartition, tuple[int, int]]
    files: int
    bytes: int
    reused: int


class _File(NamedTuple):
    """A file of the copy."""

    source: Path | None
    data: bytes
    size: int
    # equal for equal bytes: of a source its length, inode and time, else the checksum
    version: list[int]


class _Target(Protocol):
    place: str

    def list(self) -> dict[str, int]: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, chunks: Iterable[bytes]) -> None: ...
    def delete(self, name: str) -> None: ...
    def settle(self) -> None: ...


class _GoneError(Exception):
    """A file is not there any more as it was planned."""


def export(
    directory: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    topics: Iterable[str] = (),
    *,
    storage_options: Mapping[str, Any] | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> Exported:
    """Copies a directory, also beside its writer, so that `Broker(destination, read_only=True)` gives the same records.

    Each partition ends where it ended at one moment; without a writer all of them at the same. Offsets, timestamps, transactions and committed
    offsets stay. Users of SCRAM and ACLs are left out. A call that was stopped is gone on with by the same call. One at a time for a destination.

    Args:
        directory: A directory of fletchlog's or of a Kafka broker.
        destination: A URI, `s3://bucket/prefix`, or a directory. Empty, missing, or what a stopped export has left.
        topics: Names; none: all, Kafka's internal ones too.
        storage_options: Keyword arguments of pyarrow's file system, if the destination is a URI.
        on_progress: Called as `on_progress(bytes, total)` with the bytes that are in the copy; from several threads, one at a time.

    Raises:
        fletchlog.errors.UnknownTopicOrPartitionError: There is no such topic.
        fletchlog.errors.DirectoryError: The source cannot be opened, or the destination holds something else.
        fletchlog.errors.StorageError: A file cannot be read or written. What was written stays, and the next call goes on.
        fletchlog.errors.InvalidArgumentError: pyarrow does not take the URI or an option.
    """
    place = os.fspath(destination)
    if is_uri(place):
        target: _Target = _Objects(Store(place, storage_options))
    else:
        target = _Directory(Path(Place(place)))
        if storage_options:
            raise InvalidArgumentError("storage_options are for an object store, e.g. s3://BUCKET/PREFIX")
        refuse_within(place, directory, "copied")
    try:
        return _Export(target, os.fspath(directory), list(topics), on_progress or (lambda *_: None)).run()
    except OSError as error:
        raise StorageError(f"the export to {target.place} stopped: {error}; the same export goes on") from error


class _Export:
    """One export."""

    def __init__(self, target: _Target, directory: str, topics: list[str], on_progress: Callable[[int, int], object]) -> None:
        self._target = target
        self._directory = directory
        self._topics = topics
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}

    def run(self) -> Exported:
        for _ in range(_ATTEMPTS):
            there = self._target.list()
            before = self._before(there)
            if before and there.keys() & set(_LAST):
                return self._finish(before, there)
            try:
                files, partitions = self._files()
                reused = self._write(files, partitions, before, there)
            except _GoneError:
                continue
            return Exported(self._target.place, partitions, len(files), sum(file.size for file in files.values()), reused)
        raise StorageError(f"{self._directory} changes faster than it is copied; give topics one by one, or stop retention and compaction meanwhile")

    def _before(self, there: Mapping[str, int]) -> dict[str, Any]:
        """The plan that a stopped export has left."""
        if PLAN in there:
            plan: dict[str, Any] = json.loads(self._target.read(PLAN))
            return plan
        if there:
            what = "a whole directory" if there.keys() & set(_LAST) else f"{min(there)}, which is of no export"
            raise DirectoryError(f"{self._target.place} holds {what}; give an empty or a new place")
        return {}

    def _files(self) -> tuple[dict[str, _File], dict[TopicPartition, tuple[int, int]]]:
        """The files of the copy, in the order in which they are written, and what they hold."""
        with Broker(self._directory, read_only=True) as broker:
            copied, made, partitions = broker._sealed(self._topics or None)  # noqa: SLF001 - of this package
            self._ids = _topic_ids(broker, {topic for topic, *_ in partitions})
        files = {}
        for name, source, length in copied:
            try:
                status = source.stat()
            except FileNotFoundError:
                raise _GoneError from None
            size = status.st_size if length is None else length
            files[name.as_posix()] = _File(source, b"", size, [size, status.st_ino, status.st_mtime_ns])
        for name, data in made:
            files[name.as_posix()] = _File(None, data, len(data), [len(data), crc32(data)])
        return files, {TopicPartition(topic, number): (start, end) for topic, number, start, end in partitions}

    def _write(self, files: dict[str, _File], partitions: Mapping[TopicPartition, tuple[int, int]], before: Mapping[str, Any], there: Mapping[str, int]) -> int:
        """Brings the destination to the plan. Returns the bytes that were there."""
        known = before.get("files", {})
        same = {name for name, file in files.items() if known.get(name) == file.version and there.get(name) == file.size}
        plan = {
            "version": 1,
            "topics": self._topics,
            "partitions": [[*tp, *offsets] for tp, offsets in partitions.items()],
            "files": {name: file.version for name, file in files.items()},
            "last": {name: files[name].data.decode() for name in _LAST if name in files},
        }
        # Before the plan: what the plan names and is there is of the plan.
        for name in there.keys() - same - {PLAN}:
            self._target.delete(name)
        self._target.write(PLAN, [json.dumps(plan).encode()])
        reused = sum(files[name].size for name in same)
        total, done = sum(file.size for file in files.values()), reused
        self._on_progress(done, total)

        def write(name: str) -> None:
            nonlocal done
            self._target.write(name, _chunks(files[name]))
            with self._lock:
                done += files[name].size
                self._on_progress(done, total)

        self._all(write, [name for name in files if name not in same and name not in _LAST])
        self._check_topics()
        self._check(files)
        self._target.settle()
        self._finish(plan, {})
        self._on_progress(total, total)
        return reused

    def _finish(self, plan: Mapping[str, Any], there: Mapping[str, int]) -> Exported:
        """Writes what makes it a directory. From its first file on nothing else may change."""
        if plan["topics"] != self._topics:
            raise DirectoryError(f"{self._target.place} holds a copy of {', '.join(plan['topics']) or 'all topics'}; give an empty or a new place")
        for name, text in plan["last"].items():
            # one that is there has fewer bytes if it was being written: Azure and HDFS show a file that is begun
            if there.get(name) != len(text.encode()):
                self._target.write(name, [text.encode()])
        self._target.settle()
        self._target.delete(PLAN)
        partitions = {TopicPartition(topic, number): (start, end) for topic, number, start, end in plan["partitions"]}
        size = sum(version[0] for version in plan["files"].values())
        return Exported(self._target.place, partitions, len(plan["files"]), size, size)

    def _all(self, write: Callable[[str], None], names: Iterable[str]) -> None:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fletchlog-export")
        try:
            for written in [pool.submit(write, name) for name in names]:
                written.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _check_topics(self) -> None:
        """Files of a topic that was made again may have the inodes of those before.

        Raises:
            _GoneError: There is such a topic.
        """
        with Broker(self._directory, read_only=True) as broker:
            now = _topic_ids(broker, self._ids.keys() & set(broker.topics(include_internal=True)))
        if any(self._ids[topic] != topic_id for topic, topic_id in now.items()):
            raise _GoneError

    def _check(self, files: Mapping[str, _File]) -> None:
        there = self._target.list()
        for name, file in files.items():
            if name not in _LAST and there.get(name) != file.size:
                raise StorageError(f"{self._target.place}/{name} has {there.get(name)} bytes after it was written, not {file.size}; export again")


def _topic_ids(broker: Broker, topics: Iterable[str]) -> dict[str, str]:
    return {topic: broker.describe_topic(topic).topic_id for topic in topics}


def _chunks(file: _File) -> Iterator[bytes]:
    """The bytes of a file.

    Raises:
        _GoneError: It is not the file that was planned any more.
    """
    if file.source is None:
        yield file.data
        return
    try:
        opened = file.source.open("rb")
    except FileNotFoundError:
        raise _GoneError from None
    with opened:
        if os.fstat(opened.fileno()).st_ino != file.version[1]:
            raise _GoneError
        left = file.size
        while left:
            data = opened.read(min(left, _CHUNK))
            if not data:
                raise _GoneError
            left -= len(data)
            yield data


class _Objects:
    """A prefix of an object store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.place = store.place

    def _path(self, name: str) -> str:
        return f"{self._store.base}/{name}"

    def list(self) -> dict[str, int]:
        return {name: size for name, size, _ in self._store.list(may_be_empty=True)}

    def read(self, name: str) -> bytes:
        with self._store.explaining(), self._store.filesystem.open_input_file(self._path(name)) as file:
            return bytes(file.read())

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        # A stream that an error ends may leave an object of fewer bytes: it is not that of the plan.
        with self._store.explaining(), self._store.filesystem.open_output_stream(self._path(name)) as stream:
            for chunk in chunks:
                stream.write(chunk)

    def delete(self, name: str) -> None:
        with self._store.explaining():
            self._store.filesystem.delete_file(self._path(name))

    def settle(self) -> None:
        """Objects are durable when they are written."""


class _Directory:
    """A directory of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = str(root)

    def list(self) -> dict[str, int]:
        self.root.mkdir(parents=True, exist_ok=True)
        return {path.relative_to(self.root).as_posix(): path.stat().st_size for path in self.root.rglob("*") if path.is_file()}

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".exporting")
        with temporary.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def settle(self) -> None:
        """Makes the names durable."""
        for path in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
