"""`fletchlog proxy`: before a cluster."""

from __future__ import annotations

import contextlib

from fletchlog._core import log_to
from fletchlog._place import CLUSTER
from fletchlog.cli import serve
from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError, configured, properties
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG
from fletchlog.cli.text import note, note_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import IO

    from fletchlog._place import Place


def proxy(
    cluster: Place = argument("CLUSTER", "kafka://HOST:PORT of the cluster.", places=(CLUSTER,)),
    listen: str = option("--listen", "Where to listen. Port 0: free ones; else the nodes get the next ones.", "127.0.0.1:9092", "HOST:PORT"),
    advertised: str | None = option("--advertised", "The host under which clients reach it, if that is another one.", metavar="HOST"),
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
    faults: Path | None = option("--faults", "Faults of requests: a plan in TOML or JSON. A report is printed at the end.", metavar="FILE"),
    record: Path | None = option("--record", "At the end, write the requests of the clients: a line of JSON for each.", metavar="FILE"),
    control: str | None = option("--control", "Where tests control it over HTTP: faults and requests. Port 0: a free one.", metavar="HOST:PORT"),
    print_address: bool = option("--print-address", "Print one line of JSON: the bootstrap servers, the process id.", False),
    with_parent: bool = option("--with-parent", "End when the process that started it ends.", False),
) -> None:
    """Relay clients, in any language, to a cluster, with a port for each of its nodes.

    --config has properties of its ports (TLS with clients), --command-config those of a client of the cluster (TLS with the nodes).

    fletchlog proxy kafka://real:9092 --listen 127.0.0.1:9092

    fletchlog proxy kafka://real:9093 --command-config client.properties --faults plan.toml --record session.jsonl
    """
    import fletchlog as fl

    stopped, stop = serve.stop_on_signals()
    serve.allow_files()
    if with_parent:
        serve.end_with_parent(stop)
    log_to(note_log)
    with (
        _written(record) as out,
        fl.Cluster(cluster.name, configured(command_config)) as real,
        real.proxy(listen, advertised=advertised, config=properties(config), record=record is not None) as relay,
    ):
        plan = serve.load_plan(relay, faults) if faults else None
        with serve.controlled(None, relay, control) as url:
            if print_address:
                print(serve.address(relay.bootstrap, url), flush=True)
            note(f"relaying to {cluster} at {relay.bootstrap}{url and f', controlled at {url}'}; Ctrl-C ends it")
            serve.wait(stopped)
        if plan:
            note(plan.report())
        if out:
            import json

            out.writelines(f"{json.dumps(request.as_dict())}\n" for request in relay.faults.requests())


@contextlib.contextmanager
def _written(path: Path | None) -> Iterator[IO[str] | None]:
    """The file of that name, which is opened before anything else is done; None without a name."""
    if path is None:
        yield None
        return
    try:
        out = path.open("w", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--record {path}: {error.strerror or error}") from None
    with out:
        yield out
