"""The program that `test_connect.py` runs: a session of Spark Connect that reads, writes and streams. It prints what it found, as JSON.

Spark Connect and the classic session of the other tests do not go together in one process.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from fletchlog.pipeline import audit
from fletchlog.spark import lag


class Client:
    """Works on one directory or cluster, which has the topics."""

    def __init__(self, spark, place, scratch):
        self.spark = spark
        self.place = place
        self.scratch = scratch

    def read(self, topic, **options):
        return self.spark.read.format("fletchlog").options(**self.place, subscribe=topic, **options).load()

    def values(self, topic):
        rows = self.read(topic, **{"kafka.isolation.level": "read_committed"}).selectExpr("cast(cast(value as string) as int) as number").collect()
        return sorted(row.number for row in rows)

    def save(self, end, topic, **options):
        frame = self.spark.range(end, numPartitions=2).selectExpr("cast(id as string) as value")
        frame.write.format("fletchlog").options(**self.place, topic=topic, **options).mode("append").save()

    def stream(self, checkpoint):
        options = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
        writer = self.spark.readStream.format("fletchlog").options(**self.place, **options).load().select("value").writeStream
        return writer.option("checkpointLocation", str(self.scratch / checkpoint)).trigger(availableNow=True)

    def streamed(self):
        query = self.stream("streamed").format("fletchlog").options(**self.place, topic="streamed").start()
        query.awaitTermination()
        return query

    def each(self):
        """Every batch is written twice; what the function does to a list stays in the server."""
        place, seen = self.place, []

        def save(frame, batch):
            seen.append(batch)
            for _ in range(2):
                sink = frame.write.format("fletchlog").options(**place, topic="each", txnAppId="each", txnVersion=str(batch))
                sink.mode("append").save()

        self.stream("each").foreachBatch(save).start().awaitTermination()
        return seen

    def error(self, **options):
        try:
            self.read(**options).count()
        except PySparkException as error:
            return str(error).splitlines()[0]
        return ""

    def run(self):
        found = {
            "count": self.read("orders").count(),
            "filtered": self.read("orders").where("partition = 1 and offset >= 30").count(),
            "option": self.error(topic="orders", subscrib="orders"),
            "topic": self.error(topic="none"),
            "audited": [row.records for row in audit(self.read("orders")).orderBy("partition").collect()],
        }
        for _ in range(2):
            self.save(50, "out", txnAppId="client", txnVersion="1")
        self.save(10, "out")
        query = self.streamed()
        behind = [lag(progress).total for progress in query.recentProgress]
        return found | {"out": self.values("out"), "behind": behind, "streamed": self.values("streamed")}

    def run_again(self):
        """When there is more."""
        self.streamed()
        found = {"streamed": self.values("streamed"), "seen": self.each(), "each": self.values("each")}
        if "path" not in self.place:
            self.save(50, "tasks", transactionPerTask="true", txnAppId="client", txnVersion="1")
            found["tasks"] = self.values("tasks")
        return found


def write_line(found):
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main():
    """Arguments: places, and the code that makes the session. Between the two parts it waits for a line."""
    places, code = sys.argv[1:]
    namespace = {}
    exec(code, namespace)
    spark = namespace["spark"]
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.execution.pyspark.udf.hideTraceback.enabled", "true")
    clients = [Client(spark, place, Path.cwd() / str(number)) for number, place in enumerate(json.loads(places))]
    write_line([namespace["count"], *(client.run() for client in clients)])
    sys.stdin.readline()
    write_line([client.run_again() for client in clients])
    spark.stop()


if __name__ == "__main__":
    main()
