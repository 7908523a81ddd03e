"""TLS between clients of ours and a listener of ours: what works, and what is said when it does not."""

import logging
import socket
import threading
import time
from pathlib import Path

import pytest

import fletchlog as fl
from fletchlog.errors import AuthenticationError, ConfigError, SslAuthenticationError
from tests.support.certificates import Authority
from tests.support.reading import consumed

HOSTS = ("localhost", "127.0.0.1")
TOPIC = fl.TopicPartition("t", 0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Whom clients and listeners trust."""
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Whom nobody trusts."""
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign")


def ssl_listener(keystore, **more):
    """The properties of a broker whose listeners speak TLS."""
    return {"security.protocol": "SSL", "ssl.keystore.location": keystore} | {name.replace("_", "."): value for name, value in more.items()}


@pytest.fixture
def listening(authority):
    """Opens a broker with these properties and one record in topic t; its address."""
    opened = []

    def listen(config, **listener):
        broker = fl.Broker.in_memory(config=config)
        opened.append(broker)
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v").result()
        opened.append(broker.listen(**listener))
        return opened[-1].bootstrap

    yield listen
    for handle in reversed(opened):
        handle.close()


def client(address, authority, **more):
    """The properties of a client that trusts an authority."""
    trust = {"bootstrap.servers": address, "security.protocol": "SSL", "ssl.truststore.location": authority.file}
    return trust | {name.replace("_", "."): value for name, value in more.items()}


def fails(config, wanted=SslAuthenticationError):
    """What the first poll of a consumer, a producer's send and a cluster's question fail with, each within a second; the texts."""
    texts = []

    def poll():
        with fl.Consumer(config) as consumer:
            consumer.assign([TOPIC])
            consumer.poll(timeout_ms=10_000)

    def send():
        with fl.Producer(config) as producer:
            producer.send("t", value=b"v").result()

    def ask():
        fl.Cluster(config).topics()

    for call in (poll, send, ask):
        begun = time.monotonic()
        with pytest.raises(wanted) as caught:
            call()
        assert isinstance(caught.value, AuthenticationError)
        assert time.monotonic() - begun < 1.5, call.__name__
        texts.append(str(caught.value))
    assert all(config["bootstrap.servers"] in text for text in texts), texts
    return texts[0]


def test_records_go_through_tls_both_ways(listening, authority):
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0]))
    config = client(address, authority)
    large = bytes(range(256)) * 2000
    with fl.Producer(config) as producer:
        futures = [producer.send("t", value=b"%d " % i + large) for i in range(20)]
        assert futures[-1].result().offset == 20
    values = consumed(config, 21)
    assert values[0] == b"v"
    assert values[1:] == [b"%d " % i + large for i in range(20)]
    with fl.Cluster(config) as cluster:
        assert cluster.topics() == ["t"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_names_of_librdkafka_and_one_version_of_tls_will_do(listening, authority, version):
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0], ssl_enabled_protocols=version))
    config = {"bootstrap.servers": address, "security.protocol": "SSL", "ssl.ca.location": authority.file}
    assert consumed(config) == [b"v"]


def test_pem_text_may_be_in_the_properties_even_in_one_line(listening, authority):
    _, chain, key = authority.issue("broker", HOSTS)
    text = {"ssl.keystore.certificate.chain": Path(chain).read_text().replace("\n", " "), "ssl.keystore.key": Path(key).read_text()}
    address = listening({"security.protocol": "SSL"} | text)
    trusted = Path(authority.file).read_text()
    assert consumed({"bootstrap.servers": address, "security.protocol": "SSL", "ssl.truststore.certificates": trusted}) == [b"v"]


