"""Object stores (S3, Google Cloud Storage, Azure, HDFS) through `pyarrow.fs`: what the engine reads logs from, and what an export writes to.

A store is named by a URI, `s3://bucket/prefix`. Without options pyarrow finds credentials and endpoint where the SDK of the store finds them, e.g. in
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL` and `~/.aws`. `storage_options` are the keyword arguments of pyarrow's file system.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Mapping

# scheme -> class of pyarrow.fs, for stores that take options
_CLASSES = {
    "s3": "S3FileSystem",
    "s3a": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
    "hdfs": "HadoopFileSystem",
}
_NUMBERS = {"request_timeout": float, "connect_timeout": float, "load_frequency": int, "port": int, "replication": int, "buffer_size": int}
# Options whose values are shown nowhere.
_SECRETS = re.compile("key|secret|token|password|sas|proxy", re.IGNORECASE)
# Objects whose handles are kept: each saves the request that opens it.
_HANDLES = 64
_REFUSED = re.compile(
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|InvalidToken|HTTP status 40[13]"
    "|AuthenticationFailed|AuthorizationFailure"
)
_UNREACHABLE = re.compile("NETWORK_CONNECTION|curlCode|Couldn't resolve|Connection refused|timed out", re.IGNORECASE)


def is_uri(path: str) -> bool:
    """Whether it is `SCHEME://...`."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path) is not None


def shown(uri: str) -> str:
    """The URI without user, password and parameters."""
    scheme, _, rest = uri.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    # the container of abfs://container@account stands where others have a user
    if not scheme.lower().startswith("abfs"):
        host = host.rpartition("@")[2]
    else:
        user, at, account = host.rpartition("@")
        host = user.partition(":")[0] + at + account
    return f"{scheme}://{host}{slash}{path}".rstrip("/")


class _Opened(NamedTuple):
    file: Any
    version: tuple[Any, ...]


