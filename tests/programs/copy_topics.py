"""Copy topics to another place, again and again."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

for _ in range(2):
    print([(topic.topic, topic.records) for topic in fl.transfer.copy("data/", "copy/", create=True)])
# -> [('orders', 10)]
# -> [('orders', 0)]
