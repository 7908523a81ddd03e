"""What the sub-commands share: errors in one sentence, `--config`, `--command-config`, a directory or a cluster."""

from __future__ import annotations

import functools
import os

from fletchlog._place import CLUSTER, DIRECTORY, STORE, STORES, Place
from fletchlog.cli.streams import PipeClosedError
from fletchlog.cli.text import note
from fletchlog_shell.interrupts import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn, ParamSpec, TypeVar

    import fletchlog as fl

    P = ParamSpec("P")
    R = TypeVar("R")


# how long a call to a cluster may take: a person waits for it
CLUSTER_MS = 15_000


class CommandError(Exception):
    """What the user asked for cannot be done; the text is all that is shown."""


class UsageError(Exception):
    """An argument is no text; exit code 2, as for an option that there is not."""


class Given(os.PathLike[str]):
    """A place as it is typed; the command gets the `Place`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __fspath__(self) -> str:
        return self.text


def command(function: Callable[P, R]) -> Callable[P, R]:
    """Turns expected errors into one sentence and exit code 1; everything else is a defect and keeps its traceback."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            taken: dict[str, Any] = {name: _taken(value, name, function) for name, value in kwargs.items()}
            if not getattr(function, "takes_clusters", False):
                refuse(taken.values())
            return function(*args, **taken)
        except UsageError as error:
            fail(str(error), 2)
        # ImportError: an extra is missing, and its text says which
        except (CommandError, _kafka_error(), ImportError) as error:
            fail(in_words_of_the_shell(error))
        except OverflowError as error:
            fail(f"a number is out of range: {error}")
        except BrokenPipeError:
            # the reader of --output has seen enough
            raise PipeClosedError from None
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{error.strerror or error}")
        except KeyboardInterrupt:
            note("interrupted")
            raise SystemExit(INTERRUPTED) from None

    return wrapped


def in_words_of_the_shell(error: Exception) -> str:
    """The sentence of an error. What it advises a program to call becomes the command that does it."""
    import re

    from fletchlog import errors

    advice = {
        errors.UnknownTopicOrPartitionError: "`fletchlog topics create DIR TOPIC` makes one, `fletchlog topics list DIR` lists what there is",
        errors.GroupIdNotFoundError: "`fletchlog groups list DIR` lists what there is",
        errors.DirectoryLockedError: "commands that only read work beside it; to write too, let it `fletchlog serve DIR`, and use kafka://HOST:PORT",
    }
    # a server that is only an address has no number yet
    text = re.sub(r"\bnode -\d+: ", "", str(error))
    command = next((words for kind, words in advice.items() if isinstance(error, kind)), None)
    # what follows the semicolon is the engine's advice, in words of Python
    return text if command is None else f"{text.partition('; ')[0]}; {command}"


def topic(broker: fl.Broker | fl.Cluster, name: str, advice: str | None = None) -> fl.admin.TopicDescription:
    """A topic that the user has named; `advice` is what to do if there is none.

    Raises:
        CommandError: There is none.
    """
    from fletchlog.errors import UnknownTopicOrPartitionError

    try:
        return broker.describe_topic(name)
    except UnknownTopicOrPartitionError:
        raise CommandError(_missing("topic", name, broker.topics(include_internal=True), advice or f"`fletchlog topics create DIR {name}` makes it")) from None


