"""The blocks of the page about PySpark run."""

import re

import pytest

from python import test_docs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.mark.slow
def test_every_block_of_the_pyspark_page_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the JVM keeps the directory that it started in, so paths are made absolute
    read = test_docs.blocks
    monkeypatch.setattr(test_docs, "blocks", lambda page: [(kind, re.sub(r'"([\w-]+/)"', rf'"{tmp_path}/\1"', text)) for kind, text in read(page)])
    test_docs.run("howto/pyspark.md", {"spark": spark})
