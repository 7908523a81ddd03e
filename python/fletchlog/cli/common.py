"""What the sub-commands share: errors in one sentence, `--config`, `--command-config`, and how a place is opened."""

from __future__ import annotations

import os

from fletchlog._place import CLUSTER, STORE, Place, address_meant
from fletchlog.cli.text import note, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, NoReturn

    import fletchlog as fl

# topics that nobody makes, and what makes them
INTERNAL = {
    "__consumer_offsets": "the first commit of a group",
    "__transaction_state": "the first transaction",
    "__share_group_state": "the first share group",
    "__fletchlog_ledger": "the first copy into this place",
}
# how long a call to a cluster may take: a person waits for it
CLUSTER_MS = 15_000


class CommandError(Exception):
    """What the user asked for cannot be done; the text is all that is shown."""


class UsageError(Exception):
    """An argument is no text; exit code 2, as for an option that there is not."""


# What messages for programs say, and what the shell has for it; at last, what they advise and the shell has not.
_WORDS = (
    # a server that is only an address has no number yet
    (r"\bnode -\d+: ", ""),
    # both are named, as in append=True (--append)
    (r"\b\w+=(?:\{[^}]*\}|\S+) \((--[^)]+)\)", r"\1"),
    (r"; open it without read_only to begin a log in it", "; `fletchlog topics create DIR TOPIC` begins a log in it"),
    (r"\bread_only=True reads them\b", "commands that only read work on it"),
    (r"; open it with read_only=True$", "; commands that only read work on it"),
    (r"^start_offsets(?=\b)", "--start-offset"),
    (r"^flatten=True makes columns of decoded values: .*", "--flatten makes columns of decoded values: give --value or --key"),
    (r"; fix the deserializer, or pass on_error='null' or 'collect' to go on", "; --on-error null or collect continues"),
    (r"(?:; |, or |, and )[^;,]*(?:=True|=False|\bread_only\b|\btake_over\b|\bexist_ok\b)[^;,]*", ""),
)


def in_words_of_the_shell(error: Exception, places: Iterable[Place] = ()) -> str:
    """The sentence of an error. What it advises a program to call becomes the command that does it, on the place of this one if it has one only."""
    import re
    import shlex

    from fletchlog import errors

    advice = {
        errors.UnknownTopicOrPartitionError: "`fletchlog topics create DIR TOPIC` makes one, `fletchlog topics list DIR` lists what there is",
        errors.TopicAlreadyExistsError: "--if-not-exists accepts that",
        errors.GroupIdNotFoundError: "`fletchlog groups list DIR` lists what there is",
        errors.DirectoryLockedError: "commands that only read work beside it; to write too, let it `fletchlog serve DIR`, and use kafka://HOST:PORT",
    }
    text = str(error)
    for words, own in _WORDS:
        text = re.sub(words, own, text)
    command = next((words for kind, words in advice.items() if isinstance(error, kind)), None)
    if "group of another type" in text:
        command = None  # the list has it
    # what follows the semicolon is the engine's advice, in words of Python
    text = text if command is None else f"{text.partition('; ')[0].removesuffix('.')}; {command}"
    names = [shlex.quote(str(place)) for place in places]
    return re.sub("(`fletchlog [a-z ]+ )DIR\\b", lambda found: f"{found[1]}{names[0]}", text) if len(names) == 1 else text


def topic(broker: fl.Broker | fl.Cluster, name: str, advice: str | None = None) -> fl.admin.TopicDescription:
    """A topic that the user has named; `advice` is what to do if there is none.

    Raises:
        CommandError: There is none.
    """
    from fletchlog.errors import UnknownTopicOrPartitionError

    try:
        return broker.describe_topic(name)
    except UnknownTopicOrPartitionError:
        if not name.strip():
            raise CommandError("the name of a topic is empty") from None
        if name in INTERNAL:
            raise CommandError(f"there is no topic {name} yet: it is internal, and made by {INTERNAL[name]}") from None
        # what is no name cannot be made
        made = f"`fletchlog topics create DIR {name}` makes it" if all(c.isascii() and (c.isalnum() or c in "._-") for c in name) else ""
        raise CommandError(missing("topic", name, broker.topics(include_internal=True), advice or made)) from None


