"""Writes `spark_session.ARCHIVE`: the classes that a short session of Spark loads, for the JVMs of the tests (class data sharing).

`make` runs it once. A JVM that cannot write one leaves an empty file; the tests do without it.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# The process that starts the session: whatever else it has open is closed when the JVM is through.
SESSION = "import sys; from tests.support import spark_archive; spark_archive.work(sys.argv[1])"
SECONDS = 300


def work(folder):
    """What many tests do: reads, a stream with state, Arrow in a Python worker, files."""
    import fletchlog as fl
    from tests.support import spark_session

    with fl.Broker(f"{folder}/log", create=True) as broker, fl.Producer(broker) as producer:
        for topic in ("in", "out"):
            broker.create_topic(topic, partitions=2)
        for number in range(100):
            producer.send("in", key=b"k", value=b"%d" % number, partition=number % 2)
    session = spark_session.start()
    process = session.sparkContext._gateway.proc
    place = {"path": f"{folder}/log"}
    read = session.read.format("fletchlog").options(**place, subscribe="in")
    read.load().groupBy("partition").count().orderBy("partition").toPandas()
    read.load().mapInArrow(lambda batches: batches, read.load().schema).selectExpr("cast(value as string) as value").write.parquet(f"{folder}/files")
    session.read.parquet(f"{folder}/files").selectExpr("max(value)").collect()
    read.load().select("value").write.format("fletchlog").options(**place, topic="out").mode("append").save()
    stream = session.readStream.format("fletchlog").options(**place, subscribe="in", startingOffsets="earliest").load()
    counts = stream.withWatermark("timestamp", "1 day").groupBy("partition").count()
    for frame, mode, name in ((stream, "append", "rows"), (counts, "update", "counts")):
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True)
        writer.foreachBatch(lambda rows, _: rows.write.format("noop").mode("append").save()).start().awaitTermination()
    session.stop()
    process.stdin.close()
    process.wait(SECONDS)


def main(archive):
    """Through another name, so that a run that was interrupted leaves none."""
    from tests.support.spark_session import SHORT_LIVED

    new = archive.with_suffix(".new")
    archive.parent.mkdir(parents=True, exist_ok=True)
    new.unlink(missing_ok=True)
    settings = os.environ | {"SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={new} -Xlog:cds*=off", "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory(prefix="fletchlog-") as folder:
        done = subprocess.run([sys.executable, "-c", SESSION, folder], cwd=folder, env=settings, capture_output=True, text=True, check=False)
    if done.returncode or not new.exists():
        print(f"Spark's classes are not archived, so tests of Spark take longer: {done.stderr.strip()[-500:]}", file=sys.stderr)  # noqa: T201
        new.write_bytes(b"")
    new.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
