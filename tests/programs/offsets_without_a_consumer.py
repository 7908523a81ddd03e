"""Where a topic begins and ends, and where an hour begins."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        for number in range(5):
            producer.send("t", b"v", timestamp_ms=1000 * number)
    print(broker.beginning_offsets([("t", 0)]), broker.end_offsets([("t", 0)])["t", 0])
    print(broker.offsets_for_times({("t", 0): 2500})["t", 0].offset)
# -> {TopicPartition(topic='t', partition=0): 0} 5
# -> 3
