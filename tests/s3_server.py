"""A process that speaks S3 on loopback: moto's server. Its access log says which requests came."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

_STARTS_WITHIN_S = 60
_LINE = re.compile(r'"(?:\x1b\[[0-9;]*m)*(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP')


class S3Server:
    """A running server."""

    def __init__(self, port: int, log: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.options = {"endpoint_override": self.endpoint, "access_key": "reader", "secret_key": "hunter2-of-the-reader", "region": "us-east-1"}
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.options["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        self.filesystem = fs.S3FileSystem(**self.options, allow_bucket_creation=True, allow_bucket_deletion=True)
        self._log = log
        self._numbers = itertools.count()

    def new_bucket(self) -> str:
        """An empty bucket."""
        name = f"bucket-{next(self._numbers)}"
        self.filesystem.create_dir(name)
        return name

    def upload(self, directory: Path, prefix: str) -> None:
        """Every file of a directory as it is, as `aws s3 sync` would; `prefix` has the bucket."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(directory).as_posix()}", path.read_bytes())

    def put(self, key: str, data: bytes) -> None:
        """Writes an object; `key` has the bucket."""
        with self.filesystem.open_output_stream(key) as stream:
            stream.write(data)

    def seen(self) -> list[tuple[str, str]]:
        """Method and path of every request until now."""
        return _LINE.findall(self._log.read_text())

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Counts the requests of the block by method; `LIST` is a listing."""
        counts: Counter[str] = Counter()
        before = len(self.seen())
        yield counts
        for method, path in self.seen()[before:]:
            counts["LIST" if "list-type=" in path else method] += 1


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[S3Server]:
    """Starts the server, and ends it."""
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent))
    assert program is not None, "moto_server is missing: make build installs it"
    port, log = _free_port(), folder / "moto.log"
    with log.open("w") as output:
        arguments = [program, "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(arguments, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield S3Server(port, log)
    finally:
        process.terminate()
        process.wait(30)
