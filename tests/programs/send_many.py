"""Send a generator."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        print(producer.send_many("t", (b"%d" % number for number in range(100_000))))
    print(broker.describe_topic("t").partitions[0].high_watermark)
# -> 100000
# -> 100000
