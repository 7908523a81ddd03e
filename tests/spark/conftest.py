import itertools
import uuid

import pytest

import fletchlog as fl

START_MS = 1_700_000_000_000


class Log:
    """A directory that stays open for writing in this process while Spark's workers read it."""

    def __init__(self, path, nodes=1):
        self.path = str(path)
        self.broker = fl.Broker(path, create=True, nodes=nodes)
        self._numbers = itertools.count()

    def topic(self, name, partitions=1, **config):
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in config.items()}
        self.broker.create_topic(name, partitions=partitions, config=settings)
        return self

    def append(self, topic, partition, count):
        """One batch. Values are the running number; timestamps follow it, one second apart."""
        with fl.Producer(self.broker, {"acks": "all", "linger.ms": 60_000, "delivery.timeout.ms": 120_000}) as producer:
            for _ in range(count):
                number = next(self._numbers)
                value = str(number).encode()
                producer.send(topic, value=value, key=b"k", partition=partition, timestamp_ms=START_MS + 1000 * number)
        return self

    def lose(self, topic, partition, before_offset):
        """Takes records away as retention does; whole segments below the offset go."""
        self.broker.delete_records(topic, partition, before_offset)
        self.broker.run_retention()


@pytest.fixture
def log(tmp_path):
    opened = Log(tmp_path / "log")
    yield opened
    opened.broker.close()


@pytest.fixture(params=["fletchlog", pytest.param("fletchlog-columnar", marks=pytest.mark.slow)])
def source(request):
    """Both formats promise the same."""
    return request.param


@pytest.fixture
def read(spark, log, source):
    """A batch frame over the log."""

    def load(schema=None, format=source, **options):  # noqa: A002 - Spark's name
        reader = spark.read.format(format)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(path=log.path, **{name.replace("__", "."): value for name, value in options.items()}).load()

    return load


@pytest.fixture
def run(spark, log, tmp_path, source):
    """Runs a streaming query over what is there now and answers (values, progress); one checkpoint per test."""
    sink = f"sink_{uuid.uuid4().hex}"

    def start(each=None, trigger=None, checkpoint="checkpoint", format=source, **options):  # noqa: A002 - Spark's name
        stream = spark.readStream.format(format).options(path=log.path, **options).load()
        seen = []

        def collect(frame, batch):
            values = [int(row.value) for row in frame.select("value").collect()]
            if each is not None:
                each(batch, values)
            seen.extend(values)

        query = (
            stream.writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .queryName(f"{sink}_{checkpoint}")
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        query.awaitTermination()
        return seen, query.recentProgress

    return start
