"""What a path or a URI names: a directory, a place on an object store, a cluster. One rule for Python and the command line; imports little."""

from __future__ import annotations

import os

from fletchlog.errors import InvalidArgumentError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

DIRECTORY, STORE, CLUSTER = "directory", "store", "cluster"
# S3's and Azure's other names are those of Hadoop's connectors
STORES = ("s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
# whose URIs need no host: the configuration has one
_WITHOUT_HOST = ("hdfs", "viewfs")


class Place(os.PathLike[str]):
    """What is named. As a path it is the name.

    Args:
        source: A path; `file:///PATH` or `file:/PATH`; `s3://BUCKET/PREFIX` and the URIs of other stores; `kafka://HOST:PORT,..`.

    Attributes:
        kind: `DIRECTORY`, `STORE` or `CLUSTER`.
        name: The path of the directory, the URI, the address.

    Raises:
        fletchlog.errors.InvalidArgumentError: It begins as a URI and is none.
    """

    __slots__ = ("kind", "name")

    def __init__(self, source: str | os.PathLike[str]) -> None:
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


def _named(text: str) -> tuple[str, str]:
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
