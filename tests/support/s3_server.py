"""A process that speaks S3 on loopback: moto's server. Its access log says which requests came."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyarrow import fs

from tests.support.ports import free_port
from tests.support.store_server import StoreServer, serving

_LINE = re.compile(r'"(?:\x1b\[[0-9;]*m)*(GET|HEAD|PUT|POST|DELETE) (/\S*) HTTP/[\d.]+(?:\x1b\[[0-9;]*m)*" (\d+)')


class S3Server(StoreServer):
    """A running server."""

    scheme = "s3"

    def __init__(self, port: int, log: Path) -> None:
        super().__init__()
        self.endpoint = f"http://127.0.0.1:{port}"
        self.options = {"endpoint_override": self.endpoint, "access_key": "reader", "secret_key": "hunter2-of-the-reader", "region": "us-east-1"}
        self.secrets = [self.options["secret_key"]]
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.options["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.options["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        self.filesystem = fs.S3FileSystem(**self.options, allow_bucket_creation=True, allow_bucket_deletion=True)
        self._log = log

    def elsewhere(self, port: int) -> tuple[str, Mapping[str, Any]]:
        return self.uri("bucket-1"), {**self.options, "endpoint_override": f"http://127.0.0.1:{port}"}

    def whole_reads(self) -> int:
        return sum((method, status) == ("GET", "200") and path.endswith(".log") for method, path, status in _LINE.findall(self._log.read_text()))

    def seen(self) -> list[tuple[str, str]]:
        """Method and path of every request until now."""
        return [(method, path) for method, path, _ in _LINE.findall(self._log.read_text())]

    @contextmanager
    def counted(self) -> Iterator[Counter[str]]:
        """Counts the requests of the block by method; `LIST` is a listing."""
        counts: Counter[str] = Counter()
        before = len(self.seen())
        yield counts
        for method, path in self.seen()[before:]:
            counts["LIST" if "list-type=" in path else method] += 1


@contextmanager
def running(folder: Path, **environment: str) -> Iterator[S3Server]:
    """Starts the server, and ends it."""
    program = shutil.which("moto_server", path=str(Path(sys.executable).parent))
    assert program is not None, "moto_server is missing: make build installs it"
    port, log = free_port(), folder / "moto.log"
    with serving([program, "-H", "127.0.0.1", "-p", str(port)], port, log, **environment):
        yield S3Server(port, log)
