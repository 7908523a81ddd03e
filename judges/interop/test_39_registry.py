"""Part 39: clients of schema registries in Go, by their own tests, against a registry of fletchlog.

confluent-kafka-go's test of its client takes the address of a registry, and runs as it is. Those of franz-go are written for its fake: they are taken out
of the module as the Go module proxy has it, and `srfake/registry.go` gives the names that they use. Those that are not in `TESTS` want what the fake alone does:
GUIDs by its own rule, texts of messages, responses without fields that Confluent's registry has, permanent deletion without a soft one before, 409 where
Confluent's code is 42206, no registration under a subject that was deleted softly.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog._http import HttpServer, Request, Response

from . import kafka
from .test_16_wire_languages import SOURCES, require
from .test_37_control import passed

PART = "39 schema registry"
MODULE = "github.com/twmb/franz-go/pkg/sr@v1.8.0"
CONFLUENT = "github.com/confluentinc/confluent-kafka-go/v2@v2.11.1"
TESTS = (SOURCES / "srfake" / "tests.txt").read_text().split()


class Factory:
    """Opens a registry over a fresh broker for each request: an `Application`."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def respond(self, _request: Request) -> Response:
        """The URL of a registry."""
        broker = self._stack.enter_context(fl.Broker.in_memory())
        return Response(200, self._stack.enter_context(broker.schema_registry()).url.encode(), "text/plain")

    def refuse(self, status: int, message: str) -> Response:
        """No request."""
        return Response(status, message.encode(), "text/plain")


def fetched(module: str, name: str, folder: str) -> Path:
    """A directory with a copy of a module of the Go module proxy."""
    require("go", "Go 1.24 or newer")
    target = kafka.CACHE / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    passed(["go", "mod", "init", "fetched"], target)
    source = Path(json.loads(passed(["go", "mod", "download", "-json", module], target))["Dir"])
    shutil.copytree(source, target / folder, copy_function=shutil.copyfile)
    return target


@pytest.mark.timeout(600)
def test_confluents_client_in_go(count: Callable[..., None]) -> None:
    module = fetched(CONFLUENT, "confluent-go-tests", "client") / "client"
    with fl.Broker.in_memory() as broker, broker.schema_registry() as registry:
        (module / "kafka" / "testconf.json").write_text(json.dumps({"SchemaRegistryURL": registry.url}))
        command = ["go", "test", "-count=1", "-v", "-mod=mod", "-run", "TestClient", "./schemaregistry/"]
        done = subprocess.run(command, cwd=module, env=os.environ | {"CGO_ENABLED": "0"}, capture_output=True, text=True, timeout=550, check=False)
        assert "--- PASS: TestClient" in done.stdout, (done.stdout[-4000:], done.stderr[-2000:])
        # it used this registry, not its mock
        assert len(broker.scan("_schemas").to_pyarrow()) > 20
    count(PART, tests_of_confluent=1)


@pytest.mark.timeout(300)
def test_franz_gos_client_of_registries(count: Callable[..., None]) -> None:
    target = fetched(MODULE, "sr-tests", "sr")
    for source in (target / "sr" / "srfake").glob("*.go"):
        if not source.name.endswith("_test.go"):
            source.unlink()
    shutil.copy(SOURCES / "srfake" / "registry.go", target / "sr" / "srfake")
    with ExitStack() as stack, HttpServer(Factory(stack), "127.0.0.1", 0, "factory") as server:
        command = ["go", "test", "-count=1", "-v", "./srfake/"]
        done = subprocess.run(
            command, cwd=target / "sr", env=os.environ | {"FLETCHLOG_REGISTRIES": server.url}, capture_output=True, text=True, timeout=250, check=False
        )
    found = set(re.findall(r"^\s*--- PASS: (\S+)", done.stdout, re.MULTILINE))
    assert found >= set(TESTS), (sorted(set(TESTS) - found), done.stdout[-4000:], done.stderr[-2000:])
    count(PART, tests_of_franz_go=len(TESTS))
