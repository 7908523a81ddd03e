"""Probes of a cluster: requests to one node about one topic, and their answers in the short form of `golden/cluster-events`."""

from tests.support.batches import batch, record
from tests.support.wire_client import Closed, WireClient

NO_LEADER = {"LeaderId": -1, "LeaderEpoch": -1}
NO_END = {"Epoch": -1, "EndOffset": -1}
METADATA = {"i": "PartitionIndex", "err": "ErrorCode", "leader": "LeaderId", "epoch": "LeaderEpoch", "isr": "IsrNodes", "offline": "OfflineReplicas"}


class Refused(Exception):
    """The node takes no connection."""


class Probes:
    """A connection to each node."""

    def __init__(self, bootstrap):
        self.nodes = dict(enumerate((WireClient(address) for address in bootstrap.split(",")), start=1))
        self.ids, self.epochs = {}, {}

    def close(self):
        """Closes the connections."""
        for node in self.nodes.values():
            node.wire.drop()

    def ask(self, node, api, version, body):
        """The answer; a connection that the node has closed is opened again."""
        try:
            try:
                return self.nodes[node].ask(api, version, body)
            except Closed:
                return self.nodes[node].ask(api, version, body)
        except (Closed, ConnectionRefusedError):
            raise Refused from None

    def create(self, name, assignment, **configs):
        """A topic with these replicas; names of properties have `_` for each dot."""
        assignments = [{"PartitionIndex": p, "BrokerIds": replicas} for p, replicas in enumerate(assignment)]
        given = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
        topic = {"Name": name, "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": assignments, "Configs": given}
        (made,) = self.ask(1, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 5000, "validateOnly": False})["Topics"]
        assert made["ErrorCode"] == 0
        self.ids[name], self.epochs[name] = made["TopicId"], [0] * len(assignment)

    def write(self, node, topic, partition, acks=-1, count=1):
        """Records in one batch."""
        data = [{"Index": partition, "Records": batch([record(i, b"v") for i in range(count)]).hex()}]
        body = {"TransactionalId": None, "Acks": acks, "TimeoutMs": 1000, "TopicData": [{"TopicId": self.ids[topic], "PartitionData": data}]}
        return self.ask(node, "Produce", 13, body)

    def reassign(self, topic, partition, replicas):
        """Gives a partition other replicas."""
        topics = [{"Name": topic, "Partitions": [{"PartitionIndex": partition, "Replicas": replicas}]}]
        self.ask(1, "AlterPartitionReassignments", 0, {"TimeoutMs": 1000, "Topics": topics})

    def elect(self, topic=None, kind=0):
        """Elects leaders of the preferred kind, or of another, of all partitions or of the topic's."""
        partitions = None if topic is None else [{"Topic": topic, "Partitions": list(range(len(self.epochs[topic])))}]
        self.ask(1, "ElectLeaders", 2, {"ElectionType": kind, "TopicPartitions": partitions, "TimeoutMs": 1000})

    def probe(self, node, name, topic):
        """What a probe of the recording gives now, without the topic's name in it."""
        what, *words = name.replace("/", " /").replace(",", " ").replace("cur-1", "cur -1").split()
        what = what.partition("-")[0]
        try:
            return getattr(self, what.lower())(node, name, words, topic)
        except Refused:
            return {"conn": "refused"}

    def epoch(self, word, topic, partition):
        """`-1`, `old` and `new`, or `e0+1` and so on: from the leader epoch of the beginning."""
        if word == "-1":
            return -1
        added = {"old": 0, "oldEpoch": 0, "new": 1, "newEpoch": 1, "e0": 0}
        return self.epochs[topic][partition] + (added[word] if word in added else int(word.removeprefix("e0+")))

    def after(self, words, word, topic):
        """The epoch behind a word of the probe for each partition; -1 without that word."""
        found = words[words.index(word) + 1] if word in words else "-1"
        return [self.epoch(found, topic, partition) for partition in range(len(self.epochs[topic]))]

    def metadata(self, node, name, _, topic):
        asked = {"TopicId": self.ids[topic], "Name": None} if "by id" in name else {"TopicId": "0" * 32, "Name": topic}
        answer = self.ask(node, "Metadata", 12, {"Topics": [asked], "AllowAutoTopicCreation": False})
        brokers = sorted(b["NodeId"] for b in answer["Brokers"])
        names = METADATA | {"replicas": "ReplicaNodes"}
        return {"brokers": brokers, "topics": [{"t": t["Name"], "err": t["ErrorCode"], "p": rows(t["Partitions"], **names)} for t in answer["Topics"]]}

    def describetopicpartitions(self, node, name, _, topic):
        body = {"Topics": [{"Name": topic}], "ResponsePartitionLimit": 100, "Cursor": None}
        answer = self.ask(node, "DescribeTopicPartitions", 0, body)
        names = METADATA | {"elr": "EligibleLeaderReplicas", "lastElr": "LastKnownElr"}
        return {"topics": [{"t": t["Name"], "err": t["ErrorCode"], "p": rows(t["Partitions"], **names)} for t in answer["Topics"]]}

    def describecluster(self, node, *_):
        body = {"IncludeClusterAuthorizedOperations": False, "EndpointType": 1, "IncludeFencedBrokers": True}
        answer = self.ask(node, "DescribeCluster", 2, body)
        return {"err": answer["ErrorCode"], "brokers": sorted([b["BrokerId"], b["IsFenced"]] for b in answer["Brokers"])}

    def produce(self, node, name, _, topic):
        answer = self.write(node, topic, int(name[-1]), acks=-1 if "acks=all" in name else 1)
        found = []
        for p in answer["Responses"][0]["PartitionResponses"]:
            row = {"i": p["Index"], "err": p["ErrorCode"], "off": p["BaseOffset"]}
            found.append(hinted(row, p))
        return endpoints({"p": found}, answer)

    def fetch(self, node, _, words, topic):
        epochs = self.after(words, "cur" if "cur" in words else "epoch", topic)
        offset = int(words[words.index("off") + 1]) if "off" in words else 0
        asked = [
            {"Partition": p, "CurrentLeaderEpoch": epoch, "FetchOffset": offset, "LastFetchedEpoch": last, "PartitionMaxBytes": 1 << 20}
            for p, (epoch, last) in enumerate(zip(epochs, self.after(words, "last", topic), strict=True))
        ]
        asked_topic = {"Topic": topic, "TopicId": self.ids[topic], "Partitions": asked}
        body = {"MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 1 << 20, "SessionEpoch": -1, "Topics": [asked_topic]}
        answer = self.ask(node, "Fetch", int(words[0][1:]), body)
        found = []
        for p in in_order(answer["Responses"][0]["Partitions"], "PartitionIndex"):
            row = {"i": p["PartitionIndex"], "err": p["ErrorCode"], "hw": p["HighWatermark"]}
            if p["Records"]:
                row["rec"] = True
            if (end := p.get("DivergingEpoch", NO_END)) != NO_END:
                row["div"] = [end["Epoch"], end["EndOffset"]]
            found.append(hinted(row, p))
        return endpoints({"err": answer["ErrorCode"], "p": found}, answer)

    def listoffsets(self, node, name, words, topic):
        timestamp = int(name.removeprefix("ListOffsets").partition(" ")[0].partition("/")[0])
        epoch = words[0][1:] if words and words[0].startswith("/") else "-1"
        asked = [{"PartitionIndex": p, "CurrentLeaderEpoch": self.epoch(epoch, topic, p), "Timestamp": timestamp} for p in range(len(self.epochs[topic]))]
        body = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": asked}], "TimeoutMs": 1000}
        answer = self.ask(node, "ListOffsets", 10, body)
        return {"p": rows(answer["Topics"][0]["Partitions"], i="PartitionIndex", err="ErrorCode", epoch="LeaderEpoch", off="Offset")}

    def offsetforleaderepoch(self, node, _, words, topic):
        pairs = enumerate(zip(self.after(words, "cur", topic), self.after(words, "ask", topic), strict=True))
        asked = [{"Partition": p, "CurrentLeaderEpoch": current, "LeaderEpoch": epoch} for p, (current, epoch) in pairs]
        answer = self.ask(node, "OffsetForLeaderEpoch", 4, {"ReplicaId": -1, "Topics": [{"Topic": topic, "Partitions": asked}]})
        return {"p": rows(answer["Topics"][0]["Partitions"], key="Partition", i="Partition", err="ErrorCode", epoch="LeaderEpoch", end="EndOffset")}


def in_order(partitions, key):
    """By number."""
    return sorted(partitions, key=lambda p: p[key])


def rows(partitions, key="PartitionIndex", **names):
    """Some fields of each partition by short names."""
    return [{short: p[name] for short, name in names.items()} for p in in_order(partitions, key)]


def hinted(row, partition):
    """Adds the leader that a partition's error names."""
    if (leader := partition.get("CurrentLeader", NO_LEADER)) != NO_LEADER:
        row["cur"] = [leader["LeaderId"], leader["LeaderEpoch"]]
    return row


def endpoints(shown, answer):
    """Adds the nodes whose addresses are given."""
    if answer.get("NodeEndpoints"):
        shown["endpoints"] = sorted(e["NodeId"] for e in answer["NodeEndpoints"])
    return shown


def agrees(wanted, found):
    """Whether an answer is the recorded one, which has "n" for numbers above 0 that differ from run to run."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return wanted.keys() == found.keys() and all(agrees(wanted[key], found[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(wanted) == len(found) and all(map(agrees, wanted, found))
    return wanted == found or (wanted == "n" and isinstance(found, int) and found >= 0)
