"""`fletchlog serve`: a broker that Kafka's clients connect to."""

from __future__ import annotations

import contextlib
import os
import signal

from fletchlog._core import log_to
from fletchlog._place import STORE, address_meant
from fletchlog.cli.arguments import READABLE, argument, option
from fletchlog.cli.common import CommandError, properties, properties_of_file, refuse_kafkas, storage_options
from fletchlog.cli.options import CONFIG
from fletchlog.cli.text import note, note_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType
    from typing import Any

    import fletchlog as fl
    from fletchlog._place import Place
    from fletchlog.testing import FaultPlan


LAST_PORT = 65_535
# Ids of nodes are numbers of 32 bits; how many nodes a broker has: docs/limits.md.
LAST_NODE, MOST_NODES = (1 << 31) - 1, 1_000
# Parameters of glibc's mallopt, and the bytes that are set for both.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_AT_MOST = 1 << 20


def serve(
    directory: Place | None = argument("DIR", "The broker's directory; a new one is created.", None, places=READABLE),
    memory: bool = option("--memory", "Keep everything in memory.", False),
    listen: str = option("--listen", "Where to listen. Port 0: a free one.", "127.0.0.1:9092", "HOST:PORT"),
    advertised: str | None = option("--advertised", "Where clients reach it, if that is another address.", metavar="HOST[:PORT]"),
    nodes: str | None = option("--nodes", "Number of nodes, or their ids: 0,1,2. As many ports, from that of --listen on."),
    racks: str | None = option("--racks", "Rack of each node, in the order of their ids: r1,r2,r3."),
    read_only: bool = option("--read-only", "Serve a directory that another process writes, a Kafka broker too.", False),
    auto_create: int | None = option("--auto-create", "Create topics that clients ask for.", metavar="PARTITIONS"),
    config: list[str] | None = CONFIG,
    config_file: Path | None = option("--config-file", "Properties as in server.properties: for passwords.", metavar="FILE"),
    lenient: bool = option("--lenient", "Only warn of properties that a Kafka broker may have and this one has not.", False),
    faults: Path | None = option("--faults", "Faults of requests: a plan in TOML or JSON. A report is printed at the end.", metavar="FILE"),
    control: str | None = option("--control", "Where tests control it over HTTP: faults, requests, time. Port 0: a free one.", metavar="HOST:PORT"),
    record: Path | None = option("--record", "Record the session of its clients, without records and secrets.", metavar="FILE", writes=True),
    record_values: bool = option("--record-values", "The session keeps keys, values and headers of records.", False),
    schema_registry: str | None = option("--schema-registry", "Where to serve a schema registry. Port 0: a free one.", metavar="HOST:PORT"),
    print_address: bool = option("--print-address", "Print one line of JSON: the bootstrap servers, the process id.", False),
    with_parent: bool = option("--with-parent", "End when the process that started it ends.", False),
) -> None:
    """Serve Kafka's protocol over TCP, for clients in any language.

    fletchlog serve data/

    fletchlog serve --memory --listen 127.0.0.1:0 --auto-create 4 --print-address
    """
    check_record(record)
    stopped, stop = stop_on_signals()
    allow_files()
    _return_freed_memory()
    if with_parent:
        end_with_parent(stop)
    log_to(note_log)
    # As in Kafka: the first members of a group may start on many machines.
    given = {"group.initial.rebalance.delay.ms": "3000"} | _properties(config, config_file, auto_create)
    if memory:
        # As in Kafka. A directory can have readers in other processes, behind whose backs nothing changes unless asked for.
        given = {"log.cleaner.enable": "true"} | given
    if lenient:
        given = _known(given)
    with _broker(directory, memory, _nodes(nodes, racks), read_only, given) as broker:
        host, port = _host_and_port("--listen", listen)
        with broker.listen(host, port, advertised=advertised, record=record, record_values=record_values) as listener, reported(listener):
            plan = load_plan(listener, faults) if faults else None
            with controlled(broker, listener, control) as url, _registered(broker, schema_registry) as registry:
                if print_address:
                    print(address(listener.bootstrap, url, registry), flush=True)
                beside = f"{url and f', controlled at {url}'}{registry and f', schema registry at {registry}'}"
                note(f"serving {'memory' if directory is None else directory} at {listener.bootstrap}{beside}; Ctrl-C ends it")
                wait(stopped)
            if plan:
                note(plan.report())


