"""Servers of object stores that are no Python packages: Azurite, a Hadoop cluster in one JVM, fake-gcs-server."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyspark
from pyarrow import fs

from tests.support.ports import free_port
from tests.support.store_server import StoreServer, serving

from . import kafka

# the newest for Node.js 20
AZURITE = "3.35.0"
FAKE_GCS = "v1.54.0"
# the sources of libhdfs of Hadoop 3.3, as a crate has them
LIBHDFS = "0.3.1"
# account and key that Azurite has when none are configured; its documentation names them
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_WHOLE = re.compile(r'GET /\S*\.log\?\S*alt=media\S* HTTP/[\d.]+\\?" 200')


def _run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Fails loudly when the tool is missing or fails."""
    if shutil.which(command[0]) is None:
        message = f"make test-interop needs {command[0]} on PATH; install it, then run it again."
        raise RuntimeError(message)
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


class AzureServer(StoreServer):
    """Azurite. Its accounts have a flat namespace."""

    scheme = "abfs"

    def __init__(self, port: int, log: Path) -> None:
        super().__init__()
        endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
        connection = f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};BlobEndpoint={endpoint};"
        self.environment = {"AZURE_STORAGE_CONNECTION_STRING": connection}
        self.options = {"account_name": _ACCOUNT, "account_key": _KEY, **self._at(port)}
        self.secrets = [_KEY]
        self.filesystem = fs.AzureFileSystem(**self.options)
        self._log = log

    def _at(self, port: int) -> dict[str, str]:
        place = f"127.0.0.1:{port}"
        return {"blob_storage_authority": place, "blob_storage_scheme": "http", "dfs_storage_authority": place, "dfs_storage_scheme": "http"}

    def elsewhere(self, port: int) -> tuple[str, Mapping[str, Any]]:
        return self.uri("bucket-1"), {**self.options, **self._at(port)}

    def whole_reads(self) -> int:
        return len(re.findall(r'"GET /\S*\.log HTTP/1.1" 200 ', self._log.read_text()))


@contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """Fetches Azurite, starts its blob service, and ends it."""
    target = kafka.CACHE / f"azurite-{AZURITE}"
    program = target / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        target.mkdir(parents=True, exist_ok=True)
        _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(target), f"azurite@{AZURITE}")
    port, log = free_port(), folder / "azurite.log"
    # the clients of newer releases ask for a newer version of the protocol than it has
    options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(folder / "blobs"), "--skipApiVersionCheck", "--disableTelemetry"]
    with serving([str(program), *options], port, log):
        yield AzureServer(port, log)


class GoogleServer(StoreServer):
    """fake-gcs-server. It asks for no credentials."""

    scheme = "gs"

    def __init__(self, port: int, log: Path) -> None:
        super().__init__()
        self.endpoint = f"http://127.0.0.1:{port}"
        # a token of somebody: it is sent, and nobody looks at it
        token = {"access_token": "ya29.hunter2-of-the-reader", "credential_token_expiration": "2100-01-01T00:00:00"}
        self.options = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "retry_time_limit": "10", **token}
        self.secrets = [token["access_token"]]
        self.environment = {"CLOUD_STORAGE_EMULATOR_ENDPOINT": self.endpoint}
        place = {"endpoint_override": f"127.0.0.1:{port}", "scheme": "http", "project_id": "test"}
        self.filesystem = fs.GcsFileSystem(anonymous=True, retry_time_limit=timedelta(seconds=10), **place)
        self._log = log

    def uri(self, key: str, *, in_environment: bool = False) -> str:
        return f"gs://anonymous@{key}" if in_environment else f"gs://{key}"

    def elsewhere(self, port: int) -> tuple[str, Mapping[str, Any]]:
        return self.uri("bucket-1"), {**self.options, "endpoint_override": f"127.0.0.1:{port}"}

    def whole_reads(self) -> int:
        return len(_WHOLE.findall(self._log.read_text()))


@contextmanager
def fake_gcs(folder: Path) -> Iterator[GoogleServer]:
    """Compiles fake-gcs-server, starts it, and ends it."""
    target = kafka.CACHE / f"fake-gcs-server-{FAKE_GCS}"
    if not target.exists():
        _run("go", "install", f"github.com/fsouza/fake-gcs-server@{FAKE_GCS}", GOBIN=str(target))
    port, log = free_port(), folder / "fake-gcs.log"
    address = f"127.0.0.1:{port}"
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory", "-external-url", f"http://{address}", "-public-host", address]
    with serving([str(target / "fake-gcs-server"), *options], port, log):
        yield GoogleServer(port, log)


