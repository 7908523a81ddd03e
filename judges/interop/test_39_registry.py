"""Part 39: franz-go's client of schema registries, by its own tests: they are written for its fake, and run against a registry of fletchlog.

The tests are taken out of the module as the Go module proxy has it; `srfake/registry.go` gives the names that they use. Those that are not in `TESTS` want what the fake alone does: GUIDs by
its own rule, texts of messages, responses without fields that Confluent's registry has, permanent deletion without a soft one before, 409 where Confluent's code is 42206,
no registration under a subject that was deleted softly.
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


@pytest.mark.timeout(300)
def test_franz_gos_client_of_registries(count: Callable[..., None]) -> None:
    require("go", "Go 1.24 or newer")
    target = kafka.CACHE / "sr-tests"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    passed(["go", "mod", "init", "fetched"], target)
    module = Path(json.loads(passed(["go", "mod", "download", "-json", MODULE], target))["Dir"])
    shutil.copytree(module, target / "sr", copy_function=shutil.copyfile)
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
