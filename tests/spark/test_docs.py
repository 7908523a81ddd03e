"""The blocks of the pages about PySpark run."""

import re

import pytest

import fletchlog as fl
from tests.python import test_docs

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.mark.slow
def test_every_block_of_the_pyspark_page_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the JVM keeps the directory that it started in, so paths are made absolute
    read = test_docs.blocks
    monkeypatch.setattr(test_docs, "blocks", lambda page: [(kind, re.sub(r'"([\w-]+/)"', rf'"{tmp_path}/\1"', text)) for kind, text in read(page)])
    test_docs.run("howto/pyspark.md", {"spark": spark})


@pytest.mark.slow
def test_the_blocks_of_the_page_about_clusters_run(spark):
    ((_, block),) = test_docs.blocks("howto/spark-on-a-cluster.md")
    with fl.Broker.in_memory() as broker, broker.listen() as kafka, fl.Producer(broker) as producer:
        for topic in ("orders", "copies"):
            broker.create_topic(topic)
        producer.send("orders", key=b"k", value=b"v").result()
        exec(re.sub(r"h1:9092(,h2:9092)?", kafka.bootstrap, block), {"spark": spark})
        assert [(row["key"], row["value"]) for row in broker.scan("copies").to_pyarrow().to_pylist()] == [(b"k", b"v")]
