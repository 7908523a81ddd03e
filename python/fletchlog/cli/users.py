"""Add, list and remove the users of SCRAM that clients of a listener can be."""

from __future__ import annotations

import getpass
import json
import sys
from typing import TYPE_CHECKING

from fletchlog.cli.arguments import argument, option
from fletchlog.cli.common import CommandError, opened_directory
from fletchlog.cli.options import DIR, JSON
from fletchlog.cli.tables import done, show
from fletchlog.cli.text import visible

if TYPE_CHECKING:
    from typing import Any

    from fletchlog._place import Place


MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
USER = argument("USER", "Name of the user.")
MECHANISM = option("--mechanism", "SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. Both unless given.", metavar="NAME")


def add(
    directory: Place = DIR,
    user: str = USER,
    mechanism: list[str] | None = MECHANISM,
    iterations: int = option("--iterations", "Iterations of PBKDF2.", 4096),
    as_json: bool = JSON,
) -> None:
    """Give a user a password, which is asked for; without a terminal it is the first line of standard input.

    fletchlog users add data/ alice
    """
    password = _password(user)
    wanted: list[Any] = list(mechanism or MECHANISMS)
    with opened_directory(directory, create=True) as broker:
        for name in wanted:
            broker.upsert_user_scram_credential(user, password, name, iterations)
    done(f"{user} has a password for {' and '.join(wanted)}", as_json=as_json, user=user, mechanisms=wanted)


def list_users(directory: Place = DIR, as_json: bool = JSON) -> None:
    """List the users of a directory, also while another process writes to it.

    fletchlog users list data/
    """
    import fletchlog as fl

    with fl.Broker(directory, read_only=True) as broker:
        known = broker.describe_user_scram_credentials()
    if as_json:
        print(json.dumps(known, indent=2))
        return
    rows = [{"user": user, "mechanism": name, "iterations": count} for user, mechanisms in known.items() for name, count in mechanisms.items()]
    show(rows, as_json=False, empty=f"{directory} has no user of SCRAM")


def remove(directory: Place = DIR, user: str = USER, mechanism: list[str] | None = MECHANISM, as_json: bool = JSON) -> None:
    """Take a user's passwords away.

    fletchlog users remove data/ alice
    """
    with opened_directory(directory) as broker:
        known = broker.describe_user_scram_credentials().get(user, {})
        wanted: list[Any] = mechanism or list(known)
        if not wanted or not set(wanted) <= set(known):
            raise CommandError(f"{visible(user)} has no password for {' or '.join(mechanism or MECHANISMS)}")
        for name in wanted:
            broker.delete_user_scram_credential(user, name)
    done(f"{user} has no password for {' and '.join(wanted)} any more", as_json=as_json, user=user, mechanisms=wanted)


def _password(user: str) -> str:
    """Asks twice at a terminal; else the first line of standard input."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass.getpass(f"Password of {visible(user)}: ")
        if getpass.getpass("Once more: ") != password:
            raise CommandError("the two passwords differ")
    if not password:
        raise CommandError("the password is empty")
    return password


COMMANDS = {"add": add, "list": list_users, "remove": remove}