def check_record(record: Path | None) -> None:
    """Refuses a session with the name of the lines of JSON that a proxy once wrote."""
    if record is not None and record.suffix in {".json", ".jsonl"}:
        better = record.with_suffix(".fltrace")
        raise CommandError(f"--record {record}: a session is no JSON; name it {better}, for fletchlog.explain.session. --control has requests as JSON")


@contextlib.contextmanager
def reported(listener: fl.types.Listener | fl.types.Proxy) -> Iterator[None]:
    """Says at the end what of the session was not recorded."""
    yield
    state = listener.recording
    if state and state["failure"]:
        note(f"warning: the session {state['path']} is not whole: {state['failure']}")
    elif state and state["dropped"]:
        note(f"warning: {state['dropped']} requests are not in the session {state['path']}: the disk or this process was too slow")


@contextlib.contextmanager
def controlled(broker: fl.Broker | None, listener: fl.types.Listener | fl.types.Proxy, control: str | None) -> Iterator[str]:
    """The control interface, if it is wanted: its address, otherwise an empty text. A proxy has no broker."""
    if control is None:
        yield ""
        return
    from fletchlog._control import Control

    host, port = _host_and_port("--control", control)
    try:
        opened = Control(broker, listener, host, port)
    except OSError as error:
        raise CommandError(f"--control {control}: {error.strerror}") from None
    with opened:
        yield opened.url


@contextlib.contextmanager
def _registered(broker: fl.Broker, at: str | None) -> Iterator[str]:
    """The schema registry, if it is wanted: its address, otherwise an empty text."""
    if at is None:
        yield ""
        return
    from fletchlog.errors import ListenerError
    from fletchlog.registry import SchemaRegistry

    host, port = _host_and_port("--schema-registry", at)
    try:
        opened = SchemaRegistry(broker, f"{host}:{port}")
    except (ListenerError, ImportError) as error:
        raise CommandError(f"--schema-registry {at}: {error}") from None
    with opened:
        yield opened.url


def load_plan(listener: fl.types.Listener | fl.types.Proxy, path: Path) -> FaultPlan:
    """The rules of a file, added to those of a listener or a proxy."""
    from fletchlog.errors import InvalidArgumentError

    plan = listener.faults
    try:
        plan.load(path)
    except OSError as error:
        raise CommandError(f"--faults {path}: {error.strerror or error}") from None
    except InvalidArgumentError as error:
        raise CommandError(f"--faults {path}: {str(error).removeprefix(f'{path} ')}") from None
    return plan


def _nodes(nodes: str | None, racks: str | None) -> int | dict[int, str | None] | None:
    """What --nodes and --racks say; None: nothing."""
    words = [word.strip() for word in (nodes or "").split(",") if word.strip()]
    if nodes is not None and not (words and all(word.isdecimal() for word in words)):
        raise CommandError(f"--nodes {nodes}: give a number of nodes, or their ids as in 0,1,2")
    is_number = nodes is not None and "," not in nodes
    if is_number and not 1 <= int(words[0]) <= MOST_NODES:
        raise CommandError(f"--nodes is from 1 to {MOST_NODES}, not {nodes}; ids of nodes have a comma, as in 0,1")
    if too_large := next((word for word in words if int(word) > LAST_NODE), None):
        raise CommandError(f"--nodes {nodes}: the id of a node is at most {LAST_NODE}, not {too_large}")
    if racks is None:
        return int(words[0]) if is_number else {int(word): None for word in words} or None
    ids = list(range(1, int(words[0]) + 1)) if is_number else sorted(map(int, words)) or [1]
    named = [rack.strip() or None for rack in racks.split(",")]
    if len(named) != len(ids):
        raise CommandError(f"--racks {racks}: {len(named)} given, but there are {len(ids)} nodes; give a rack for each, or nothing between two commas")
    return dict(zip(ids, named, strict=True))


