"""ACLs and users of SCRAM, with the same calls on a broker and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import fletchlog as fl
from fletchlog.admin import AclBinding, AclFilter

READ = AclBinding("TOPIC", "orders", "User:alice", "READ")
WRITE = AclBinding("TOPIC", "orders", "User:bob", "WRITE", "DENY", "127.0.0.1")
PREFIX = AclBinding("GROUP", "g-", "User:alice", "READ", pattern_type="PREFIXED")
ALL = [READ, WRITE, PREFIX]
Peer = fl.Broker | fl.Cluster


@pytest.fixture(params=["broker", "cluster"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    config = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}
    with fl.Broker.in_memory(config=config) as broker:
        if request.param == "broker":
            yield broker
        else:
            with broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
                yield cluster


def test_acls_are_there_until_they_are_deleted(peer: Peer) -> None:
    assert peer.describe_acls() == []
    peer.create_acls(ALL)
    peer.create_acls(READ)  # there already
    assert peer.describe_acls() == sorted(peer.describe_acls(), key=lambda acl: acl.resource_type == "GROUP")
    assert sorted(peer.describe_acls()) == sorted(ALL)
    assert {type(acl) for acl in peer.describe_acls()} == {AclBinding}
    assert peer.delete_acls(AclFilter(principal="User:bob")) == [WRITE]
    assert sorted(peer.delete_acls([AclFilter(operation="READ"), AclFilter("TOPIC")])) == sorted([READ, PREFIX])
    assert peer.describe_acls() == []
    assert peer.delete_acls(AclFilter()) == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), ALL),
        (AclFilter("TOPIC"), [READ, WRITE]),
        (AclFilter("TOPIC", "orders", operation="READ"), [READ]),
        (AclFilter(permission="DENY"), [WRITE]),
        (AclFilter(host="127.0.0.1"), [WRITE]),
        (AclFilter("GROUP", "g-7", pattern_type="MATCH"), [PREFIX]),
        (AclFilter("GROUP", "g-7"), []),
        (AclFilter(pattern_type="PREFIXED"), [PREFIX]),
    ],
)
def test_a_filter_matches_as_in_kafka(peer: Peer, wanted: AclFilter, found: list[AclBinding]) -> None:
    peer.create_acls(ALL)
    assert sorted(peer.describe_acls(wanted)) == sorted(found)


def test_what_is_no_acl_is_refused(peer: Peer) -> None:
    for wrong, error, text in [
        (READ._replace(operation="read"), fl.errors.InvalidArgumentError, "operation is `read`"),  # type: ignore[arg-type]
        (READ._replace(resource_type="ANY"), fl.errors.InvalidArgumentError, "ANY"),  # type: ignore[arg-type]
        (READ._replace(resource_name=None), fl.errors.InvalidArgumentError, "has a resource_name"),  # type: ignore[arg-type]
        (("TOPIC", "orders"), TypeError, r"expected fletchlog\.admin\.AclBinding"),
        (READ._replace(principal="alice"), fl.errors.KafkaError, "rincipal"),
    ]:
        with pytest.raises(error, match=text):
            peer.create_acls([wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"expected fletchlog\.admin\.AclFilter"):
        peer.describe_acls(("TOPIC",))  # type: ignore[arg-type]
    assert peer.describe_acls() == []


def test_an_acl_decides() -> None:
    config = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as listener:
        broker.create_topic("orders")
        address = f"kafka://{listener.bootstrap}"
        with fl.Cluster(address) as cluster:
            assert cluster.topics() == []
            broker.create_acls(AclBinding("TOPIC", "orders", "User:ANONYMOUS", "DESCRIBE"))
            assert cluster.topics() == ["orders"]
            with pytest.raises(fl.errors.KafkaError, match="not described"):
                cluster.describe_acls()


def test_without_an_authorizer_a_cluster_has_no_acls() -> None:
    with fl.Broker.in_memory() as broker, broker.listen() as listener, fl.Cluster(f"kafka://{listener.bootstrap}") as cluster:
        with pytest.raises(fl.errors.KafkaError) as caught:
            cluster.create_acls(READ)
        assert caught.value.code == 54


def test_users_have_a_password_for_each_mechanism(peer: Peer) -> None:
    peer.upsert_user_scram_credential("alice", "secret")
    peer.upsert_user_scram_credential("alice", "secret", "SCRAM-SHA-512", 8192)
    peer.upsert_user_scram_credential("bob", "secret", iterations=5000)
    assert peer.describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 8192}, "bob": {"SCRAM-SHA-256": 5000}}
    peer.delete_user_scram_credential("alice")
    assert peer.describe_user_scram_credentials() == {"alice": {"SCRAM-SHA-512": 8192}, "bob": {"SCRAM-SHA-256": 5000}}
    with pytest.raises(fl.errors.KafkaError) as caught:
        peer.delete_user_scram_credential("alice")
    assert caught.value.code == 91
    with pytest.raises(fl.errors.KafkaError) as caught:
        peer.upsert_user_scram_credential("carol", "secret", iterations=1)
    assert caught.value.code == 93
    for wrong in ({"mechanism": "PLAIN"}, {"password": ""}):
        with pytest.raises(fl.errors.InvalidArgumentError):
            peer.upsert_user_scram_credential(**{"user": "carol", "password": "secret", **wrong})  # type: ignore[arg-type]


def test_a_password_that_a_cluster_was_given_lets_its_user_in() -> None:
    with fl.Broker.in_memory() as broker, broker.listen() as open_listener, fl.Cluster(f"kafka://{open_listener.bootstrap}") as cluster:
        cluster.upsert_user_scram_credential("alice", "secret")
        guarded = {"security.protocol": "SASL_PLAINTEXT", "sasl.enabled.mechanisms": "SCRAM-SHA-256"}
        with broker.listen(config=guarded) as listener:
            login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice"}
            with fl.Cluster(f"kafka://{listener.bootstrap}", {**login, "sasl.password": "secret"}) as known:
                assert known.topics() == []
            with fl.Cluster(f"kafka://{listener.bootstrap}", {**login, "sasl.password": "wrong"}) as unknown, pytest.raises(fl.errors.KafkaError):
                unknown.topics()
