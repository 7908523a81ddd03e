"""The fixtures of the tests."""

from tests.conftest import broker, golden, pytest_collection_modifyitems, spark  # noqa: F401
