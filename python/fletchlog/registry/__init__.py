"""A schema registry where the broker is: Confluent's REST API, kept in the broker's topic `_schemas`.

docs/howto/schema-registry.md has an example with other clients, and what is different from Confluent's registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fletchlog._closing import Closing
from fletchlog.errors import InvalidArgumentError, ListenerError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from fletchlog import Broker

__all__ = ["SchemaRegistry"]

_LAST_PORT = 65_535


class SchemaRegistry(Closing):
    """A schema registry that serves a broker's clients over HTTP until it is closed.

    Its state is the topic `_schemas` in the format of Confluent's registry: a record is acknowledged by the broker before the client gets its
    answer, another registry over the same broker sees it at once, and a registry that is opened later has the same state. Requests may come from
    any number of threads and clients. Kafka's registry: `SchemaRegistryRestApplication`.
    """

    def __init__(
        self,
        broker: Broker,
        address: str = "127.0.0.1:0",
        *,
        tls: ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Opens it; see `Broker.schema_registry`, which is the same.

        Raises:
            fletchlog.errors.InvalidArgumentError: No such address.
            fletchlog.errors.ListenerError: The port is taken, or the address is not this machine's.
            fletchlog.errors.KafkaError: The topic cannot be created.
            ImportError: The extra `registry` is not installed.
        """
        # clients, which are in this package too, need none of these
        from fletchlog._http import HttpServer
        from fletchlog.interop import require
        from fletchlog.registry.core import Registry
        from fletchlog.registry.log import SchemaLog
        from fletchlog.registry.problems import RegistryProblem
        from fletchlog.registry.rest import Rest

        for module, extra in (("avro.schema", "registry"), ("google.protobuf", "serde")):
            require(module, extra)
        host, _, port = address.rpartition(":")
        if not port.isascii() or not port.isdecimal() or int(port) > _LAST_PORT:
            raise InvalidArgumentError(f"address is {address!r}; it is HOST:PORT with a port from 0 to {_LAST_PORT}")
        try:
            self._log = SchemaLog(broker)
        except RegistryProblem as problem:
            raise problem.__cause__ or problem from None
        rest = Rest(Registry(self._log), lambda: broker.cluster_id, users)
        try:
            self._server = HttpServer(rest, host.strip("[]") or "127.0.0.1", int(port), "fletchlog-schema-registry", tls)
        except OSError as error:
            self._log.close()
            raise ListenerError(f"the schema registry cannot listen at {address}: {error.strerror or error}") from error
        self._is_open = True

    @property
    def url(self) -> str:
        """Where it is, for `schema.registry.url`: `http://HOST:PORT`."""
        return self._server.url

    def close(self) -> None:
        """Ends it; the topic remains. Closing twice does nothing."""
        if self._is_open:
            self._is_open = False
            self._server.close()
            self._log.close()

    def __repr__(self) -> str:
        """Where it is."""
        return f"<SchemaRegistry at {self.url}{'' if self._is_open else ', closed'}>"
