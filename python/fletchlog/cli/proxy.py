"""`fletchlog proxy`: before a cluster."""

from __future__ import annotations

from fletchlog._core import log_to
from fletchlog._place import CLUSTER
from fletchlog.cli import serve
from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import configured, properties
from fletchlog.cli.options import COMMAND_CONFIG, CONFIG
from fletchlog.cli.text import note, note_log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._place import Place


def proxy(
    cluster: Place = argument("CLUSTER", "kafka://HOST:PORT of the cluster.", places=(CLUSTER,)),
    listen: str = option("--listen", "Where to listen. Port 0: free ones; else the nodes get the next ones.", "127.0.0.1:9092", "HOST:PORT"),
    advertised: str | None = option("--advertised", "The host under which clients reach it, if that is another one.", metavar="HOST"),
    config: list[str] | None = CONFIG,
    command_config: Path | None = COMMAND_CONFIG,
    faults: Path | None = option("--faults", "Faults of requests: a plan in TOML or JSON. A report is printed at the end.", metavar="FILE"),
    record: Path | None = option("--record", "Record the session of its clients, without records and secrets.", metavar="FILE", writes=True),
    record_values: bool = option("--record-values", "The session keeps keys, values and headers of records.", False),
    control: str | None = option("--control", "Where tests control it over HTTP: faults and requests. Port 0: a free one.", metavar="HOST:PORT"),
    print_address: bool = option("--print-address", "Print one line of JSON: the bootstrap servers, the process id.", False),
    with_parent: bool = option("--with-parent", "End when the process that started it ends.", False),
) -> None:
    """Relay clients, in any language, to a cluster, with a port for each of its nodes.

    --config has properties of its ports (TLS with clients), --command-config those of a client of the cluster (TLS with the nodes).

    fletchlog proxy kafka://real:9092 --listen 127.0.0.1:9092

    fletchlog proxy kafka://real:9093 --command-config client.properties --faults plan.toml --record session.fltrace
    """
    import fletchlog as fl

    stopped, stop = serve.stop_on_signals()
    serve.allow_files()
    if with_parent:
        serve.end_with_parent(stop)
    log_to(note_log)
    serve.check_record(record)
    with (
        fl.Cluster(cluster.name, configured(command_config)) as real,
        real.proxy(listen, advertised=advertised, config=properties(config), record=record, record_values=record_values) as relay,
        serve.reported(relay),
    ):
        plan = serve.load_plan(relay, faults) if faults else None
        with serve.controlled(None, relay, control) as url:
            if print_address:
                print(serve.address(relay.bootstrap, url), flush=True)
            note(f"relaying to {cluster} at {relay.bootstrap}{url and f', controlled at {url}'}; Ctrl-C ends it")
            serve.wait(stopped)
        if plan:
            note(plan.report())