def test_a_client_shows_its_certificate_from_an_encrypted_key(listening, authority):
    auth = {"ssl_client_auth": "required", "ssl_truststore_location": authority.file}
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0], **auth))
    both, chain, key = authority.issue("alice", password="s3cret")
    assert consumed(client(address, authority, ssl_keystore_location=both, ssl_key_password="s3cret")) == [b"v"]
    assert consumed(client(address, authority, ssl_certificate_location=chain, ssl_key_location=key, ssl_key_password="s3cret")) == [b"v"]
    with pytest.raises(ConfigError, match=r"ssl.key.password") as caught:
        fl.Consumer(client(address, authority, ssl_keystore_location=both, ssl_key_password="other s3cret"))
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"encrypted: give ssl.key.password"):
        fl.Consumer(client(address, authority, ssl_keystore_location=both))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_error_of_a_client_without_a_certificate_says_that_it_needs_one(listening, authority, foreign, version):
    auth = {"ssl_client_auth": "required", "ssl_truststore_location": authority.file, "ssl_enabled_protocols": version}
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0], **auth))
    assert "give ssl.keystore.location" in fails(client(address, authority))
    stranger = foreign.issue("mallory")[0]
    assert "does not accept the certificate of this client" in fails(client(address, authority, ssl_keystore_location=stranger))
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0], **(auth | {"ssl_client_auth": "requested"})))
    assert consumed(client(address, authority)) == [b"v"]


def test_an_expired_certificate_is_named(listening, authority):
    address = listening(ssl_listener(authority.issue("broker", HOSTS, not_before=-9, not_after=-1)[0]))
    assert "has expired" in fails(client(address, authority))
    address = listening(ssl_listener(authority.issue("broker", HOSTS, not_before=3, not_after=9)[0]))
    assert "not valid yet" in fails(client(address, authority))


def test_a_foreign_authority_is_named(listening, authority, foreign):
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0]))
    assert "not trusted: name the certificate of the authority by ssl.truststore.location" in fails(client(address, foreign))


def test_a_wrong_host_name_is_named_and_the_check_can_be_turned_off(listening, authority):
    address = listening(ssl_listener(authority.issue("broker", ("kafka.example", "10.1.2.3"))[0]))
    text = fails(client(address, authority))
    assert "kafka.example" in text
    assert "10.1.2.3" in text
    assert "not for `127.0.0.1`" in text
    for off in ("", "none"):
        assert consumed(client(address, authority, ssl_endpoint_identification_algorithm=off)) == [b"v"]


def test_without_the_host_name_check_the_authority_still_counts(listening, authority, foreign):
    address = listening(ssl_listener(authority.issue("broker", ("kafka.example",))[0]))
    assert "not trusted" in fails(client(address, foreign, ssl_endpoint_identification_algorithm=""))


def test_the_error_of_a_plaintext_client_on_a_tls_port_says_so(listening, authority, caplog):
    address = listening(ssl_listener(authority.issue("broker", HOSTS)[0]))
    with caplog.at_level(logging.WARNING, logger="fletchlog"):
        assert "security.protocol" in fails({"bootstrap.servers": address})
        end = time.monotonic() + 5
        while "does not speak TLS" not in caplog.text and time.monotonic() < end:
            time.sleep(0.01)
    assert "does not speak TLS, which this listener does" in caplog.text


def test_the_error_of_a_tls_client_on_a_plaintext_port_says_so(listening, authority):
    assert "may not speak TLS on this port" in fails(client(listening({}), authority))