def names_in(text: str) -> list[str]:
    """The names of a list with commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def topics_of(place: os.PathLike[str], text: str, client: Mapping[str, str] | None = None) -> list[str]:
    """The topics of a list with commas, each of which the place has; `client`: properties of the clients of a cluster.

    Raises:
        CommandError: It lacks one.
    """
    names = names_in(text)
    if names:
        with opened(place, read_only=True, client=client) as broker:
            for name in names:
                topic(broker, name, f"`fletchlog topics list {shown(place)}` lists what there is")
    return names


def group(broker: fl.Broker | fl.Cluster, name: str) -> fl.admin.GroupListing:
    """A group that the user has named, of any protocol.

    Raises:
        CommandError: There is none.
    """
    groups = {listed.group_id: listed for listed in broker.groups()}
    if name not in groups:
        raise CommandError(_missing("group", name, groups, "`fletchlog groups list DIR` lists what there is"))
    return groups[name]


def _missing(kind: str, name: str, names: Iterable[str], advice: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, names, n=3)
    meant = f" did you mean {' or '.join(near)}?" if near else ""
    return f"there is no {kind} {name};{meant} {advice}"


def takes_clusters(function: Callable[P, R]) -> Callable[P, R]:
    """A command whose directory may be a cluster, or on an object store: it uses `opened`."""
    function.takes_clusters = True  # type: ignore[attr-defined]
    return function


def _kafka_error() -> type[Exception]:
    from fletchlog.errors import KafkaError

    return KafkaError


# arguments that may be paths, whose bytes are anything, and have another type than that
_MAY_BE_PATHS = {"sources", "compare", "destination", "directory", "config_file"}


def _taken(value: object, name: str, function: Callable[..., object]) -> object:
    """An argument as its command takes it: a `Place`, a path of this machine, a text in UTF-8."""
    if isinstance(value, (list, tuple)):
        return [_taken(item, name, function) for item in value]
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if "\0" in text:
        raise UsageError(f"{_flag(name, function)} has a byte that is 0")
    if isinstance(value, Given):
        return _named(text, name, function)
    try:
        data = os.fsencode(text)
        if isinstance(value, os.PathLike):
            place = _named(text, name, function)
            if place.kind != DIRECTORY:
                raise CommandError(f"{place}: {_flag(name, function)} is a file of this machine")
            if place.name == text:
                return value
            from pathlib import Path

            return Path(place.name)
        return text if name in _MAY_BE_PATHS else data.decode()
    except UnicodeError:
        pass
    # not what the operating system has handed over
    try:
        text.encode()
    except UnicodeError:
        raise UsageError(f"{_flag(name, function)} is no text in UTF-8: {text}") from None
    return value


def _named(text: str, name: str, function: Callable[..., object]) -> Place:
    from fletchlog.errors import InvalidArgumentError

    try:
        return place_of(text)
    except InvalidArgumentError:
        if any(0xD800 <= ord(c) <= 0xDFFF for c in text):  # noqa: PLR2004 - halves of surrogate pairs stand for bytes that are no UTF-8
            raise UsageError(f"{_flag(name, function)} is no text in UTF-8: {text}") from None
        raise


def _flag(name: str, function: Callable[..., object]) -> str:
    """How the user knows an argument: its flag, or what the help calls it."""
    import inspect
    from typing import get_args

    annotation = inspect.signature(function, eval_str=True).parameters[name].annotation
    for info in get_args(annotation)[1:]:
        if declared := getattr(info, "param_decls", None):
            return str(max(declared, key=len))
        if type(info).__name__ == "ArgumentInfo":
            return str(info.metavar or name.upper())
    return f"--{name.replace('_', '-')}"


def refuse(arguments: Iterable[object]) -> None:
    """Refuses what is no directory of this machine.

    Raises:
        CommandError: An argument is a cluster, or a place on an object store.
    """
    for argument in arguments:
        if not isinstance(argument, os.PathLike):
            continue
        place = place_of(argument)
        if place.kind == CLUSTER:
            raise CommandError(f"{place} is a cluster; this command works on a directory")
        if place.kind == STORE:
            raise CommandError(f"{place}: object stores are read-only; this command works on a directory of this machine; `fletchlog copy` makes one")


def place_of(source: os.PathLike[str] | str) -> Place:
    """What a path or URI names. `Path` turns the slashes of a URI into one, or none at the end."""
    import re

    if isinstance(source, Place):
        return source
    text = os.fspath(source)
    collapsed = re.fullmatch(rf"({'|'.join(STORES)}|kafka):(?:/([^/].*)?)?", text, re.DOTALL | re.IGNORECASE)
    return Place(f"{collapsed[1]}://{collapsed[2] or ''}" if collapsed else text)


def fail(message: str, code: int = 1) -> NoReturn:
    """Shows `message` and ends the command with this code."""
    note(f"fletchlog: {message}")
    raise SystemExit(code) from None


def properties(pairs: Iterable[str] | None) -> dict[str, str]:
    """`name=value` texts as a mapping.

    Raises:
        CommandError: A text without `=`.
    """
    result = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name.strip():
            raise CommandError(f"--config wants NAME=VALUE, got {pair}")
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


def properties_of_file(path: str) -> dict[str, str]:
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


def configured(file: os.PathLike[str] | str | None, pairs: Iterable[str] | None = None) -> dict[str, str]:
    """Properties of clients: those of the command line before those of a file. The address that the user has typed goes before that of the file.

    Raises:
        CommandError: As `properties` and `properties_of_file` raise it.
    """
    of_file = properties_of_file(os.fspath(file)) if file is not None else {}
    return {name: value for name, value in of_file.items() if name != "bootstrap.servers"} | properties(pairs)


def cluster_of(source: os.PathLike[str] | str) -> str | None:
    """The address, if a cluster is given in place of a directory."""
    place = place_of(source)
    return place.name if place.kind == CLUSTER else None


def store_of(source: os.PathLike[str] | str) -> str | None:
    """The URI, if a place on an object store is given."""
    place = place_of(source)
    return place.name if place.kind == STORE else None


def storage_options() -> dict[str, str]:
    """Options of object stores, of the file of properties that `FLETCHLOG_STORAGE_CONFIG` names."""
    path = os.environ.get("FLETCHLOG_STORAGE_CONFIG")
    # without blanks at the end, which cannot be seen; those of clients are removed where the clients read them, as in Kafka
    return {name: value.strip() for name, value in properties_of_file(path).items()} if path else {}


def shown(source: os.PathLike[str]) -> str:
    """The directory, the address of the cluster, or the URI of the store without secrets, for a message."""
    return str(place_of(source))


def opened(
    source: os.PathLike[str], *, read_only: bool = False, create: bool = False, nodes: int | None = None, client: Mapping[str, str] | None = None
) -> fl.Broker | fl.Cluster:
    """The broker of a directory or of a place on an object store, or a cluster; `client`: properties of the clients of a cluster.

    Raises:
        CommandError: A directory that does not exist, unless `create`, or that a Kafka broker has written, unless `read_only`.
    """
    import fletchlog as fl

    address = cluster_of(source)
    if address is not None:
        return fl.Cluster(address, {"default.api.timeout.ms": CLUSTER_MS} | dict(client or {}))
    if uri := store_of(source):
        if not read_only:
            refuse([source])
        return fl.Broker(uri, read_only=True, nodes=nodes, storage_options=storage_options())
    return opened_directory(source, read_only=read_only, create=create, nodes=nodes)


def opened_directory(source: os.PathLike[str], *, read_only: bool = False, create: bool = False, nodes: int | None = None) -> fl.Broker:
    """As `opened`, for a command that works on directories of this machine only."""
    import fletchlog as fl

    source = place_of(source)
    if not create and not os.path.lexists(source):
        raise CommandError(f"{shown(source)}: does not exist; `fletchlog topics create {shown(source)} TOPIC` makes it")
    if not read_only:
        refuse_kafkas(source)
    return fl.Broker(source, read_only=read_only, create=create, nodes=nodes)


def refuse_kafkas(directory: os.PathLike[str] | str) -> None:
    """Before a command writes to a directory.

    Raises:
        CommandError: A Kafka broker has written it, and fletchlog has not taken it over.
    """
    where = os.fspath(directory)
    if os.path.lexists(f"{where}/meta.properties") and not os.path.lexists(f"{where}/fletchlog.metadata"):
        raise CommandError(f"{where} was written by a Kafka broker and can be read; `fletchlog take-over {where}` lets fletchlog write to it")


def peer(broker: fl.Broker | fl.Cluster, source: os.PathLike[str]) -> fl.Broker | str:
    """What a client connects to, given what `opened` gave for this source."""
    import fletchlog as fl

    return broker if isinstance(broker, fl.Broker) else cluster_of(source) or ""
