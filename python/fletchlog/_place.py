"""Where records are: a directory, a place on an object store, a cluster, by name or open. One rule for Python and the command line; imports little."""

from __future__ import annotations

import contextlib
import os

from fletchlog._core import Broker, Cluster
from fletchlog.errors import DirectoryError, InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, NoReturn, TypeAlias

_EXPECTED = "expected a Broker, a Cluster, kafka://HOST:PORT, the path of a directory or the URI of an object store"
# What every function takes that reads or writes records somewhere.
Source: TypeAlias = str | os.PathLike[str] | Broker | Cluster

DIRECTORY, STORE, CLUSTER = "directory", "store", "cluster"
# S3's and Azure's other names are those of Hadoop's connectors
STORES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
# whose URIs need no host: the configuration has one
_WITHOUT_HOST = ("hdfs", "viewfs")


def unknown_store() -> str:
    """What is wrong with the URI of a store that is none of those."""
    return f"no object store that is known; there are {', '.join(STORES)}"


class Place(os.PathLike[str]):
    """What is named. As a path it is the name.

    Args:
        source: A path; `file:///PATH` or `file:/PATH`; `s3://BUCKET/PREFIX` and the URIs of other stores; `kafka://HOST:PORT,..`.

    Attributes:
        kind: `DIRECTORY`, `STORE` or `CLUSTER`.
        name: The path of the directory, the URI, the address.

    Raises:
        fletchlog.errors.InvalidArgumentError: No text and no path; it begins as a URI and is none.
    """

    __slots__ = ("kind", "name")

    def __init__(self, source: str | os.PathLike[str]) -> None:
        if not isinstance(source, str | os.PathLike):
            raise InvalidArgumentError(f"{_EXPECTED}, got {source!r}")
        self.kind, self.name = _named(os.fspath(source))

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        """The name without secrets."""
        if self.kind == STORE:
            from fletchlog.stores import shown

            return shown(self.name)
        return self.name

    def __repr__(self) -> str:
        return f"<{self.kind} {self}>"


