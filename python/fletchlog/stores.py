"""Object stores (S3, Google Cloud Storage, Azure, HDFS) through `pyarrow.fs`: what the engine reads logs from, and what an export writes to.

A store is named by a URI, `s3://bucket/prefix`. The prefix is taken as it is, as `aws s3` and Hadoop do: `#`, `%20`, blanks and umlauts are characters of
it. Only `?NAME=VALUE&..` at its end are parameters of pyarrow's, percent-encoded as in any URI. Without options pyarrow finds credentials and endpoint
where the SDK of the store finds them, e.g. in `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_ENDPOINT_URL` and `~/.aws`. `storage_options` are the
keyword arguments of pyarrow's file system.

What pyarrow's file systems differ in is in `_KINDS`; how a store says that a bucket is missing, that it refuses or that it does not answer is in `explained`.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from fletchlog._place import DIRECTORY, STORES, Place, unknown_store
from fletchlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class _Kind(NamedTuple):
    """What differs between stores.

    Attributes:
        name: Of the class of `pyarrow.fs`.
        container: What its buckets are called.
        endpoint: Where the address comes from, for messages.
        credentials: Where they come from, for messages.
    """

    name: str
    container: str
    endpoint: str
    credentials: str


_S3 = _Kind(
    "S3FileSystem",
    "bucket",
    "the region and the endpoint, in storage_options or in AWS_REGION and AWS_ENDPOINT_URL",
    "in storage_options, in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws",
)
_GOOGLE = _Kind(
    "GcsFileSystem",
    "bucket",
    "endpoint_override and scheme in storage_options, or CLOUD_STORAGE_EMULATOR_ENDPOINT",
    "access_token or anonymous in storage_options, or GOOGLE_APPLICATION_CREDENTIALS",
)
_AZURE = _Kind(
    "AzureFileSystem",
    "container",
    "the account in the URI, and blob_storage_authority in storage_options",
    "account_key or sas_token in storage_options, or AZURE_STORAGE_CONNECTION_STRING, or AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
)
_HADOOP = _Kind(
    "HadoopFileSystem",
    "directory",
    "host and port of the NameNode in the URI, or fs.defaultFS; the reason is in what Java has written to the standard error",
    "user in storage_options, or HADOOP_USER_NAME, and the permissions of the files",
)
_OTHER = _Kind("", "bucket", "the URI", "in the URI or in the environment")
_KINDS = {"s3": _S3, "s3a": _S3, "s3n": _S3, "gs": _GOOGLE, "gcs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE, "hdfs": _HADOOP}
_NUMBERS = {"request_timeout": float, "connect_timeout": float, "load_frequency": int, "port": int, "replication": int, "buffer_size": int}
# Seconds that Google's client tries again, which would otherwise be a quarter of an hour, and that Hadoop's waits for an answer, else for ever.
_PATIENCE_S = 10
_HADOOP_PATIENCE = {
    "ipc.client.rpc-timeout.ms": f"{_PATIENCE_S}000",
    "ipc.client.connect.timeout": f"{_PATIENCE_S}000",
    "ipc.client.connect.max.retries.on.timeouts": "0",
}
# Options and parameters of a URI whose values are shown nowhere. `Signature` is that of a token of Azure, whose parameters come back in another order.
_SECRETS = re.compile("key|secret|token|password|sas|proxy", re.IGNORECASE)
_SIGNATURE = re.compile(r"(?<=[?&]sig=)[^&\s]+")
# Objects whose handles are kept: each saves the request that opens it.
_HANDLES = 64
# What an object's metadata have that is another one when its content is: of S3 and Azure, and of Google.
_TAGS = ("ETag", "generation")
_MISSING = re.compile("NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound")
_REFUSED = re.compile(
    # S3
    "ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|INVALID_CLIENT_TOKEN|UNRECOGNIZED_CLIENT|EXPIRED_TOKEN|InvalidToken|HTTP status 40[13]"
    # Google
    "|PERMISSION_DENIED|UNAUTHENTICATED|OAuth2 access token"
    # Azure
    r"|Azure Error: \[\w*\] 40[13]|AuthenticationException"
)
_UNREACHABLE = re.compile(
    "NETWORK_CONNECTION|curlCode|CURL error|UNAVAILABLE|DEADLINE_EXCEEDED|Couldn't resolve|Could not resolve|Connection refused|Could not connect|timed out"
    "|Fail to get a new connection",
    re.IGNORECASE,
)
# libhdfs gives this number for any exception of Java that it does not know
_JAVA_FAILED = 255


def is_uri(path: str) -> bool:
    """Whether it names no directory of this machine but a place on an object store, or a cluster.

    Raises:
        fletchlog.errors.InvalidArgumentError: It begins as a URI and is none.
    """
    return Place(path).kind != DIRECTORY


class _Uri(NamedTuple):
    """A URI, taken apart.

    Attributes:
        scheme: In small letters.
        user: What is before an `@`: the container of Azure, else user and password.
        host: Bucket, account or host and port.
        path: As it is given, `/` before it.
        parameters: What is behind the `?`.
    """

    scheme: str
    user: str
    host: str
    path: str
    parameters: str


_PARAMETERS = re.compile(r"(.*?)(?:\?([A-Za-z_]\w*=[^&]*(?:&[A-Za-z_]\w*=[^&]*)*))?", re.DOTALL)


def _parts(uri: str) -> _Uri:
    scheme, _, rest = uri.partition("://")
    found = _PARAMETERS.fullmatch(rest)
    place, parameters = (found[1], found[2] or "") if found else (rest, "")
    authority, slash, path = place.partition("/")
    user, _, host = authority.rpartition("@")
    return _Uri(scheme.lower(), user, host, slash + path, parameters)


def shown(uri: str) -> str:
    """The URI without user, password and parameters."""
    parts = _parts(uri)
    # the container of abfs://container@account is where others have a user
    user = parts.user.partition(":")[0] + "@" if parts.scheme.startswith("abfs") and parts.user else ""
    return f"{parts.scheme}://{user}{parts.host}{parts.path.rstrip('/')}"


class _Opened(NamedTuple):
    """An object that was opened.

    Attributes:
        file: Pyarrow's.
        version: Equal as long as it is the same object.
        pinned: Whether the store gives nothing but this version.
    """

    file: Any
    version: tuple[Any, ...]
    pinned: bool


class Store:
    """The objects below one URI. For any number of threads.

    Args:
        uri: A place on a store; `s3a://` and `s3n://` are S3 too.
        options: Keyword arguments of pyarrow's file system of that scheme, as text where that is handier. None or empty: those of the URI and the
            environment.

    Raises:
        fletchlog.errors.InvalidArgumentError: pyarrow is missing, or does not take the URI or an option.
    """

    def __init__(self, uri: str, options: Mapping[str, Any] | None = None) -> None:
        uri = Place(uri).name
        self.place = shown(uri)
        """The URI without secrets."""
        self._kind = _KINDS.get(uri.partition("://")[0].lower(), _OTHER)
        given = dict(options or {}) or (_connection_string() if self._kind is _AZURE else {})
        self._secrets = _secrets(uri, given)
        self._lock = threading.Lock()
        # before the file system: what it has opened is closed before it is
        self._handles: dict[str, _Opened] = {}
        try:
            self.filesystem, self.base = _filesystem(uri, given)
        except ImportError as error:
            raise InvalidArgumentError(f"object stores are read through pyarrow, which cannot be imported ({error}): pip install 'fletchlog[arrow]'") from None
        except InvalidArgumentError:
            raise
        except (ValueError, TypeError, OSError, NotImplementedError) as error:
            raise InvalidArgumentError(f"{self.place}: {self._clean(str(error))}{_needed(self._kind, error)}") from None

    def __repr__(self) -> str:
        return f"<fletchlog.stores.Store {self.place}>"

    def list(self, *, may_be_empty: bool = False) -> list[tuple[str, int, int]]:
        """Every object: name below the URI, bytes, time of the last change in ms since 1970. One request for a thousand objects.

        Raises:
            OSError: There is nothing, or the store refuses or does not answer; the text says what to do.
        """
        from pyarrow.fs import FileSelector, FileType

        # Of a missing prefix Google's says in the words of any failure that it is missing; HDFS says of any failure that it is, if it may be.
        selected = FileSelector(self.base, recursive=True, allow_not_found=self._kind is not _HADOOP)
        try:
            with self.explaining():
                found = self.filesystem.get_file_info(selected)
        except FileNotFoundError:
            if self._kind is not _HADOOP or not may_be_empty:
                raise
            found = []
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
        import pyarrow as pa

        opened = None
        try:
            opened = self._opened(key)
            if opened.version[0] != size:
                raise self._changed()
            read: bytes = opened.file.read_at(length, position)
            # What one request gives is of one object. With Google every file that is closed costs a request for all of it: none is opened to ask.
            if length < size and not opened.pinned and self._open(key).version != opened.version:
                raise self._changed()
        except (OSError, pa.ArrowException) as error:
            self._handles.pop(key, None)
            raise (error if isinstance(error, _ChangedError) else self._failed(error, key, opened)) from None
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
        metadata = file.metadata() or {}
        tag = next((metadata[name] for name in _TAGS if name in metadata), None)
        # a file system without tags has times
        return _Opened(file, (size, tag if tag is not None else self.filesystem.get_file_info(path).mtime_ns), self._kind is _GOOGLE)

    def _failed(self, error: Exception, key: str, opened: _Opened | None) -> OSError:
        """Why a read failed: the answer to a read of a deleted object does not say everywhere that it is not there."""
        import pyarrow as pa

        try:
            if isinstance(error, FileNotFoundError) or (opened and self._open(key).version != opened.version):
                return self._changed()
        except FileNotFoundError:
            return self._changed()
        except (OSError, pa.ArrowException):
            pass
        return self.explained(error)

    def _changed(self) -> OSError:
        return _ChangedError("the object was deleted or has changed since the store was opened; open it again")

    def _nothing(self) -> OSError:
        """Whether the bucket is missing or what is in it: only S3 says so itself."""
        import pyarrow as pa
        from pyarrow.fs import FileType

        container = self.base.partition("/")[0]  # HDFS has none: its paths begin with a slash
        try:
            if container and self.filesystem.get_file_info(container).type == FileType.NotFound:
                return self._no_container(container)
        except (OSError, pa.ArrowException) as error:
            # a user that may only list what is below a prefix cannot ask for the bucket
            if _MISSING.search(str(error)):
                return self._no_container(container)
        what = self._kind.container
        return FileNotFoundError(f"there is no object with this prefix; check {what} and prefix, and see whether the export has been made")

    def _no_container(self, text: str) -> OSError:
        return FileNotFoundError(f"there is no such {self._kind.container}; check its name, and {self._kind.endpoint} ({text})")

    def _clean(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(unquote(secret), "***")
        return _SIGNATURE.sub("***", text)

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """What pyarrow raises in the block becomes what `explained` makes of it."""
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise self.explained(error) from None

    def explained(self, error: Exception) -> OSError:
        """The same error in words that say what to do, without secrets."""
        text = self._clean(str(error))
        if _MISSING.search(text):
            return self._no_container(text)
        if isinstance(error, FileNotFoundError):
            return self._nothing()
        if isinstance(error, PermissionError) or _REFUSED.search(text):
            return PermissionError(f"the store refused access; check the credentials ({self._kind.credentials}) and what they may read ({text})")
        if _UNREACHABLE.search(text) or getattr(error, "errno", None) == _JAVA_FAILED:
            return ConnectionError(f"the store does not answer; check the endpoint ({self._kind.endpoint}) and the network ({text})")
        return OSError(text)


class _ChangedError(FileNotFoundError):
    """Not the object that was listed."""


def _secrets(uri: str, options: Mapping[str, Any]) -> list[str]:
    """What must not be shown: values of options and of parameters, and what is before the host of a URI."""
    parts = _parts(uri)
    user, _, password = parts.user.partition(":")
    named = [*options.items(), *parse_qsl(parts.parameters)]
    secrets = [str(value) for name, value in named if value and _SECRETS.search(name)]
    # the user of S3 is a key; that of Azure is the container or the account, and a user without one at Google is called `anonymous`
    return secrets + [part for part in (user if parts.scheme.startswith("s3") else "", password) if part]


def _connection_string() -> dict[str, Any]:
    """Options from `AZURE_STORAGE_CONNECTION_STRING`, which tools of Azure read and pyarrow does not."""
    parts = dict(part.partition("=")[::2] for part in os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";") if part)
    names = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_token"}
    options = {names[name]: value for name, value in parts.items() if name in names}
    endpoint = urlsplit(parts.get("BlobEndpoint", ""))
    # that of a real account, which begins with its name, is what pyarrow takes anyway
    if endpoint.netloc and not endpoint.netloc.startswith(f"{parts.get('AccountName')}."):
        for service in ("blob", "dfs"):
            options |= {f"{service}_storage_authority": endpoint.netloc, f"{service}_storage_scheme": endpoint.scheme}
    return options


def _needed(kind: _Kind, error: Exception) -> str:
    if kind is not _HADOOP or not isinstance(error, OSError):
        return ""
    return (
        "; HDFS is read through libhdfs and Java: set ARROW_LIBHDFS_DIR to the directory of libhdfs.so (lib/native of Hadoop), JAVA_HOME, and CLASSPATH to "
        "what `hadoop classpath --glob` prints"
    )


def _filesystem(uri: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The file system of pyarrow and the path in it."""
    from pyarrow import fs

    parts = _parts(uri)
    kind = _KINDS.get(parts.scheme, _OTHER)
    path = parts.path.removeprefix("/").removesuffix("/")
    if (wrong := _not_taken(parts, path)) is not None:
        raise InvalidArgumentError(f"{shown(uri)}: {wrong}")
    if not options:
        patience: Mapping[str, str] = {_GOOGLE: {"retry_limit_seconds": f"{_PATIENCE_S}"}, _HADOOP: _HADOOP_PATIENCE}.get(kind, {})
        query = "&".join(
            [parts.parameters] * bool(parts.parameters) + [f"{name}={value}" for name, value in patience.items() if f"{name}=" not in parts.parameters]
        )
        user = f"{parts.user}@" if parts.user else ""
        scheme = "s3" if kind is _S3 else parts.scheme
        filesystem, found = fs.FileSystem.from_uri(f"{scheme}://{user}{parts.host}{quote(parts.path)}{'?' if query else ''}{query}")
        return filesystem, found.rstrip("/")
    if kind is _OTHER:
        raise InvalidArgumentError(f"{shown(uri)}: storage_options are for {', '.join(_KINDS)}")
    if kind is _HADOOP:
        host, _, port = parts.host.partition(":")
        options = {"host": host or "default", "port": port or 0, **options}
        options["extra_conf"] = {**_HADOOP_PATIENCE, **options.get("extra_conf", {})}
        path = "/" + path
    elif kind is _AZURE and parts.user:
        options = {"account_name": parts.host.partition(".")[0], **options}
        path = f"{parts.user}/{path}"
    else:
        path = f"{parts.host}/{path}"
    if kind is _S3 and not options.keys() & {"region", "endpoint_override"}:
        options["region"] = fs.resolve_s3_region(parts.host)
    if kind is _GOOGLE:
        options = {"retry_time_limit": _PATIENCE_S, **options}
    return getattr(fs, kind.name)(**{name: _value(name, value) for name, value in options.items()}), path.rstrip("/")


def _not_taken(parts: _Uri, path: str) -> str | None:
    """Why pyarrow would not take it, or take another place; None: it does not."""
    if parts.scheme not in STORES:
        return unknown_store()
    if re.search(r"[\s#?%\\]", parts.host):
        return "its bucket, container or host has a character that none can have"
    if any(part in {"", ".", ".."} for part in path.split("/")) and path:
        return "a name between its slashes is empty, . or .., which pyarrow does not take"
    return None


def _value(name: str, value: Any) -> Any:
    """A value as pyarrow takes it, which may be given as text; a duration is seconds."""
    if name == "retry_time_limit" and not isinstance(value, timedelta):
        return timedelta(seconds=float(value))
    if not isinstance(value, str):
        return value
    if name == "credential_token_expiration":
        return datetime.fromisoformat(value)
    if value.lower() in {"true", "false"}:
        return value.lower() == "true"
    return _NUMBERS[name](value) if name in _NUMBERS else value
