"""The same calls on a cluster."""

import fletchlog as fl

with fl.Broker.in_memory() as anywhere, anywhere.listen() as kafka, fl.Cluster(f"kafka://{kafka.bootstrap}") as cluster:
    cluster.create_topic("t", partitions=2, exist_ok=True)
    cluster.create_topic("t", partitions=2, exist_ok=True)
    with fl.Producer(cluster) as producer:
        producer.send("t", b"v", partition=1)
    print(cluster.topics(), cluster.end_offsets([("t", 1)])["t", 1])
    print(len(cluster.nodes), cluster.controller in cluster.nodes, cluster.cluster_id is not None)
# -> ['t'] 1
# -> 1 True True
