"""The page about object stores runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.python import test_docs
from tests.support.s3_server import S3Server


def test_every_block_of_the_page_runs(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.filesystem.create_dir("bucket")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    test_docs.run("howto/object-stores.md", {})
