"""Why poll returned records in this order."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

explanation = fl.explain.polls("data/", ["orders"], {"max.poll.records": 3}, polls=2)
print(len(explanation.story.polls) - 1, "orders-0" in explanation.text())
# -> 2 True
