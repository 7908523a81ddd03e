"""SASL between clients of ours and a listener of ours: users, passwords, tokens, and what is said when they are refused."""

import base64
import http.server
import json
import logging
import threading
import time

import pytest

import fletchlog as fl
from fletchlog.errors import ConfigError, InvalidArgumentError, SaslAuthenticationError, SslAuthenticationError
from fletchlog.spark.options import SourceOptions
from fletchlog.spark.sink_options import SinkOptions
from tests.support.certificates import Authority
from tests.support.reading import consumed

TOPIC = fl.TopicPartition("t", 0)
PASSWORD = "s3cret of alice"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}" user_bob="other";'
LISTENER = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "plain.sasl.jaas.config": PLAIN,
    "oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}


@pytest.fixture
def listening():
    """Opens a broker with these properties and one record in topic t; its address."""
    opened = []

    def listen(config):
        broker = fl.Broker.in_memory(config=config)
        opened.append(broker)
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"v").result()
        opened.append(broker.listen())
        return opened[-1].bootstrap

    yield listen
    for handle in reversed(opened):
        handle.close()


def user(address, name="alice", password=PASSWORD, **more):
    """The properties of a client with a user."""
    who = {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}
    return {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT"} | who | {n.replace("_", "."): v for n, v in more.items()}


def fails(config, wanted=SaslAuthenticationError):
    """What a poll, a send and a question to the cluster fail with, each within a second and a half; the text of the first."""
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
        assert time.monotonic() - begun < 1.5, call.__name__
        texts.append(str(caught.value))
    assert all(config["bootstrap.servers"] in text for text in texts), texts
    assert "s3cret" not in "".join(texts)
    return texts[0]


def token(name="alice", seconds=60):
    """A token that nobody signed, and its end."""
    end = time.time() + seconds
    parts = [{"alg": "none"}, {"sub": name, "exp": end, "iat": time.time() - 1}]
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""]), end


def with_tokens(address, callback):
    """The properties of a client with tokens."""
    return {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": callback}


def test_a_user_reads_and_writes_and_its_group_commits(listening):
    address = listening(LISTENER)
    with fl.Producer(user(address)) as producer:
        assert producer.send("t", value=b"w").result().offset == 1
    with fl.Consumer(user(address, group_id="g", auto_offset_reset="earliest")) as consumer:
        consumer.subscribe(["t"])
        values = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll(timeout_ms=1000)]
        consumer.commit()
    with fl.Cluster(user(address)) as cluster:
        assert [group.group_id for group in cluster.groups()] == ["g"]


def test_the_properties_of_java_and_the_names_of_librdkafka_will_do(listening):
    address = listening(LISTENER)
    base = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert consumed(base | {"sasl.jaas.config": f'{module} required username="alice" password="{PASSWORD}";'}) == [b"v"]
    with pytest.raises(ConfigError, match="the login module of PLAIN is PlainLoginModule"):
        fl.Consumer(base | {"sasl.jaas.config": 'ScramLoginModule required username="alice" password="s3cret";'})
    with pytest.raises(ConfigError, match=r"give sasl.username and sasl.password"):
        fl.Producer(base | {"sasl.username": "alice"})
    with pytest.raises(ConfigError, match=r"needs sasl.mechanism: PLAIN, SCRAM-SHA-256"):
        fl.Consumer({"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT"})


def test_a_wrong_password_and_an_unknown_user_are_named(listening):
    address = listening(LISTENER)
    text = fails(user(address, password="s3cret of nobody"))
    assert "SASL PLAIN, user `alice`: Authentication failed: Invalid username or password" in text
    assert "user `carol`" in fails(user(address, name="carol"))


def test_a_mechanism_that_the_broker_does_not_have_is_named_with_those_that_it_has(listening):
    text = fails(user(listening(LISTENER), sasl_mechanism="SCRAM-SHA-512"))
    assert "other mechanisms" in text
    assert "PLAIN" in text
    assert "set sasl.mechanism" in text


def test_sasl_where_there_is_none_is_named(listening):
    assert "does not use SASL on this port: set security.protocol" in fails(user(listening({})))


def test_a_client_without_sasl_does_not_wait_for_ever(listening):
    address = listening(LISTENER)
    with fl.Consumer({"bootstrap.servers": address}) as consumer:
        consumer.assign([TOPIC])
        with pytest.raises(SaslAuthenticationError, match=r"it may expect SASL .*security.protocol"):
            consumer.poll(timeout_ms=10_000)


def test_the_call_after_a_refusal_tries_again(listening):
    address = listening(LISTENER)
    given = []

    def callback(_config):
        given.append(1)
        return token(seconds=60) if len(given) > 1 else ("no.token.", time.time() + 60)

    with fl.Consumer(with_tokens(address, callback) | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TOPIC])
        with pytest.raises(SaslAuthenticationError, match=r"invalid_token|Authentication failed"):
            consumer.poll(timeout_ms=5000)


def test_a_function_gives_tokens(listening):
    address = listening(LISTENER)
    asked = []

    def callback(config):
        asked.append((config, threading.current_thread() is threading.main_thread()))
        return token()

    assert consumed(with_tokens(address, callback)) == [b"v"]
    assert asked == [("", False)], "one token for all connections, and nobody waits for it"
    with fl.Producer(with_tokens(address, callback)) as producer:
        assert producer.send("t", value=b"w").result().offset == 1


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: "token", r"return \(token, end"),
        (lambda _: ("a.b.", 1.0), "has expired"),
        (lambda _: ("a b\x01", time.time() + 60), "characters that no token has"),
    ],
)
def test_a_function_without_a_token_ends_the_call(listening, callback, reason):
    address = listening(LISTENER)
    with fl.Consumer(with_tokens(address, callback)) as consumer:
        consumer.assign([TOPIC])
        with pytest.raises(SaslAuthenticationError, match=reason):
            consumer.poll(timeout_ms=5000)


