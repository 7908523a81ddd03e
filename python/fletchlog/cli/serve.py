"""`fletchlog serve`: a broker that Kafka's clients connect to."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated

import typer

from fletchlog.cli.common import CommandError, Config, command, properties, properties_of_file
from fletchlog.cli.terminal import note

if TYPE_CHECKING:
    from types import FrameType

    import fletchlog as fl


LAST_PORT = 65_535


@command
def serve(
    directory: Annotated[Path | None, typer.Argument(help="The broker's directory; a new one is created.", metavar="DIR")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep everything in memory.")] = False,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where to listen. Port 0: a free one.")] = "127.0.0.1:9092",
    advertised: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="Where clients reach it, if that is another address.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of nodes: as many ports, from that of --listen on.")] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Serve a directory that another process writes, a Kafka broker too.")] = False,
    auto_create: Annotated[int | None, typer.Option("--auto-create", metavar="PARTITIONS", help="Create topics that clients ask for.")] = None,
    config: Config = None,
    config_file: Annotated[Path | None, typer.Option("--config-file", metavar="FILE", help="Properties as in server.properties: for passwords.")] = None,
    print_address: Annotated[bool, typer.Option("--print-address", help="Print one line of JSON: the bootstrap servers, the process id.")] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", help="End when the process that started it ends.")] = False,
) -> None:
    """Serve Kafka's protocol over TCP, for clients in any language.

    fletchlog serve data/

    fletchlog serve --memory --listen 127.0.0.1:0 --auto-create 4 --print-address
    """
    stopped = _stop_on_signals()
    if with_parent:
        _end_with_parent(stopped)
    logging.basicConfig(level=logging.INFO, format="fletchlog: %(message)s")
    with _broker(directory, memory, nodes, read_only, _properties(config, config_file, auto_create)) as broker:
        host, port = _host_and_port(listen)
        with broker.listen(host, port, advertised) as listener:
            if print_address:
                print(json.dumps({"bootstrap": listener.bootstrap, "pid": os.getpid()}), flush=True)
            note(f"serving {'memory' if directory is None else directory} at {listener.bootstrap}; Ctrl-C ends it")
            stopped.get()


def _broker(directory: Path | None, memory: bool, nodes: int | None, read_only: bool, config: dict[str, str]) -> fl.Broker:
    """The broker that is served."""
    import fletchlog as fl

    if memory == (directory is not None):
        raise CommandError("serve wants either a directory or --memory")
    if directory is None:
        if read_only:
            raise CommandError("--read-only is for a directory: memory is empty at the start")
        return fl.Broker.in_memory(nodes=nodes or 1, config=config)
    return fl.Broker(directory, nodes=nodes, read_only=read_only, config=config)


def _properties(config: list[str] | None, config_file: Path | None, auto_create: int | None) -> dict[str, str]:
    """The broker's properties: those of the command line before those of the file."""
    given = (properties_of_file(config_file) if config_file else {}) | properties(config)
    if auto_create is not None:
        if auto_create < 1:
            raise CommandError(f"--auto-create wants a number of partitions, got {auto_create}")
        given = {"auto.create.topics.enable": "true", "num.partitions": str(auto_create), **given}
    return given


def _host_and_port(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[v6]:PORT`, or a port alone."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > LAST_PORT:
        raise CommandError(f"--listen wants HOST:PORT with a port from 0 to 65535, got {text}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _stop_on_signals() -> SimpleQueue[None]:
    """Gets an item from SIGTERM and from Ctrl-C; a second Ctrl-C ends the process at once.

    Not an event: `Event.set` in a signal handler waits for ever if `Event.wait` holds the event's lock in the same thread.
    """
    stopped: SimpleQueue[None] = SimpleQueue()

    def stop(number: int, _frame: FrameType | None) -> None:
        stopped.put(None)
        if number == signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return stopped


def _end_with_parent(stopped: SimpleQueue[None]) -> None:
    """Asks Linux for SIGTERM when the parent ends; elsewhere, and beside it, the end of standard input says so."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None, use_errno=True).prctl(set_parent_death_signal, signal.SIGTERM)

    def watch() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        stopped.put(None)

    threading.Thread(target=watch, name="fletchlog-parent", daemon=True).start()
