"""One S3 server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3_server import S3Server, running

pytest.register_assert_rewrite("tests.support.every_store")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server that takes any credentials."""
    with running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def store(s3: S3Server) -> S3Server:
    """For the tests of every store."""
    return s3


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """An empty bucket."""
    return s3.new_bucket()
