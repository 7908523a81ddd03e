"""Fixtures for every folder. One folder per promise; a test's name is the promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import fletchlog as fl
from spark_session import spark  # noqa: F401 - a fixture: one session for every folder

hypothesis.settings.register_profile("default", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest begins first: a file is one worker's, and the others would wait for it at the end."""
    items.sort(key=lambda item: item.path.name != "test_kills.py")


@pytest.fixture
def broker() -> Iterator[fl.Broker]:
    """A broker in memory with one node."""
    with fl.Broker.in_memory() as broker:
        yield broker


@pytest.fixture(scope="session")
def golden() -> Path:
    """What a real Kafka did; tests/golden/README.md explains the formats."""
    return Path(__file__).resolve().parent / "golden"
