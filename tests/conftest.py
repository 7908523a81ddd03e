"""Fixtures for every folder. One folder per promise; a test's name is the promise."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import fletchlog as fl
from tests.support import spark_session
from tests.support.spark_session import spark  # noqa: F401 - a fixture: one session for every folder

hypothesis.settings.register_profile("search", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.register_profile("repeatable", hypothesis.settings.get_profile("search"), derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "search"))
spark_session.settle()
# A shell starts a background job (`&`) with SIGINT ignored, and every process that a test starts would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A file is one worker's, and at the end the others would wait for it: those that take half a minute or more, the longest first (`--durations`).
LONGEST = [
    "kills/test_kills.py",
    "spark/test_connect.py",
    "kills/test_spark_queries.py",
    "cli/test_demo.py",
    "cli/test_formats.py",
    "spark/test_docs.py",
    "cli/test_group.py",
    "python/test_documentation.py",
    "cli/test_arguments.py",
    "attack/test_attack.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get("/".join(item.path.parts[-2:]), len(rank)))


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    """A broker in memory with one node."""
    with fl.Broker.in_memory() as broker:
        yield broker


@pytest.fixture(scope="session")
def golden() -> Path:
    """What a real Kafka did; tests/golden/README.md explains the formats."""
    return Path(__file__).resolve().parent / "golden"