def test_a_client_makes_tokens_that_nobody_signs(listening):
    module = 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="alice";'
    config = {"bootstrap.servers": listening(LISTENER), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    assert consumed(config | {"sasl.jaas.config": module}) == [b"v"]
    with pytest.raises(ConfigError, match="give oauth_cb"):
        fl.Consumer(config)
    with pytest.raises(InvalidArgumentError, match="oauth_cb is a function"):
        fl.Consumer(config | {"oauth_cb": "token"})


class Endpoint(http.server.BaseHTTPRequestHandler):
    """Gives a token for the right secret."""

    def do_POST(self):
        """The grant client_credentials."""
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        right = "Basic " + base64.b64encode(b"me:s3cret").decode()
        status = 200 if self.headers["Authorization"] == right and form == "grant_type=client_credentials&scope=kafka" else 401
        answer = json.dumps({"access_token": token()[0], "expires_in": 60}).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer if status == 200 else b"{}")

    def log_message(self, *_):
        """Says nothing."""


def test_tokens_come_from_an_endpoint(listening):
    address = listening(LISTENER)
    with http.server.HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/token"
        base = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        base |= {"sasl.oauthbearer.token.endpoint.url": url, "sasl.oauthbearer.scope": "kafka"}
        names = [("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret")]
        names += [("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret")]
        for of_id, of_secret in names:
            assert consumed(base | {of_id: "me", of_secret: "s3cret"}) == [b"v"]
        module = 'OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" scope="kafka";'
        assert consumed(base | {"sasl.jaas.config": module}) == [b"v"]
        text = fails(base | {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "other s3cret"})
        assert "refuses a token: HTTP 401" in text
        server.shutdown()


@pytest.mark.slow
def test_a_session_that_ends_is_renewed_while_records_flow(listening):
    address = listening(LISTENER | {"connections.max.reauth.ms": "1500"})
    asked = []

    def callback(_config):
        asked.append(1)
        return token()

    with fl.Producer(with_tokens(address, callback)) as producer, fl.Consumer(user(address, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TOPIC])
        read, sent = [], 0
        end = time.monotonic() + 5
        while time.monotonic() < end:
            producer.send("t", value=b"%d" % sent).result()
            sent += 1
            read += [record.value for record in consumer.poll(timeout_ms=100)]
        while len(read) < sent + 1:
            read += [record.value for record in consumer.poll(timeout_ms=1000)]
    assert read == [b"v", *(b"%d" % i for i in range(sent))]


def test_a_client_that_did_nothing_for_longer_than_its_session_keeps_its_connections(listening, caplog):
    address = listening(LISTENER | {"connections.max.reauth.ms": "1000"})
    group = user(address, group_id="g", heartbeat_interval_ms=3000, auto_offset_reset="earliest")
    with caplog.at_level(logging.DEBUG), fl.Cluster(user(address)) as cluster, fl.Consumer(group) as consumer, fl.Producer(user(address)) as producer:
        consumer.subscribe(["t"])
        read = []
        while not read:
            read += consumer.poll(timeout_ms=500)
        for _ in range(2):
            assert cluster.topics() == ["t"]
            producer.send("t", value=b"w").result()
            consumer.commit()
            time.sleep(1.5)
        while len(read) < 3:
            read += consumer.poll(timeout_ms=500)
    assert [record.value for record in read] == [b"v", b"w", b"w"]
    lost = [text for text in caplog.messages if "closed" in text or "no connection" in text]
    assert not lost


def test_sasl_goes_over_tls(listening, tmp_path):
    authority = Authority(tmp_path)
    keystore = authority.issue("broker", ("127.0.0.1",))[0]
    address = listening(LISTENER | {"security.protocol": "SASL_SSL", "ssl.keystore.location": keystore})
    config = user(address, security_protocol="SASL_SSL", ssl_truststore_location=authority.file)
    assert consumed(config) == [b"v"]
    assert "user `alice`" in fails(config | {"sasl.password": "s3cret?"})
    assert "security.protocol" in fails(user(address), SslAuthenticationError)


def test_no_secret_is_seen_anywhere(listening, caplog, capfd):
    address = listening(LISTENER)
    with caplog.at_level(logging.DEBUG):
        wrong = user(address, password="s3cret of nobody", fletchlog_trace=True)
        with pytest.raises(SaslAuthenticationError) as caught, fl.Producer(wrong) as producer:
            producer.send("t", value=b"v").result()
        right = user(address, fletchlog_trace=True, auto_offset_reset="earliest")
        with fl.Consumer(right) as consumer:
            consumer.assign([TOPIC])
            while not len(consumer.poll(timeout_ms=1000)):
                pass
            trace = consumer.trace()
            seen = [repr(consumer), str(trace.to_pyarrow().schema.metadata), str(trace.to_pyarrow().to_pylist())]
        assert "[hidden]" in seen[1]
        with pytest.raises(ConfigError) as bad:
            fl.Consumer(user(address, sasl_jaas_config="PlainLoginModule required password=s3cret"))
        with pytest.raises(ConfigError) as unknown:
            fl.Consumer(user(address, sasl_passwort="s3cret"))
    options = {f"kafka.{name}": value for name, value in user(address).items()}
    seen += [repr(SourceOptions.parse(options | {"subscribe": "t"})), repr(SinkOptions.parse(options | {"stagingPath": "/tmp"}))]
    seen += [str(caught.value), repr(caught.value), str(bad.value), str(unknown.value), caplog.text, *capfd.readouterr()]
    assert not [text for text in seen if "s3cret" in text]
