"""What a lost acknowledgement does to a producer."""

import fletchlog as fl

for idempotent in (False, True):
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        faults = fl.testing.FaultPlan()
        faults.on(api="Produce", nth=1).lose_response()
        with fl.Producer(broker, {"enable.idempotence": idempotent, "retries": 5}, faults=faults) as producer:
            producer.send("t", b"once")
        print(fl.scan(broker, "t").to_pyarrow().num_rows)
# -> 2
# -> 1