def libhdfs() -> Path:
    """The directory of libhdfs.so, compiled from the sources of Hadoop that the crate `hdfs-sys` carries."""
    target = kafka.CACHE / f"libhdfs-{LIBHDFS}"
    if (target / "libhdfs.so").exists():
        return target
    target.mkdir(parents=True, exist_ok=True)
    (target / "lib.rs").touch()
    (target / "Cargo.toml").write_text(
        f'[package]\nname = "libhdfs"\nversion = "0.0.0"\nedition = "2021"\n[lib]\npath = "lib.rs"\n[dependencies]\nhdfs-sys = "={LIBHDFS}"\n[workspace]\n'
    )
    packages = json.loads(_run("cargo", "metadata", "--format-version", "1", cwd=target))["packages"]
    crate = Path(next(package["manifest_path"] for package in packages if package["name"] == "hdfs-sys")).parent
    sources = crate / "libhdfs" / "hdfs_3_3"
    files = [*(sources / f"{name}.c" for name in ("exception", "jni_helper", "hdfs", "jclasses"))]
    files += [sources / "os" / "posix" / f"{name}.c" for name in ("mutexes", "thread", "thread_local_storage")]
    java = java_home()
    headers = [crate / "libhdfs", sources, sources / "include", sources / "os", sources / "os" / "posix", java / "include", java / "include" / "linux"]
    jvm = java / "lib" / "server"
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", "-fcommon", *(f"-I{path}" for path in headers), *map(str, files)]
    _run(*command, f"-L{jvm}", "-ljvm", f"-Wl,-rpath,{jvm}", "-o", str(target / "libhdfs.so"))
    return target


def java_home() -> Path:
    """The JDK of `javac`."""
    kafka.require_tools()
    return Path(os.path.realpath(str(shutil.which("javac")))).parents[1]


class HadoopServer(StoreServer):
    """A NameNode and a DataNode. The client is libhdfs with the jars of Hadoop that PySpark has; it starts a JVM in this process."""

    scheme = "hdfs"
    secrets = ()

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        self._process = process
        self._port = self._answer("PORT")
        jars = Path(pyspark.__file__).parent / "jars"
        self.process_environment = {
            "ARROW_LIBHDFS_DIR": str(libhdfs()),
            "JAVA_HOME": str(java_home()),
            "CLASSPATH": ":".join(map(str, sorted(jars.glob("*.jar")))),
            # signals stay Python's
            "LIBHDFS_OPTS": "-Xrs -Xmx256m",
        }
        self.environment = {**self.process_environment, "HADOOP_USER_NAME": getpass.getuser()}
        os.environ.update(self.process_environment)
        self.options = {"user": getpass.getuser(), "replication": "1"}
        self.filesystem = fs.HadoopFileSystem("127.0.0.1", self._port)

    def _answer(self, what: str) -> int:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(f"{what} "):
                return int(line.split()[1])
        message = f"the cluster ended with {self._process.wait()}"
        raise AssertionError(message)

    def uri(self, key: str, *, in_environment: bool = False) -> str:
        return f"hdfs://127.0.0.1:{self._port}/{key}"

    def elsewhere(self, port: int) -> tuple[str, Mapping[str, Any]]:
        return f"hdfs://127.0.0.1:{port}/bucket-1", self.options

    def path(self, key: str) -> str:
        return "/" + key.lstrip("/")

    def _bytes_read(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer("READ")

    @contextmanager
    def reading_ranges(self) -> Iterator[None]:
        before = self._bytes_read()
        yield
        read = self._bytes_read() - before
        assert 0 < read < 3 << 20, f"{read} bytes of a segment of 6 MiB"


@contextmanager
def hadoop(folder: Path) -> Iterator[HadoopServer]:
    """Fetches Hadoop, starts a cluster, and ends it."""
    command = [*kafka.JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", kafka.classpath("hdfs", [kafka.HADOOP]), "Hdfs", str(folder / "cluster")]
    with (folder / "hadoop.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    with process:
        try:
            yield HadoopServer(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
