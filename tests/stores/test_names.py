"""A prefix on a store is taken as it is written: what is exported there is there, and is read from there."""

import pytest
from pyarrow import fs

import fletchlog as fl
from fletchlog.transfer import export

NAMES = ["hash#x", "what?", "what?x", "a b", "\xfc/\u20ac", "per%cent", "100%25", "with%20space", "a+b&c=d;e,f@g:h", "#", "q?a b=c", "~'()!*$"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "log"
    with fl.Broker(path, create=True) as broker:
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            producer.send("t", b"v")
    return path


@pytest.mark.parametrize("way", ["options", "environment"])
@pytest.mark.parametrize("name", NAMES)
def test_a_prefix_is_taken_as_it_is_written(s3, bucket, log, name, way, monkeypatch):
    if way == "environment":
        for key, value in s3.environment.items():
            monkeypatch.setenv(key, value)
    uri = s3.uri(f"{bucket}/{name}", in_environment=way == "environment")
    options = s3.options if way == "options" else None
    made = export(log, uri, storage_options=options)
    assert made.destination == f"s3://{bucket}/{name}"
    found = [info.path for info in s3.filesystem.get_file_info(fs.FileSelector(bucket, recursive=True)) if info.type == fs.FileType.File]
    assert len(found) > 2
    assert all(path.startswith(f"{bucket}/{name}/") for path in found)
    with fl.Broker(uri, read_only=True, storage_options=options) as broker:
        assert [row["value"] for row in broker.scan("t").to_pyarrow().to_pylist()] == [b"v"]


@pytest.mark.parametrize("name", ["/p", "a//b", "a/./b", "../b", "a//"])
def test_what_pyarrow_cannot_name_is_refused(s3, bucket, name):
    for options in (s3.options, None):
        with pytest.raises(fl.errors.InvalidArgumentError, match=r"a name between its slashes is empty, \. or \.\."):
            fl.Broker(f"s3://{bucket}/{name}", read_only=True, storage_options=options)


def test_a_bucket_that_none_can_be_is_refused(s3):
    for name in ("a b", "a#b", "a%20b", "a?b"):
        with pytest.raises(fl.errors.InvalidArgumentError, match="a character that none can have"):
            fl.Broker(f"s3://{name}/p", read_only=True, storage_options=s3.options)