class Store:
    """The objects below one URI. For any number of threads.

    Args:
        uri: What `pyarrow.fs.FileSystem.from_uri` takes, `s3a://` too.
        options: Keyword arguments of pyarrow's file system of that scheme, as text where that is handier. None or empty: those of the URI and the
            environment.

    Raises:
        fletchlog.errors.InvalidArgumentError: pyarrow is missing, or does not take the URI or an option.
    """

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None) -> None:
        self.place = shown(uri)
        """The URI without secrets."""
        self._secrets = [str(value) for name, value in (options or {}).items() if value and _SECRETS.search(name)]
        user = urlsplit(uri).netloc.rpartition("@")[0] if not uri.lower().startswith("abfs") else ""
        self._secrets += [part for part in user.split(":") if part]
        try:
            self.filesystem, self.base = _filesystem(uri, dict(options or {}))
        except ImportError as error:
            raise InvalidArgumentError(f"object stores are read through pyarrow, which cannot be imported ({error}): pip install 'fletchlog[arrow]'") from None
        except InvalidArgumentError:
            raise
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            raise InvalidArgumentError(f"{self.place}: {self._clean(str(error))}") from None
        self._lock = threading.Lock()
        self._handles: dict[str, _Opened] = {}

    def __repr__(self) -> str:
        return f"<fletchlog.stores.Store {self.place}>"

    def list(self, *, may_be_empty: bool = False) -> list[tuple[str, int, int]]:
        """Every object: name below the URI, bytes, time of the last change in ms since 1970. One request for a thousand objects.

        Raises:
            OSError: There is nothing, or the store refuses or does not answer; the text says what to do.
        """
        from pyarrow.fs import FileSelector, FileType

        try:
            found = self.filesystem.get_file_info(FileSelector(self.base, recursive=True, allow_not_found=may_be_empty))
        except OSError as error:
            raise self.explained(error) from None
        start = len(self.base.rstrip("/")) + 1
        objects = [(info.path[start:], info.size, (info.mtime_ns or 0) // 1_000_000) for info in found if info.type == FileType.File]
        if not objects and not may_be_empty:
            raise self._nothing()
        return objects

    def read(self, key: str, size: int, position: int, length: int) -> bytes:
        """Bytes of an object that was listed with this size. The store is asked once more whether it is still the same object.

        Raises:
            OSError: As for `list`. FileNotFoundError: it was deleted or has changed.
        """
        try:
            opened = self._opened(key)
            if opened.version[0] != size:
                raise self._changed()
            read: bytes = opened.file.read_at(length, position)
            # what one request gives is of one object
            if length < size and self._open(key).version != opened.version:
                raise self._changed()
        except OSError as error:
            self._handles.pop(key, None)
            raise (error if isinstance(error, _ChangedError) else self._failed(error, key)) from None
        return read

    def _opened(self, key: str) -> _Opened:
        with self._lock:
            known = self._handles.get(key)
        if known is None:
            known = self._open(key)
            with self._lock:
                while len(self._handles) >= _HANDLES:
                    del self._handles[next(iter(self._handles))]
                self._handles[key] = known
        return known

    def _open(self, key: str) -> _Opened:
        path = f"{self.base.rstrip('/')}/{key}"
        file = self.filesystem.open_input_file(path)
        size = file.size()
        tag = (file.metadata() or {}).get("ETag")
        # a file system without tags has times
        return _Opened(file, (size, tag if tag is not None else self.filesystem.get_file_info(path).mtime_ns))

    def _failed(self, error: OSError, key: str) -> OSError:
        """Why a read failed: S3's answer to a read of a deleted object does not say that it is not there."""
        try:
            self._open(key)
        except FileNotFoundError:
            return self._changed()
        except OSError:
            pass
        return self.explained(error)

    def _changed(self) -> OSError:
        return _ChangedError("the object was deleted or has changed since the store was opened; open it again")

    def _nothing(self) -> OSError:
        return FileNotFoundError("there is no object with this prefix; check bucket and prefix, and see whether the export has been made")

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(unquote(secret), "***")
        return text

    def explained(self, error: OSError) -> OSError:
        """The same error in words that say what to do, without secrets."""
        text = self._clean(str(error))
        if "NO_SUCH_BUCKET" in text or "NoSuchBucket" in text:
            return FileNotFoundError(f"there is no such bucket; check its name, the region and the endpoint ({text})")
        if isinstance(error, FileNotFoundError):
            return self._nothing()
        if _REFUSED.search(text):
            return PermissionError(f"the store refused access; check the credentials in storage_options or in the environment, and what they may read ({text})")
        if _UNREACHABLE.search(text):
            return ConnectionError(f"the store does not answer; check the endpoint in storage_options or in AWS_ENDPOINT_URL, and the network ({text})")
        return OSError(text)


class _ChangedError(FileNotFoundError):
    """Not the object that was listed."""


def _filesystem(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The file system of pyarrow and the path in it."""
    from pyarrow import fs

    scheme = uri.partition("://")[0].lower()
    uri = scheme.replace("s3a", "s3") + uri[len(scheme) :]
    if not options:
        filesystem, path = fs.FileSystem.from_uri(uri)
        return filesystem, path.rstrip("/")
    if scheme not in _CLASSES:
        raise InvalidArgumentError(f"{shown(uri)}: storage_options are for {', '.join(_CLASSES)}")
    parts = urlsplit(uri)
    user, _, host = parts.netloc.rpartition("@")
    path = unquote(parts.path).strip("/")
    if scheme == "hdfs":
        options = {"host": parts.hostname or "default", "port": parts.port or 0, **options}
        path = "/" + path
    elif scheme.startswith("abfs") and user:
        options = {"account_name": host.partition(".")[0], **options}
        path = f"{user}/{path}"
    else:
        path = f"{host}/{path}"
    if scheme.startswith("s3") and not options.keys() & {"region", "endpoint_override"}:
        options["region"] = fs.resolve_s3_region(host)
    return getattr(fs, _CLASSES[scheme])(**{name: _value(name, value) for name, value in options.items()}), path.rstrip("/")


def _value(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return _NUMBERS[name](value) if name in _NUMBERS else value