def opened(
    source: Source,
    *,
    what: str = "source",
    read_only: bool = True,
    create: bool | None = None,
    config: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Broker | Cluster:
    """The broker or the cluster that a source names, or is. What is opened here belongs to the caller.

    Args:
        source: A path, `file:///PATH`, `s3://BUCKET/PREFIX` or another store, `kafka://HOST:PORT,..`, an open `Broker`, a `Cluster`.
        what: What the source is for the caller, for messages.
        read_only: Open a directory for reading.
        create: Make a directory that does not exist. None: it is no argument of the caller, so an error names that of `Broker`.
        config: Properties of the clients of a cluster that is given by its address.
        storage_options: Keyword arguments of pyarrow's file system.

    Raises:
        fletchlog.errors.InvalidArgumentError: No source; `config` or `storage_options` for a source that takes none.
        fletchlog.errors.KafkaError: As `Broker` raises it.
    """
    if isinstance(source, Broker | Cluster):
        if config or storage_options:
            name = "storage_options" if storage_options else "config"
            raise InvalidArgumentError(f"the {what} is open: give {name} where it is opened")
        return source
    if not isinstance(source, str | os.PathLike):
        raise InvalidArgumentError(f"the {what} is {source!r}: {_EXPECTED}")
    place = Place(source)
    if storage_options and place.kind != STORE:
        raise InvalidArgumentError(f"the {what} {place} is on no object store: storage_options are for one, e.g. s3://BUCKET/PREFIX")
    if place.kind == CLUSTER:
        return Cluster(place.name, config)
    if place.kind == STORE and (scheme := place.name.partition(":")[0]) not in STORES:
        raise InvalidArgumentError(f"the {what} {place}: {unknown_store()}; the address of a cluster is kafka://HOST:PORT, not {scheme}://")
    if config:
        raise InvalidArgumentError(f"the {what} {place} is no cluster: config has properties of the clients of one")
    if place.kind == DIRECTORY and not create:
        if meant := address_meant(place.name):
            raise InvalidArgumentError(f"the {what} {place} is no directory; the address of a cluster is {meant}")
        if (read_only or create is None) and not os.path.lexists(place.name):
            remedy = "" if read_only else f", or make it with fl.Broker({place.name!r}, create=True)"
            raise DirectoryError(f"{place}: does not exist; check the name{remedy}")
    return Broker(place.name, read_only=read_only, create=bool(create), storage_options=storage_options)


def address_meant(name: str) -> str | None:
    """`kafka://HOST:PORT`, if it looks like an address whose beginning is missing or mistyped, and no file has that name."""
    rest = name.removeprefix("kafka:").lstrip("/") if name.startswith("kafka:") else name
    host, _, port = rest.rpartition(",")[2].rpartition(":")
    return f"kafka://{rest}" if host and port.isdigit() and "/" not in host and not os.path.lexists(name) else None


@contextlib.contextmanager
def at(source: Source, **options: Any) -> Iterator[Broker | Cluster]:
    """A context of the broker or cluster that a source names, which closes at its end what was opened here. Arguments as for `opened`."""
    place = opened(source, **options)
    try:
        yield place
    finally:
        if place is not source:
            place.close()


def refuse_within(written: Any, source: Any, what: str = "read") -> None:
    """Refuses to write into the directory that is a source, or onto the file, also by way of links; other places cannot be so.

    Raises:
        fletchlog.errors.InvalidArgumentError: It would be written there.
    """
    if not all(isinstance(one, str | os.PathLike) and Place(one).kind == DIRECTORY for one in (written, source)):
        return
    from pathlib import Path

    # not Path.resolve, which raises for links that go round in a circle
    target, origin = (Path(os.path.realpath(Place(one))) for one in (written, source))
    if origin.is_dir() and target.is_relative_to(origin):
        raise InvalidArgumentError(f"{Place(written)} is in the directory that is {what}; give another place")
    if origin.is_file() and target == origin:
        raise InvalidArgumentError(f"{Place(written)} is the file that is {what}; give another name")


def _named(text: str) -> tuple[str, str]:
    if not text:
        raise InvalidArgumentError(f"the name of a place is empty; {_EXPECTED}")
    scheme, colon, rest = text.partition(":")
    # a single letter is a drive of Windows
    if not colon or len(scheme) == 1 or not scheme[:1].isalpha() or not scheme.isascii() or not all(c.isalnum() or c in "+.-" for c in scheme):
        return DIRECTORY, text
    scheme = scheme.lower()
    if scheme == "file":
        return DIRECTORY, _path(text, rest)
    if not rest.startswith("//"):
        if scheme in STORES:
            _refuse(text, f"the URI of a store begins with {scheme}:// and is no pathlib.Path; a directory of this name is ./{text}")
        if scheme == "kafka" and not rest.strip("/"):
            return CLUSTER, "kafka://"
        return DIRECTORY, text
    try:
        # what the shell hands over in another encoding than it is read in
        rest = os.fsencode(rest).decode()
    except UnicodeError:
        _refuse(text, "a URI is UTF-8")
    host = rest[2:].partition("/")[0].partition("?")[0].rpartition("@")[2]
    if scheme in STORES and not host and scheme not in _WITHOUT_HOST:
        what = "container" if scheme.startswith("abfs") else "bucket"
        _refuse(text, f"it names no {what}; give {scheme}://{what.upper()}/PREFIX")
    return CLUSTER if scheme == "kafka" else STORE, f"{scheme}:{rest}"


def _path(text: str, rest: str) -> str:
    """The path of a URI `file:`."""
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            _refuse(text, "a URI file: names no other machine; give file:///PATH")
        rest = slash + path
    if not rest.startswith("/"):
        _refuse(text, "a URI file: has the whole path, file:///PATH; a path from here is given without file:")
    if "%" not in rest:
        return rest
    from urllib.parse import unquote_to_bytes

    return os.fsdecode(unquote_to_bytes(os.fsencode(rest)))


def _refuse(text: str, reason: str) -> NoReturn:
    if "://" in text:
        from fletchlog.stores import shown

        text = shown(text)
    raise InvalidArgumentError(f"{text.encode('utf-8', 'backslashreplace').decode()}: {reason}")
