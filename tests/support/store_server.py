"""What the tests of every object store need of a server on loopback."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_STARTS_WITHIN_S = 60


class StoreServer:
    """A running server, and how fletchlog and pyarrow reach it. Keys have the bucket: `bucket/prefix/name`.

    Attributes:
        scheme: Of its URIs.
        options: `storage_options`.
        secrets: Values of them that nothing may show.
        process_environment: Variables that a process needs in any case.
        environment: Variables with which `uri(key, in_environment=True)` needs no options.
        filesystem: Pyarrow's.
    """

    scheme: str
    options: Mapping[str, Any]
    secrets: Sequence[str]
    process_environment: Mapping[str, str] = {}
    environment: Mapping[str, str]
    filesystem: Any

    def __init__(self) -> None:
        self._buckets = 0

    def new_bucket(self) -> str:
        """An empty bucket."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        self.filesystem.create_dir(self.path(name))
        return name

    def uri(self, key: str, *, in_environment: bool = False) -> str:
        """The URI of a place; `in_environment`: for a process that has `environment` and no options."""
        return f"{self.scheme}://{key}"

    def elsewhere(self, port: int) -> tuple[str, Mapping[str, Any]]:
        """A URI and options for another port of this machine."""
        raise NotImplementedError

    def whole_reads(self) -> int:
        """How many segments were asked for as a whole until now, not by ranges."""
        raise NotImplementedError

    @contextmanager
    def reading_ranges(self) -> Iterator[None]:
        """Fails if the block reads whole segments."""
        before = self.whole_reads()
        yield
        assert self.whole_reads() == before

    def path(self, key: str) -> str:
        """The key as pyarrow's file system takes it."""
        return key

    def upload(self, directory: Path, prefix: str) -> None:
        """Every file of a directory as it is, as `aws s3 sync` would."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory).as_posix()}", path.read_bytes())

    def put(self, key: str, data: bytes) -> None:
        """Writes an object."""
        with self.filesystem.open_output_stream(self.path(key)) as stream:
            stream.write(data)

    def get(self, key: str) -> bytes:
        """Reads an object."""
        with self.filesystem.open_input_file(self.path(key)) as file:
            return bytes(file.read())

    def delete(self, key: str) -> None:
        """Deletes an object."""
        self.filesystem.delete_file(self.path(key))


@contextmanager
def serving(command: Sequence[str], port: int, log: Path, **environment: str) -> Iterator[None]:
    """Runs a server while the block runs, which begins when the port takes connections."""
    with log.open("w") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while True:
            assert process.poll() is None, f"{shlex.join(command)} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{shlex.join(command)} does not listen:\n{log.read_text()}"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)
