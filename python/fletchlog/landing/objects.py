"""The files of a Parquet table on an object store: no rename, no lock, but a put on a condition.

```text
TABLE/_fletchlog/manifest.json   replaced only if it is the object that was read (If-Match), made only if there is none
                                 (If-None-Match): the commit. Of two landers one commits, the other has a conflict
TABLE/_fletchlog/staged/NUMBER-INDEX-WRITER
                                 what commit NUMBER of a lander is to publish. After the commit it is copied to its name
                                 by the store, and deleted. Once commit NUMBER is there, others of this number are waste
```
"""

from __future__ import annotations

import io
import tempfile
import uuid
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from fletchlog._place import Place
from fletchlog.errors import InvalidArgumentError, StorageError, TableConflictError
from fletchlog.interop import require
from fletchlog.landing.files import FOLDER, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import BinaryIO

_STAGED = f"{FOLDER}/staged/"
# What is written stays in memory up to so many bytes before it is uploaded.
_IN_MEMORY = 64 << 20
# Options of deltalake that are those of the HTTP client for obstore.
_OF_HTTP = ("allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "timeout", "user_agent")
# A store that does not answer is an error after so long.
_RETRIES = {"max_retries": 5, "retry_timeout": timedelta(seconds=30)}


class Objects:
    """See the module, and `Files`.

    Args:
        uri: `s3://BUCKET/PREFIX`, `gs://..`, `abfs://..`.
        options: Those of the store, by the names that deltalake has for them.

    Raises:
        fletchlog.errors.InvalidArgumentError: A store that obstore does not know, or an option.
        ImportError: obstore is missing.
    """

    def __init__(self, uri: str, options: Mapping[str, Any] | None) -> None:
        self.place, self.writer = str(Place(uri)), f"-{uuid.uuid4().hex}"
        self._store: Any = _opened(uri, self.place, options)
        self._obstore: Any = require("obstore", "tables")
        # the version of the manifest that was read
        self._version: dict[str, Any] | None = None

    def open(self) -> None:
        """As `Files.open`."""
        if not self.exists(MANIFEST):
            self._check_conditions()

    def _check_conditions(self) -> None:
        """Whether the store minds the condition of a put: some that speak S3 ignore it."""
        path = f"{FOLDER}/condition{self.writer}"
        refused, minds = self._obstore.exceptions, False
        with self._explained(path):
            try:
                self._obstore.put(self._store, path, b"1", mode="create", use_multipart=False)
                self._obstore.put(self._store, path, b"2", mode="create", use_multipart=False)
            except refused.AlreadyExistsError:
                minds = True
            except (refused.NotSupportedError, NotImplementedError):
                pass
        self.remove(path)
        if not minds:
            raise InvalidArgumentError(
                f"the table {self.place}: its store has no put on a condition (If-None-Match), so a commit of a Parquet table could not be atomic. Give "
                "format='delta' (--format delta) with a catalog or a lock that deltalake knows for it, or a directory of this machine"
            )

    def close(self) -> None:
        """As `Files.close`."""

    def exist(self) -> bool:
        """As `Files.exist`."""
        return next(self._listed(""), None) is not None

    def read(self) -> bytes | None:
        """As `Files.read`."""
        with self._explained(MANIFEST):
            try:
                found = self._obstore.get(self._store, MANIFEST)
            except FileNotFoundError:
                self._version = None
                return None
            self._version = {name: found.meta[name] for name in ("e_tag", "version") if found.meta.get(name) is not None}
            return bytes(found.bytes())

    def commit(self, manifest: bytes) -> None:
        """As `Files.commit`."""
        with self._explained(MANIFEST):
            refused = self._obstore.exceptions
            try:
                made = self._obstore.put(self._store, MANIFEST, manifest, mode=self._version or "create", use_multipart=False)
            except (refused.AlreadyExistsError, refused.PreconditionError, FileNotFoundError) as error:
                # a put whose response was lost is sent again, and finds itself
                if self.read() != manifest:
                    raise TableConflictError(f"the table {self.place}: another lander has committed meanwhile") from error
                return
        self._version = {name: made[name] for name in ("e_tag", "version") if made.get(name) is not None}

    def stage(self, name: str, fill: Callable[[BinaryIO], object]) -> int:
        """As `Files.stage`."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
            fill(file)  # type: ignore[arg-type]
            size = file.tell()
            file.seek(0)
            with self._explained(_STAGED + name):
                self._obstore.put(self._store, _STAGED + name, file)
        return size

    def staged(self) -> set[str]:
        """As `Files.staged`."""
        return {path.removeprefix(_STAGED) for path in self._listed(_STAGED)}

    def publish(self, names: Iterable[tuple[str, str]]) -> None:
        """As `Files.publish`."""
        for staged, path in names:
            # what is missing was copied before
            with self._explained(path), suppress(FileNotFoundError):
                self._obstore.copy(self._store, _STAGED + staged, path)
                self._obstore.delete(self._store, _STAGED + staged)

    def unstage(self, name: str) -> None:
        """As `Files.unstage`."""
        self.remove(_STAGED + name)

    def remove(self, path: str) -> None:
        """As `Files.remove`."""
        with self._explained(path), suppress(FileNotFoundError):
            self._obstore.delete(self._store, path)

    def exists(self, path: str) -> bool:
        """As `Files.exists`."""
        with self._explained(path):
            try:
                self._obstore.head(self._store, path)
            except FileNotFoundError:
                return False
        return True

    def visible(self) -> Iterator[str]:
        """As `Files.visible`."""
        return (path for path in self._listed("") if path.endswith(".parquet") and not path.startswith(f"{FOLDER}/"))

    def source(self, path: str) -> Any:
        """As `Files.source`: the whole object, in memory."""
        with self._explained(path):
            return io.BytesIO(bytes(self._obstore.get(self._store, path).bytes()))

    def _listed(self, prefix: str) -> Iterator[str]:
        with self._explained(prefix):
            for chunk in self._obstore.list(self._store, prefix or None):
                yield from (one["path"] for one in chunk)

    @contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        """Failures of the store as errors of fletchlog."""
        try:
            yield
        except (self._obstore.exceptions.BaseError, FileNotFoundError) as error:
            reason = str(error).partition("\n")[0].strip()
            raise StorageError(f"{self.place}/{path}: the store cannot be read or written: {reason:.300}") from error


def format_at(uri: str, options: Mapping[str, Any] | None) -> Literal["parquet", "delta"] | None:
    """Which format is at a place; None: neither, or a place that only deltalake can open."""
    try:
        found = Objects(uri, options)
        if found.exists(MANIFEST):
            return "parquet"
        return "delta" if next(found._listed("_delta_log/"), None) is not None else None  # noqa: SLF001 - of this module
    except (ImportError, InvalidArgumentError, StorageError):
        return None


def _opened(uri: str, place: str, options: Mapping[str, Any] | None) -> Any:
    """Obstore's store at a prefix. deltalake's options have no case, and those of its HTTP client are among them."""
    obstore = require("obstore.store", "tables")
    client: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, value in (options or {}).items():
        word = name.lower()
        plain = word.removeprefix("aws_").removeprefix("azure_").removeprefix("google_")
        if plain in _OF_HTTP:
            client[plain] = value
        else:
            config[word] = value
    try:
        return obstore.from_url(uri, config=config or None, client_options=client or None, retry_config=_RETRIES)
    except BaseException as error:
        # obstore panics at some options
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = str(error).partition("\n")[0].strip()
        raise InvalidArgumentError(
            f"the table {place}: no Parquet table can be there: {reason:.200}. It needs a store with a put on a condition (S3, Google Cloud Storage, Azure); "
            "table_options has its options"
        ) from error
