"""All commands: `run` finds one by its words, and loads only that."""

from __future__ import annotations

from fletchlog._place import Place
from fletchlog.cli.arguments import HELP, read, wrong
from fletchlog.cli.common import CommandError, UsageError, fail, in_words_of_the_shell, missing
from fletchlog.cli.interrupts import INTERRUPTED
from fletchlog.cli.streams import PipeClosedError
from fletchlog.cli.text import note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from fletchlog.cli.arguments import Command

TEXT = """Kafka's log and Kafka's exact ordering rules in a directory.

A first look:

  fletchlog topics create data/ orders --partitions 3

  seq 1000 | fletchlog produce data/ orders

  fletchlog consume data/ orders --max 20

  fletchlog explain data/ --topics orders --png order.png
"""
OPTIONS = (
    ("--version", "Print the version and stop."),
    ("--install-completion", "Let the shell complete commands, options, and names of topics and groups."),
    ("--show-completion", "Print what --install-completion adds to the files of the shell."),
)
# each with the first line of its docstring, so that the help loads none of them
COMMANDS = {
    "serve": "Serve Kafka's protocol over TCP, for clients in any language.",
    "proxy": "Relay clients, in any language, to a cluster, with a port for each of its nodes.",
    "produce": "Write records into a topic, from standard input or a file.",
    "consume": "Print or save records, in the order in which poll() returns them.",
    "copy": "Copy topics up to their ends as of now; the same command again copies what is new.",
    "export": "Copy a directory to an object store, or to another directory, as it is at one moment.",
    "land": "Bring topics into a table of Parquet files, Delta or Iceberg, each record once; the same command again brings what is new.",
    "explain": "Tell which partition each poll() reads and why, in words, pictures or a page.",
    "delete-records": "Delete the oldest records of a topic.",
    "clean": "Compact a topic now: of each key the newest record stays.",
    "retention": "Delete now what retention.ms and retention.bytes of the topics do not keep.",
    "take-over": "Let fletchlog write to a directory that a Kafka broker has written. The broker must be stopped.",
    "assign": "Show who owns which partition under each assignor, who idles and why, before and after a member joins or leaves.",
    "audit": "Look for gaps, repeats, steps back in time, late and idle partitions; exit code 1 if a threshold is exceeded.",
    "dump": "Show what is in a segment file: every batch with offsets, producer, checksum; or its records.",
    "verify": "Check every batch, index, snapshot and checkpoint of a directory.",
    "config": "Print every configuration property with its default and what it does.",
    "topics": "List, create, describe, alter and delete topics of a directory.",
    "groups": "List, describe, reset, alter and delete the consumer and share groups of a directory.",
    "brokers": "Describe and alter the properties of a broker's nodes.",
    "transactions": "List the transactional ids of a directory or cluster, and abort an open transaction.",
    "users": "Add, list and remove the users of SCRAM that clients of a listener can be.",
}
_MODULES = dict.fromkeys(("delete-records", "clean", "retention", "take-over"), "upkeep")


def loaded(name: str) -> Command | Mapping[str, Command]:
    """A command, or the commands of a group."""
    module = __import__(f"fletchlog.cli.{_MODULES.get(name, name)}", fromlist=[name])
    found: Command | Mapping[str, Command] = getattr(module, "COMMANDS", None) or getattr(module, name.replace("-", "_"))
    return found


def commands() -> Iterator[tuple[str, Command]]:
    """Every command with its words."""
    for name in COMMANDS:
        found = loaded(name)
        yield from [(name, found)] if callable(found) else [(f"{name} {each}", command) for each, command in found.items()]


def found(prog: str, words: Sequence[str]) -> tuple[str, Command, Sequence[str]]:
    """A command with its name and the words behind that. Help, and what is no command, ends the process."""
    name = _chosen(prog, TEXT, words, COMMANDS)
    command = loaded(name)
    if callable(command):
        return f"{prog} {name}", command, words[1:]
    each = _chosen(f"{prog} {name}", COMMANDS[name], words[1:], {each: (one.__doc__ or "").partition("\n")[0] for each, one in command.items()})
    return f"{prog} {name} {each}", command[each], words[2:]


def _chosen(prog: str, text: str, words: Sequence[str], names: Mapping[str, str]) -> str:
    if words and words[0] in names:
        return words[0]
    word = words[0] if words else ""
    options = OPTIONS if text is TEXT else ()
    if word and not word.startswith("-"):
        which = "" if text is TEXT else f"{prog} is followed by one of {', '.join(names)}"
        wrong(prog, missing("command", word, names, which).rstrip("; "))
    if word == "--version" and options:
        import fletchlog

        print(f"fletchlog {fletchlog.__version__}")
    elif word in {"--install-completion", "--show-completion"} and options:
        from fletchlog.cli import completion

        completion.show(install=word == "--install-completion")
    elif word and word not in HELP:
        wrong(prog, f"there is no option {word}")
    else:
        from fletchlog.cli import help_

        help_.of_group(prog, text, names, [*options, ("--help, -h", "Show this text.")])
    raise SystemExit(0 if word else 2)


def run(words: Sequence[str], prog: str = "fletchlog") -> None:
    """Runs a command. An expected error becomes one sentence and exit code 1; everything else is a defect and keeps its traceback."""
    from fletchlog.errors import KafkaError

    if words[:1] == ["--complete"]:
        from fletchlog.cli import completion

        completion.complete(words[1:])
        return
    given: dict[str, Any] = {}
    try:
        name, command, rest = found(prog, words)
        given = read(name, command, rest)
        command(**given)
    except UsageError as error:
        fail(str(error), 2)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        fail(f"the command line needs {package}; install it with: pip install 'fletchlog[cli]'" if package in {"rich", "pyarrow", "numpy"} else str(error))
    # ImportError: an extra is missing, and its text says which
    except (CommandError, KafkaError, ImportError) as error:
        fail(in_words_of_the_shell(error, [value for value in given.values() if isinstance(value, Place)]))
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
