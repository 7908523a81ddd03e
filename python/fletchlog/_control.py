"""The control interface of `fletchlog serve` and `fletchlog proxy`: faults, requests, and those of a broker also time and events of the cluster, over HTTP.

Bodies are JSON, see docs/reference/control.md.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from fletchlog._closing import Closing
from fletchlog._http import HttpServer, Request, Response
from fletchlog.errors import InvalidArgumentError, KafkaError
from fletchlog.testing import LONGEST_WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fletchlog import Broker
    from fletchlog.testing import FaultRule
    from fletchlog.types import Listener, Proxy

VERSION = 1
KINDS = {str: "a text", int: "a whole number", float: "a number"}
UNITS = dict.fromkeys(("seconds", "milliseconds", "minutes", "hours", "days"), float)
SELECTORS = {"api": str, "client_id": str, "topic": str, "partition": int, "group": str, "transactional_id": str, "node": int, "connection": int}


class _NotFoundError(Exception):
    """No such path, rule or held request."""


class Control(Closing):
    """Serves the interface, in threads of its own, until it is closed."""

    def __init__(self, broker: Broker | None, listener: Listener | Proxy, host: str, port: int) -> None:
        """Listens at once; requests of the clients of the listener, or of a proxy, which has no broker, are recorded from now on.

        Raises:
            OSError: The address cannot be used.
        """
        self._broker, self._listener, self._faults = broker, listener, listener.faults
        self._faults.record_requests()
        self._server = HttpServer(self, host, port, "fletchlog-control")

    @property
    def url(self) -> str:
        """Where it is: `http://HOST:PORT`."""
        return self._server.url

    def close(self) -> None:
        """Ends it."""
        self._server.close()

    def respond(self, request: Request) -> Response:
        """See `Application.respond`."""
        version, *path = [part for part in request.path.split("/") if part] or [""]
        try:
            if version != f"v{VERSION}":
                raise _NotFoundError(f"{request.path} is unknown: paths begin with /v{VERSION}")  # noqa: TRY301 - one place makes errors of exceptions
            given = _body(request) if request.method == "POST" else {}
            return Response(200, json.dumps(self.answer(request.method, path, given, request.query)).encode())
        except _NotFoundError as error:
            return _error(404, error)
        except TimeoutError as error:
            return _error(408, error)
        except (InvalidArgumentError, TypeError, ValueError) as error:
            return _error(400, error)
        except KafkaError as error:
            return _error(409, error)
        except Exception as error:  # noqa: BLE001 - the client gets an answer, whatever it is
            return _error(500, error)

    def refuse(self, status: int, message: str) -> Response:
        """See `Application.refuse`."""
        kind = "InvalidArgumentError" if status == 400 else "InvalidRequestError"  # noqa: PLR2004 - HTTP's own number
        return Response(status, json.dumps({"error": kind, "message": message}).encode())

    def answer(self, method: str, path: list[str], given: Mapping[str, Any], query: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
        """The answer to a request. `path` follows the version; `given` is the body."""
        match method, path:
            case "GET", []:
                nodes = self._broker.nodes if self._broker else None
                return {"version": VERSION, "bootstrap": self._listener.bootstrap, "nodes": nodes}
            case "GET", ["faults"]:
                return self._report()
            case "POST", ["faults"]:
                if not given:
                    raise InvalidArgumentError("a plan has `rules`, `random` or both: there is no body, or it is empty")
                return {"rules": [rule.number for rule in self._faults.load(given)]}
            case "DELETE", ["faults"]:
                self._faults.clear()
            case "DELETE", ["faults", number]:
                self._rule(number).clear()
            case "POST", ["faults", number, "release"]:
                self._rule(number).release()
            case "POST", ["faults", number, "wait"]:
                self._rule(number).wait(**_timeout(given))
            case "GET", ["requests"]:
                return {"requests": [row.as_dict() for row in self._faults.requests(**_query(query))]}
            case "DELETE", ["requests"]:
                self._faults.record_requests()
            case _:
                return self._of_broker(method, path, given)
        return {}

    def _of_broker(self, method: str, path: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request about time or the cluster."""
        broker = self._broker
        if broker is None:
            why = (
                "is unknown here: a proxy has /v1/faults and /v1/requests; clock, share groups, leaders, coordinators and nodes are those of `fletchlog serve`"
            )
            raise _NotFoundError(f"{method} /v{VERSION}/{'/'.join(path)} {why}")
        match method, path:
            case "GET", ["clock"]:
                return {"now_ms": broker.clock.now_ms, "is_frozen": broker.clock.is_frozen}
            case "POST", ["clock", "advance"]:
                if not given:
                    raise InvalidArgumentError(f"one of {', '.join(UNITS)} is missing")
                broker.clock.advance(**_named(given, UNITS))
            case "POST", ["clock", "freeze"]:
                broker.clock.freeze()
            case "POST", ["clock", "resume"]:
                broker.clock.resume()
            case "GET", ["share-groups", group, topic]:
                return {"records": broker.share_state(group, topic).to_pyarrow().to_pylist()}
            case "POST", ["leaders", "move"]:
                broker.move_leader(**_named(given, {"topic": str, "partition": int, "to": int, "replicated_after_ms": int}, "topic", "partition", "to"))
            case "POST", ["coordinators", "move"]:
                known = {"group_id": str, "transactional_id": str, "to": int, "loading_ms": int}
                broker.move_coordinator(**_named(given, known, "to"))
            case "POST", ["nodes", node, "stop"]:
                broker.stop_node(_node(broker, node), **_named(given, {"closes_after_ms": int, "election_ms": int}))
            case "POST", ["nodes", node, "kill"]:
                broker.kill_node(_node(broker, node), **_named(given, {"detected_after_ms": int, "election_ms": int}))
            case "POST", ["nodes", node, "start"]:
                broker.start_node(_node(broker, node))
            case _:
                raise _NotFoundError(f"{method} /v{VERSION}/{'/'.join(path)} is unknown; docs/reference/control.md lists what there is")
        return {}

    def _rule(self, number: str) -> FaultRule:
        rules = self._faults.rules
        if not number.isdecimal() or not 1 <= int(number) <= len(rules):
            raise _NotFoundError(f"there is no rule {number}; there are {len(rules)}")
        return rules[int(number) - 1]

    def _report(self) -> dict[str, Any]:
        return {"rules": self._faults._progress(), "drawn": self._faults.drawn()}  # noqa: SLF001 - of this package


