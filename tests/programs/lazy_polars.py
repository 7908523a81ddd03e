"""The last hour with polars, without reading the rest."""

import datetime as dt

import polars as pl

import fletchlog as fl

now = dt.datetime.now(dt.UTC).replace(microsecond=0)
with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for minute in range(120):
            producer.send("orders", b"%d" % minute, timestamp_ms=now - dt.timedelta(minutes=120 - minute))

orders = fl.scan_topic("data/", "orders")
recent = orders.filter(pl.col("timestamp") >= now - dt.timedelta(hours=1))
print(recent.select(pl.len()).collect().item())
# -> 60
