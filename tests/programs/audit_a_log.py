"""What was lost, repeated or late."""

import fletchlog as fl

with fl.Broker("data/", create=True) as broker:
    broker.create_topic("orders", partitions=2)
    with fl.Producer(broker) as producer:
        for number in range(10):
            producer.send("orders", value=b"%d" % number, partition=number % 2)

report = fl.audit.run("data/", ["orders"])
print([(part.records, part.gaps_unexplained) for part in report.partitions], report.breaches({"gaps_unexplained": 0}))
# -> [(5, 0), (5, 0)] []
