"""List the transactional ids of a directory or cluster, and abort an open transaction."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from fletchlog.cli.arguments import argument
from fletchlog.cli.common import CommandError, configured, opened
from fletchlog.cli.options import COMMAND_CONFIG, JSON, PLACE
from fletchlog.cli.tables import done, show

if TYPE_CHECKING:
    from pathlib import Path

    from fletchlog._place import Place


def list_transactions(directory: Place = PLACE, as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG) -> None:
    """List the transactional ids with the state of their transactions, also while another process writes.

    fletchlog transactions list data/
    """
    with opened(directory, read_only=True, client=configured(command_config)) as broker:
        rows = [
            {
                "transactional id": found.transactional_id,
                "state": found.state,
                "producer": found.producer_id,
                "epoch": found.producer_epoch,
                "began": None if found.start_ms < 0 else dt.datetime.fromtimestamp(found.start_ms / 1000, dt.UTC).isoformat(timespec="milliseconds"),
                "partitions": [f"{tp[0]}-{tp[1]}" for tp in found.partitions],
            }
            for found in broker.transactions()
        ]
    show(rows, as_json=as_json, empty=f"{directory} knows no transactional id")


def abort(
    directory: Place = PLACE, transactional_id: str = argument("ID", "transactional.id."), as_json: bool = JSON, command_config: Path | None = COMMAND_CONFIG
) -> None:
    """Abort the open transaction of a transactional id, whose producer is fenced off. One that was decided to commit is completed.

    fletchlog transactions abort data/ copier
    """
    import fletchlog as fl

    asked = configured(command_config)
    with opened(directory, client=asked) as broker:
        state = next((found.state for found in broker.transactions() if found.transactional_id == transactional_id), None)
        if state is None:
            raise CommandError(f"there is no transactional id {transactional_id}; `fletchlog transactions list {directory}` lists what there is")
        if state != "Ongoing":
            raise CommandError(f"{transactional_id} has no open transaction: its state is {state}")
        with fl.Producer(broker, asked | {"transactional.id": transactional_id}) as producer:
            producer.init_transactions()
    done(f"aborted the transaction of {transactional_id}", as_json=as_json, transactional_id=transactional_id)


COMMANDS = {"list": list_transactions, "abort": abort}