def _node(broker: Broker, number: str) -> int:
    if not number.isdecimal() or int(number) not in broker.nodes:
        raise _NotFoundError(f"there is no node {number}; there are {', '.join(map(str, sorted(broker.nodes)))}")
    return int(number)


def _named(given: Mapping[str, Any], known: Mapping[str, type], *needed: str) -> dict[str, Any]:
    """The values of a body, each of its type; `float` takes whole numbers too."""
    for name, value in given.items():
        if name not in known:
            raise InvalidArgumentError(f"`{name}` is unknown; known are {', '.join(known)}")
        kind = known[name]
        if not isinstance(value, (int, float) if kind is float else kind) or isinstance(value, bool):
            raise InvalidArgumentError(f"`{name}` must be {KINDS[kind]}, not {json.dumps(value)}")
    for name in needed:
        if name not in given:
            raise InvalidArgumentError(f"`{name}` is missing")
    return dict(given)


def _timeout(given: Mapping[str, Any]) -> dict[str, Any]:
    """How long a request waits for a rule to hold."""
    found = _named(given, {"timeout": float})
    if not 0 <= found.get("timeout", 0) <= LONGEST_WAIT_S:
        raise InvalidArgumentError(f"`timeout` must be from 0 to {LONGEST_WAIT_S} seconds, not {json.dumps(found['timeout'])}")
    return found


def _query(given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The selectors of a query; `api` may be repeated."""
    found: dict[str, Any] = {}
    for name, value in given:
        if name not in SELECTORS:
            raise InvalidArgumentError(f"`{name}` is unknown; known are {', '.join(SELECTORS)}")
        if name == "api":
            found.setdefault(name, []).append(value)
            continue
        if name in found:
            raise InvalidArgumentError(f"`{name}` is given twice; only `api` may be repeated")
        try:
            found[name] = SELECTORS[name](value)
        except ValueError:
            raise InvalidArgumentError(f"`{name}` must be a number, not {value!r}") from None
    return found


def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a body."""
    # A page in a browser cannot send this type to another origin without asking.
    if request.body and request.headers.get_content_type() != "application/json":
        raise InvalidArgumentError("the Content-Type of a body must be application/json")
    try:
        body = json.loads(request.body or b"{}")
    except ValueError as error:
        raise InvalidArgumentError(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidArgumentError("a body must be a JSON object")
    return body


def _error(status: int, error: Exception) -> Response:
    return Response(status, json.dumps({"error": type(error).__name__.removeprefix("_"), "message": str(error)}).encode())
