"""What `configure` sets."""

import threading

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fletchlog.spark import configure

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_the_session_of_the_tests_is_configured(spark):
    names = ("spark.sql.python.filterPushdown.enabled", "spark.python.unix.domain.socket.enabled")
    assert [spark.conf.get(name) for name in names] == ["true", "true"]


@pytest.mark.parametrize("named_by", ["the builder", "the environment"])
def test_a_server_that_runs_already_is_not_asked_to_change_its_sockets(named_by, monkeypatch):
    builder = SparkSession.Builder()
    if named_by == "the builder":
        builder = builder.remote("sc://localhost")
    else:
        monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    set_there = configure(builder)._options
    assert "spark.python.unix.domain.socket.enabled" not in set_there
    assert set_there["spark.sql.python.filterPushdown.enabled"] == "true"
    assert "spark.python.unix.domain.socket.enabled" in configure(SparkSession.Builder().remote("local[2]"))._options


def test_the_first_line_of_an_error_says_what_happened(spark, read):
    shown = configure(SparkSession.builder, hide_tracebacks=True)._options
    name = next(name for name in shown if "hideTraceback" in name)
    spark.conf.set(name, shown[name])
    try:
        for ask, wanted in ((lambda: read(subscrib="t"), "unknown option subscrib"), (lambda: read(subscribe="none").count(), "has no topic none")):
            with pytest.raises(PySparkException) as caught:
                ask()
            assert wanted in str(caught.value).splitlines()[0]
            assert "Traceback" not in str(caught.value)
    finally:
        spark.conf.unset(name)


def test_a_frame_made_in_a_thread_lets_spark_find_the_format_there(spark, log, read):
    log.topic("t").append("t", 0, 3)
    found = []

    def count():
        spark.createDataFrame([], "id int")
        found.append(read(subscribe="t").count())

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    assert found == [3]
