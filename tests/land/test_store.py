"""A source, a Delta table and a Parquet table on object stores, served by moto."""

import http.client
import http.server
import threading
from contextlib import contextmanager
from itertools import count

import obstore
import polars as pl
import pytest

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError, StorageError, TableConflictError
from tests.support.landed import Place, expected, rows_of
from tests.support.s3_server import running


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with running(tmp_path_factory.mktemp("s3")) as server:
        yield server


def test_a_delta_table_on_a_store_has_one_lander_of_a_topic(s3, broker, send, tmp_path):
    table = f"s3://{s3.new_bucket()}/lake/orders"
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true"}
    send(5)
    assert fl.land(broker, "t", table, table_options=options).rows == 5
    send(4)
    first = []

    def other(_topic, _rows):
        if not first:
            first.append(fl.land(broker, "t", table, table_options=options))

    with pytest.raises(TableConflictError, match="another lander has committed"):
        fl.land(broker, "t", table, table_options=options, on_progress=other)
    assert first[0].rows == 4
    found = pl.scan_delta(table, storage_options=options).collect().to_arrow()
    assert rows_of(found) == expected(broker)
    assert fl.land.offsets(table, table_options=options) == {("t", 0): 9, ("t", 1): 0}


def test_an_exported_directory_on_a_store_is_a_source(s3, place, tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", value=b"0")
    bucket = s3.new_bucket()
    fl.transfer.export(tmp_path / "data", f"s3://{bucket}/log", storage_options=s3.options)
    assert place.land(f"s3://{bucket}/log", storage_options=s3.options).rows == 1
    assert place.land(f"s3://{bucket}/log", storage_options=s3.options).rows == 0


@pytest.fixture
def on_store(s3, tmp_path):
    """A Parquet table on the store."""
    return Place("parquet", tmp_path, store=(f"s3://{s3.new_bucket()}/lake/orders", {**s3.environment, "AWS_ALLOW_HTTP": "true"}))


def test_a_parquet_table_on_a_store_has_each_record_once(on_store, broker, send):
    send(5)
    assert on_store.land(broker, partition_by="day").rows == 5
    assert on_store.land(broker).rows == 0
    send(4, partition=1)
    # found without its format
    assert fl.land(broker, "t", on_store.table, table_options=on_store.options).format == "parquet"
    assert on_store.rows() == expected(broker)
    assert on_store.offsets() == {("t", 0): 5, ("t", 1): 4}
    send(3)
    assert on_store.land(broker, compact=True).compacted >= 2
    assert on_store.rows() == expected(broker)
    assert not [name for name in on_store.files() if "staged" in name or "condition" in name]


def test_two_landers_on_a_store_do_not_land_twice(on_store, broker, send):
    send(5)
    with pytest.raises(TableConflictError, match="another lander has committed"):
        on_store.land(broker, on_progress=lambda *_: on_store.land(broker))
    assert on_store.rows() == expected(broker)
    # of another topic it is no conflict: the commit is repeated on top of the other one
    broker.create_topic("other")
    send(2, topic="other")
    send(2)
    assert on_store.land(broker, on_progress=lambda *_: on_store.land(broker, "other", append=True)).rows == 2
    assert on_store.rows() == expected(broker, "other", "t")


def test_what_is_at_a_place_stays_of_its_format(on_store, s3, broker, send):
    send(1)
    on_store.land(broker)
    with pytest.raises(InvalidArgumentError, match="is a table of format 'parquet'"):
        fl.land(broker, "t", on_store.table, format="delta", table_options=on_store.options)
    delta = f"s3://{s3.new_bucket()}/delta"
    fl.land(broker, "t", delta, table_options=on_store.options)
    with pytest.raises(InvalidArgumentError, match="is a table of format 'delta'"):
        fl.land(broker, "t", delta, format="parquet", table_options=on_store.options)
    with pytest.raises(InvalidArgumentError, match="no Parquet table can be there"):
        fl.land(broker, "t", on_store.table, format="parquet", table_options={"AWS_NO_SUCH": "x"})
    with pytest.raises(StorageError, match="cannot be read or written"):
        fl.land(broker, "t", "s3://no-such-bucket/x", format="parquet", table_options=on_store.options)


class KilledError(BaseException):
    """Where the process ends."""


@contextmanager
def killed_at_request(number, *, after):
    """The process ends at this request that changes the store: before it is carried out, or after."""
    requests = count()

    def at(real):
        def request(*arguments, **options):
            if next(requests) != number:
                return real(*arguments, **options)
            if after:
                real(*arguments, **options)
            raise KilledError

        return request

    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "copy", "delete"):
            patch.setattr(obstore, name, at(getattr(obstore, name)))
        yield


@pytest.mark.slow
def test_a_lander_that_is_killed_at_a_request_loses_and_repeats_nothing(on_store, broker, send):
    # the first landing and the compactions of later ones have some twelve requests; judges/kills/land.py has the long form
    for number in range(11):
        send(2, partition=number % 2)
        with pytest.raises(KilledError), killed_at_request(number % 10, after=number % 2 == 0):
            while True:
                on_store.land(broker, compact=True)
        found = [row[:3] for row in on_store.rows()]
        assert len(set(found)) == len(found)
        assert set(found) <= {row[:3] for row in expected(broker)}
    on_store.land(broker)
    assert on_store.rows() == expected(broker)


@contextmanager
def without_conditions(port):
    """The store behind a proxy that leaves out the conditions of requests, as stores do that ignore them."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server = http.client.HTTPConnection("127.0.0.1", port)
            server.request(self.command, self.path, body, {name: value for name, value in self.headers.items() if not name.lower().startswith("if-")})
            response = server.getresponse()
            data = response.read()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def test_a_store_that_ignores_conditions_is_refused(on_store, s3, broker, send):
    send(1)
    with without_conditions(int(s3.endpoint.rpartition(":")[2])) as port:
        options = {**on_store.options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        with pytest.raises(InvalidArgumentError, match="no put on a condition"):
            fl.land(broker, "t", on_store.table, format="parquet", table_options=options)
    assert not on_store.files()