def names_in(text: str) -> list[str]:
    """The names of a list with commas; none if there is no text.

    Raises:
        CommandError: A text without a name.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise CommandError("--topics names no topic")
    return names


def topics_of(place: Place, text: str, client: Mapping[str, Any] | None = None) -> list[str]:
    """The topics of a list with commas, each of which the place has; `client`: properties of the clients of a cluster.

    Raises:
        CommandError: It lacks one.
    """
    names = names_in(text)
    if names:
        with opened(place, read_only=True, client=client) as broker:
            for name in names:
                topic(broker, name, f"`fletchlog topics list {place}` lists what there is")
    return names


def group(broker: fl.Broker | fl.Cluster, name: str) -> fl.admin.GroupListing:
    """A group that the user has named, of any protocol.

    Raises:
        CommandError: There is none.
    """
    groups = {listed.group_id: listed for listed in broker.groups()}
    if name not in groups:
        raise CommandError(missing("group", name, groups, "`fletchlog groups list DIR` lists what there is"))
    return groups[name]


def missing(kind: str, name: str, names: Iterable[str], advice: str) -> str:
    """Says that there is no such thing, and which was meant."""
    import difflib

    near = difflib.get_close_matches(name, names, n=3)
    meant = f" did you mean {' or '.join(near)}?" if near else ""
    return f"there is no {kind} {name};{meant} {advice}".rstrip(" ;")


def fail(message: str, code: int = 1) -> NoReturn:
    """Shows `message` and ends the command with this code."""
    note(f"fletchlog: {message}")
    raise SystemExit(code) from None


def properties(pairs: Iterable[str] | None) -> dict[str, Any]:
    """`name=value` texts as a mapping.

    Raises:
        CommandError: A text without `=`, or a name that comes twice.
    """
    result = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise CommandError(f"--config wants NAME=VALUE, got {pair}")
        if name.strip() in result:
            raise CommandError(f"{name.strip()} is given twice")
        result[name.strip()] = value.strip()
    return result


def changed_properties(config: list[str] | None, reset: list[str] | None, if_nothing: str | None) -> dict[str, str | None]:
    """What --config sets, and --delete-config resets (None). `if_nothing`: the error when there is neither.

    Raises:
        CommandError: Nothing to change, a text without `=`, a property in both.
    """
    changes: dict[str, str | None] = {**properties(config), **dict.fromkeys(reset or [])}
    if if_nothing is not None and not changes:
        raise CommandError(if_nothing)
    if both := sorted(set(properties(config)) & set(reset or [])):
        raise CommandError(f"--config sets {both[0]}, and --delete-config resets it")
    return changes


def properties_of_file(path: os.PathLike[str] | str) -> dict[str, Any]:
    r"""A file of Java's properties, read by its rules (java.util.Properties): escapes, `=`, `:` or a blank as separator, lines that `\` continues.

    UTF-8, or Latin-1 as in Java where it is no UTF-8.

    Raises:
        CommandError: There is no such file, or it is none of properties. No message shows a value.
    """
    import re
    from pathlib import Path

    from fletchlog.interop import require

    javaproperties = require("javaproperties", "cli")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from None
    if b"\0" in data:
        raise CommandError(f"{path} is no file of properties in UTF-8 or Latin-1: it has bytes that are 0, as UTF-16 has; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    result = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                if not element.key:
                    raise CommandError(f"{path}, line {line}: there is no name before the separator")
                try:
                    f"{element.key}{element.value}".encode()
                except UnicodeEncodeError:
                    raise CommandError(f"{path}, line {line}: half of a surrogate pair, which is no character") from None
                result[element.key] = element.value
            line += len(re.findall("\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError:
        raise CommandError(rf"{path}, line {line}: `\u` without four hexadecimal digits; a backslash itself is written `\\`") from None
    return result


def configured(file: os.PathLike[str] | str | None, pairs: Iterable[str] | None = None) -> dict[str, Any]:
    """Properties of clients: those of the command line before those of a file. The address that the user has typed goes before that of the file.

    Raises:
        CommandError: As `properties` and `properties_of_file` raise it.
    """
    of_file = properties_of_file(file) if file is not None else {}
    return {name: value for name, value in of_file.items() if name != "bootstrap.servers"} | properties(pairs)


def storage_options() -> dict[str, str]:
    """Options of object stores, of the file of properties that `FLETCHLOG_STORAGE_CONFIG` names."""
    path = os.environ.get("FLETCHLOG_STORAGE_CONFIG")
    # without blanks at the end, which cannot be seen; those of clients are removed where the clients read them, as in Kafka
    return {name: value.strip() for name, value in properties_of_file(path).items()} if path else {}


def refuse(place: Place) -> None:
    """Refuses what is no directory of this machine.

    Raises:
        CommandError: It is a cluster, or a place on an object store.
    """
    if place.kind == CLUSTER:
        raise CommandError(f"{place} is a cluster; this command works on a directory")
    if place.kind == STORE:
        raise CommandError(f"{place}: object stores are read-only; this command works on a directory of this machine; `fletchlog copy` makes one")


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is deleted, unless `yes`.

    Raises:
        CommandError: The answer is no.
    """
    import sys

    if not yes:
        print(visible(f"{question}? [y/N]: "), end="", file=sys.stderr, flush=True)
        if sys.stdin is None or sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise CommandError("nothing was deleted")


def opened(
    place: Place, *, read_only: bool = False, create: bool = False, nodes: int | None = None, client: Mapping[str, Any] | None = None
) -> fl.Broker | fl.Cluster:
    """The broker of a directory or of a place on an object store, or a cluster; `client`: properties of the clients of a cluster.

    Raises:
        CommandError: A directory that does not exist, unless `create`, or that a Kafka broker has written, unless `read_only`.
    """
    import fletchlog as fl

    if place.kind == CLUSTER:
        return fl.Cluster(place.name, {"default.api.timeout.ms": CLUSTER_MS} | dict(client or {}))
    return opened_directory(place, read_only=read_only, create=create, nodes=nodes)


def opened_directory(place: Place, *, read_only: bool = False, create: bool = False, nodes: int | None = None) -> fl.Broker:
    """As `opened`, for a command that does not work on clusters."""
    import fletchlog as fl

    if place.kind == STORE:
        if not read_only:
            refuse(place)
        return fl.Broker(place.name, read_only=True, nodes=nodes, storage_options=storage_options())
    if meant := address_meant(place.name):
        raise CommandError(f"{place} is no directory; the address of a cluster is {meant}, a directory of this name is ./{place}")
    if not create and not os.path.lexists(place):
        raise CommandError(f"{place}: does not exist; {'check the name' if read_only else f'`fletchlog topics create {place} TOPIC` makes it'}")
    if not read_only:
        refuse_kafkas(place)
    return fl.Broker(place, read_only=read_only, create=create, nodes=nodes)


def refuse_kafkas(place: Place) -> None:
    """Before a command writes to a directory.

    Raises:
        CommandError: A Kafka broker has written it, and fletchlog has not taken it over.
    """
    where = place.name
    if os.path.lexists(f"{where}/meta.properties") and not os.path.lexists(f"{where}/fletchlog.metadata"):
        raise CommandError(f"{where} was written by a Kafka broker and can be read; `fletchlog take-over {where}` lets fletchlog write to it")