def _broker(directory: Place | None, memory: bool, nodes: int | dict[int, str | None] | None, read_only: bool, config: dict[str, Any]) -> fl.Broker:
    """The broker that is served."""
    import fletchlog as fl

    if memory == (directory is not None):
        raise CommandError("serve wants either a directory or --memory")
    if directory is None:
        if read_only:
            raise CommandError("--read-only is for a directory: memory is empty at the start")
        return fl.Broker.in_memory(nodes=nodes or 1, config=config)
    if address_meant(directory.name):
        raise CommandError(f"{directory} is no directory; --listen says where to listen, and ./{directory} is a directory of this name")
    store = directory.kind == STORE
    if not read_only and not store:
        refuse_kafkas(directory)
    options = storage_options() if store else None
    return fl.Broker(directory.name, create=not read_only and not store, nodes=nodes, read_only=read_only, config=config, storage_options=options)


def _properties(config: list[str] | None, config_file: Path | None, auto_create: int | None) -> dict[str, Any]:
    """The broker's properties: those of the command line before those of the file."""
    given = (properties_of_file(config_file) if config_file else {}) | properties(config)
    if auto_create is not None:
        if auto_create < 1:
            raise CommandError(f"--auto-create wants a number of partitions, got {auto_create}")
        given = {"auto.create.topics.enable": "true", "num.partitions": str(auto_create), **given}
    return given


def _known(given: dict[str, Any]) -> dict[str, Any]:
    """The properties that a broker has. It says which others there are."""
    import fletchlog as fl

    known = {key.name for key in fl.admin.config_table() if key.scope == "broker"}
    unknown = [name for name in given if (name.split(".", 3)[-1] if name.startswith("listener.name.") else name) not in known]
    for name in unknown:
        note(f"warning: {name} is no property of this broker; it changes nothing")
    return {name: value for name, value in given.items() if name not in unknown}


def _host_and_port(name: str, text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[v6]:PORT`, or a port alone."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise CommandError(f"{name} wants HOST:PORT with a port from 0 to 65535, got {text}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def address(bootstrap: str, control: str = "", registry: str = "") -> str:
    """The line of JSON, with the addresses of what else is served. Hosts need no escapes; importing `json` takes longer than the rest."""
    if not bootstrap.isascii() or not bootstrap.isprintable() or '"' in bootstrap or "\\" in bootstrap:
        import json

        bootstrap = json.dumps(bootstrap)[1:-1]
    of_control = f', "control": "{control}"' if control else ""
    of_registry = f', "schema_registry": "{registry}"' if registry else ""
    return f'{{"bootstrap": "{bootstrap}", "pid": {os.getpid()}{of_control}{of_registry}}}'


def allow_files() -> None:
    """As many open files as the system lets it have: each connection is one."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _return_freed_memory() -> None:
    """Large memory goes back to the system when it is freed: otherwise glibc keeps up to 64 MiB for each thread that answered a large request."""
    import ctypes

    # Other C libraries have no such function.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(M_TRIM_THRESHOLD, KEPT_AT_MOST)
        mallopt(M_MMAP_THRESHOLD, KEPT_AT_MOST)


def stop_on_signals() -> tuple[int, int]:
    """A pipe: from SIGTERM or Ctrl-C on there is the signal's number to read. A second Ctrl-C ends the process at once.

    The interpreter itself writes it (`set_wakeup_fd`). A handler may come too late: it does not run once the main thread waits, and an
    event or a queue would not be set for a signal that comes just before.
    """
    stopped, stop = os.pipe()
    os.set_blocking(stop, False)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    signal.set_wakeup_fd(stop, warn_on_full_buffer=False)
    return stopped, stop


def wait(stopped: int) -> None:
    """Waits for one of these signals. Other signals also write into the pipe."""
    while os.read(stopped, 1)[0] not in (signal.SIGTERM, signal.SIGINT):
        pass


def end_with_parent(stop: int) -> None:
    """Asks Linux for SIGTERM when the parent ends; elsewhere, and beside it, the end of standard input says so."""
    import sys
    import threading

    if sys.platform == "linux":
        import ctypes

        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)

    def watch() -> None:
        # Not `sys.stdin.buffer.read`: Python aborts when it ends while a thread is in it.
        standard_input = sys.stdin.fileno()
        while os.read(standard_input, 4096):
            pass
        os.write(stop, bytes([signal.SIGTERM]))

    threading.Thread(target=watch, name="fletchlog-parent", daemon=True).start()
