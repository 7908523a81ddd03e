"""A connection over which requests go as the wire has them, with Kafka's own schemas."""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "golden" / "wire" / "vectors"))
import replay
import wirecodec

with warnings.catch_warnings(action="ignore", category=ResourceWarning):
    SCHEMAS = wirecodec.Schemas()

Closed = replay.Closed


class WireClient:
    """A connection; it is opened with the first request, and again after it was closed."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.wire = replay.Wire(host, int(port))
        self.asked = 0

    def send(self, api, version, body):
        """Only sends."""
        self.asked += 1
        self.wire.send(SCHEMAS.encode_request(api, version, body, self.asked))

    def receive(self, api, version, wait=20):
        """The answer to the last request; None: there is none."""
        raw = self.wire.receive(wait)
        if raw is None:
            return None
        correlation, answer = SCHEMAS.decode_response(api, version, raw)
        assert correlation == self.asked
        return answer

    def ask(self, api, version, body, wait=20):
        """The answer; None: there is none."""
        self.send(api, version, body)
        return self.receive(api, version, wait)