def test_nonsense_instead_of_tls_is_named(authority):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve():
            while True:
                try:
                    connection = server.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.recv(10_000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        assert "does not speak TLS" in fails(client(address, authority))


def test_the_call_after_a_failure_tries_again(listening, authority, tmp_path):
    keystore = tmp_path / "broker.pem"
    keystore.write_bytes(Path(authority.issue("broker", HOSTS, not_before=-9, not_after=-1)[0]).read_bytes())
    broker = fl.Broker.in_memory(config=ssl_listener(str(keystore)))
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        producer.send("t", value=b"v").result()
    listener = broker.listen()
    host, port = listener.bootstrap.split(":")
    with (
        fl.Consumer(client(listener.bootstrap, authority, auto_offset_reset="earliest")) as consumer,
        fl.Producer(client(listener.bootstrap, authority)) as producer,
    ):
        consumer.assign([TOPIC])
        with pytest.raises(SslAuthenticationError, match="expired"):
            consumer.poll(timeout_ms=5000)
        with pytest.raises(SslAuthenticationError, match="expired"):
            producer.send("t", value=b"w").result()
        listener.close()
        keystore.write_bytes(Path(authority.issue("broker", HOSTS)[0]).read_bytes())
        with broker.listen(host, int(port)):
            assert sent_in_the_end(producer) == 1
            values = []
            end = time.monotonic() + 20
            while len(values) < 2 and time.monotonic() < end:
                values += [record.value for record in consumer.poll(timeout_ms=500)]
            assert values == [b"v", b"w"]
    broker.close()


def sent_in_the_end(producer):
    """The offset of a record; the failure of an attempt that was on its way is passed over."""
    end = time.monotonic() + 20
    while True:
        try:
            return producer.send("t", value=b"w").result(timeout_ms=20_000).offset
        except SslAuthenticationError:
            assert time.monotonic() < end


def test_a_client_that_never_begins_tls_is_disconnected(listening, authority):
    config = ssl_listener(authority.issue("broker", HOSTS)[0], fletchlog_request_read_timeout_ms="100")
    host, port = listening(config).split(":")
    with socket.create_connection((host, int(port))) as silent:
        silent.settimeout(5)
        while silent.recv(100):
            pass


def test_what_a_listener_cannot_do_is_said_when_it_is_opened(listening, authority):
    with pytest.raises(ConfigError, match=r"needs a certificate: give ssl.keystore.location"):
        listening({"security.protocol": "SSL"})
    both = authority.issue("broker", HOSTS)[0]
    with pytest.raises(ConfigError, match=r"ssl.client.auth=required needs the authorities"):
        listening(ssl_listener(both, ssl_client_auth="required"))
    with pytest.raises(ConfigError, match="not that of the certificate"):
        _, chain, _ = authority.issue("one")
        _, _, key = authority.issue("other")
        listening({"security.protocol": "SSL", "ssl.certificate.location": chain, "ssl.key.location": key})


def test_a_store_of_java_is_refused_with_the_way_to_convert_it(authority, tmp_path):
    jks = tmp_path / "trust.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigError, match=r"keytool -list -rfc -keystore"):
        fl.Consumer({"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.truststore.location": str(jks)})
    given = {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": authority.file, "ssl.keystore.password": "s3cret"}
    with pytest.raises(ConfigError, match=r"openssl pkcs12 -in store.p12"):
        fl.Producer({"bootstrap.servers": "h:1", "security.protocol": "SSL"} | given)
    with pytest.raises(ConfigError, match=r"ssl.truststore.location.*cannot be read"):
        fl.Consumer({"bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.truststore.location": "no/such/file"})


def test_the_subject_of_a_certificate_is_who_the_client_is(authority):
    config = ssl_listener(authority.issue("broker", HOSTS)[0], ssl_client_auth="required", ssl_truststore_location=authority.file)
    config |= {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=alice,O=fletchlog tests",
    }
    with fl.Broker.in_memory(config=config) as broker, broker.listen() as listener:
        broker.create_topic("t")
        alice = client(listener.bootstrap, authority, ssl_keystore_location=authority.issue("alice")[0])
        with fl.Producer(alice) as producer:
            assert producer.send("t", value=b"v").result().offset == 0
        bob = client(listener.bootstrap, authority, ssl_keystore_location=authority.issue("bob")[0])
        with fl.Cluster(alice) as cluster:
            assert cluster.topics() == ["t"]
        with fl.Cluster(bob) as cluster:
            assert cluster.topics() == [], "what he may not see is left out"
