"""Pictures, tables and the configuration reference, made by fletchlog itself while the site is built.

The picture of the README is a file of the repository: `python docs/hooks.py` draws it again.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import fletchlog as fl
from fletchlog import errors
from fletchlog._core import served_apis
from fletchlog.cli import app, arguments
from fletchlog.explain import (
    against,
    align,
    distinct,
    fairness,
    page,
    picture,
    title,
)
from fletchlog.explain import (
    polls as explain,
)
from fletchlog.explain.compare import ROWS
from fletchlog.explain.owners import ownership
from fletchlog.explain.owners_picture import draw
from fletchlog.explain.shapes import to_svg
from fletchlog.spark import options, sink_options

TOPICS = ("orders", "payments")
# five batches of 100 records a partition; a fetch brings two of them, a poll takes half of one
RECORDS, BATCH, MOST = 500, 100, 50
ROOT = Path(__file__).resolve().parents[1]
POLL_ORDER = ROOT / "docs/img/poll-order.svg"


def on_files(files: Any, config: Any) -> Any:
    """Adds what is generated."""
    # here, so that the picture of the README needs no mkdocs
    from mkdocs.structure.files import File

    runs = example_runs(polls=60)
    owners = [
        ownership(name, {"orders": 6}, {m: ["orders"] for m in ("c1", "c2", "c3")})
        for name in ("range", "cooperative-sticky")
    ]
    later = [
        ownership(
            o.assignor,
            o.topics,
            {m: ["orders"] for m in ("c1", "c2", "c3", "c4")},
            before=o,
        )
        for o in owners
    ]
    made = {
        "img/releases.svg": picture.svg(runs[:-1]),
        "img/assignment.svg": to_svg(
            draw([("before", owners), ("after c4 joined", later)])
        ),
        "order.html": page(runs, example_producer()),
        "contributing.md": contributing(config["repo_url"]),
    }
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Puts the tables where their marks are."""
    tables = {
        "<!-- fairness -->": fairness_table,
        "<!-- config -->": config_tables,
        "<!-- commands -->": commands,
        "<!-- retries -->": retries_table,
        "<!-- errors -->": errors_table,
        "<!-- served -->": served_table,
        "<!-- spark read -->": lambda: spark_table(options.KNOWN),
        "<!-- spark write -->": lambda: spark_table(sink_options.KNOWN),
        "<!-- spark refused -->": spark_refused,
    }
    for mark, make in tables.items():
        if mark in markdown:
            markdown = markdown.replace(mark, make())
    return markdown


def commands() -> str:
    """Every command of the shell, with its examples, arguments and options."""
    return "\n\n".join(
        part for name, found in app.commands() for part in _command(name, found)
    )


def _command(name: str, command: Any) -> list[str]:
    parts = [f"## {name}"]
    for paragraph in re.split(r"\n\s*\n", inspect.getdoc(command) or ""):
        example = paragraph.startswith(("  ", "fletchlog "))
        if example and parts[-1].startswith("```"):
            parts[-1] = parts[-1].removesuffix("\n```") + f"\n{paragraph.strip()}\n```"
        else:
            parts.append(
                f"```sh\n{paragraph.strip()}\n```" if example else _escaped(paragraph)
            )
    rows = [_parameter(one) for one, _, _ in arguments.parameters(command).values()]
    return (
        [*parts, table(["argument or option", "default", "meaning"], rows)]
        if rows
        else parts
    )


def _parameter(one: arguments.Parameter) -> list[str]:
    if not one.flags:
        left_out = "" if one.default is ... else "may be left out"
        return [f"`{one.metavar}`", left_out, _escaped(one.text)]
    names = " ".join(f"`{name}`" for name in one.flags)
    value = f" `{one.metavar}`" if one.metavar else ""
    empty = one.default in (None, False, "", ...)
    default = "" if empty else f"`{one.default}`{{.whole}}"
    return [names + value, default, _escaped(one.text)]


def _escaped(text: str) -> str:
    """Text in which Markdown sees nothing but text; text between backquotes stays code."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else re.sub(r"([\\*_<>|\[\]])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def served_table() -> str:
    """The APIs of Kafka's protocol that a listener serves."""
    rows = [
        f"| {key} | {name} | {low} - {high} |" for name, key, low, high in served_apis()
    ]
    return "\n".join(["| key | API | versions |", "|---|---|---|", *rows])


def spark_table(known: dict[str, tuple[str, str]]) -> str:
    """Options of the Spark format."""
    return table(
        ["option", "default", "meaning"],
        [[f"`{name}`", default, meaning] for name, (default, meaning) in known.items()],
    )


def spark_refused() -> str:
    """Options that are an error, and what to do instead."""
    rows = [
        [f"`{name}`", use, why]
        for use, refused in (("read", options.REFUSED), ("write", sink_options.REFUSED))
        for name, why in refused.items()
    ]
    return table(["option", "to", "why, or what to do instead"], rows)


def example_runs(polls: int) -> list[Any]:
    """The same topics under every row of the decision table and KIP-387."""
    with fl.Broker.in_memory(nodes=2) as broker:
        for topic in TOPICS:
            broker.create_topic(topic, partitions=3)
            with fl.Producer(
                broker, {"linger.ms": 60_000, "batch.size": 1_000_000}
            ) as producer:
                for partition in range(3):
                    for number in range(RECORDS):
                        producer.send(
                            topic,
                            value=b"0123456789",
                            partition=partition,
                            timestamp_ms=1_700_000_000_000,
                        )
                        if number % BATCH == BATCH - 1:
                            producer.flush()
        config = {"max.poll.records": MOST, "max.partition.fetch.bytes": 4000}
        first = explain(
            broker, TOPICS, config, polls=polls, title="the example of this page"
        )
        return align(
            [
                first,
                *against(
                    broker, TOPICS, config, [*list(ROWS)[1:], "kip-387"], polls=polls
                ),
            ]
        )


def contributing(repository: str) -> str:
    """CONTRIBUTING.md as a page of the site: links to files lead to the repository."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return re.sub(r"(\]\()(?!https?:)", rf"\g<1>{repository}/blob/main/", text)


def poll_order() -> str:
    """The picture of the README: the default order of a poll beside that of KIP-387."""
    runs = example_runs(polls=60)
    return picture.svg([runs[0], runs[-1]])


def example_producer() -> Any:
    """A producer whose second request loses its acknowledgement."""
    with fl.Broker.in_memory() as broker:
        broker.create_topic("orders", partitions=1)
        faults = fl.testing.FaultPlan()
        faults.on(api="Produce", nth=2).lose_response()
        config = {
            "enable.idempotence": True,
            "batch.size": 1,
            "retry.backoff.ms": 1,
            "fletchlog.trace": True,
        }
        with fl.Producer(broker, config, faults=faults) as producer:
            for number in range(4):
                producer.send("orders", value=b"%d" % number)
                producer.flush()
            return producer.trace().to_pyarrow()


def fairness_table() -> str:
    """Fairness of every row of the decision table and KIP-387; what decides the same is one line."""
    heads = [
        "order",
        "runs",
        "typical run",
        "longest run",
        "Jain's index",
        "worst wait, polls",
        "worst wait, records",
    ]
    rows = []
    for explanation in distinct(example_runs(polls=60)):
        f = fairness(explanation.polls, explanation.ends)
        rows.append(
            [
                title(explanation),
                f.runs,
                f.typical_run,
                f.longest_run,
                "" if f.jain is None else f"{f.jain:.3f}",
                f.worst_wait_polls,
                f.worst_wait_records,
            ]
        )
    return table(heads, rows)


def retries_table() -> str:
    """What happened to the batch whose acknowledgement was lost."""
    events = [event for event in example_producer().to_pylist() if event["batch"] == 1]
    heads = ["event", "base sequence", "failed attempts", "offset", "error"]
    rows = [
        [e["kind"], e["base_sequence"], e["attempts"], e["base_offset"], e["error"]]
        for e in events
    ]
    return table(heads, [["" if cell is None else cell for cell in row] for row in rows])


def errors_table() -> str:
    """Every exception, with Kafka's code, and what to do; an exception without advice of its own has that of its base."""
    rows = []
    for name in errors.__all__:
        found = getattr(errors, name)
        text = next(
            sentence for sentence in re.split(r"\n\n", (found.__doc__ or "").strip())
        )
        code = f"<br>{found.code} {found.name}" if "code" in vars(found) else ""
        again = "<br>may be repeated" if found.retriable else ""
        rows.append([f"`{name}`{code}{again}", " ".join(text.split()), advice(found)])
    return table(["exception, Kafka's code", "what happened", "what to do"], rows)


def advice(found: type[errors.KafkaError]) -> str:
    """What to do after an exception of this class."""
    return next(
        ADVICE[base.__name__] for base in found.__mro__ if base.__name__ in ADVICE
    )


# what a person does; the exceptions below one of these are meant, too
ADVICE = {
    "KafkaError": "Read the text: it says what happened, where, and what to do.",
    "ConfigError": "Correct the property; `fletchlog config WORD` lists those that there are.",
    "InvalidArgumentError": "Correct the call; the text names the argument.",
    "SchemaError": "Give the columns key, value, topic, partition, headers, timestamp the types that the text names.",
    "ReplayRefusedError": "Replay on a copy of the directory from before the run; traces of several members cannot be replayed.",
    "IllegalStateError": "Call in another order; nothing has changed.",
    "ClosedError": "Open the broker or client again, and make new clients of a new broker.",
    "TableConflictError": "Let one lander work on a table at a time; the same call continues behind what the other one has committed.",
    "ConcurrentAccessError": "Give each thread its own consumer; `wakeup()` may come from any thread.",
    "ForkedHandleError": "Open it in the child.",
    "ReadOnlyError": "Open without `read_only`, or let the writing process serve ([several processes](../howto/processes.md)).",
    "KafkaTimeoutError": "See whether the broker can be reached and has room; then raise the time-out that the text names.",
    "BufferExhaustedError": "Send more slowly, or raise `buffer.memory` or `max.block.ms`.",
    "WakeupError": "Nothing: you asked for it. Close the consumer, or poll again.",
    "InternalError": "Report it with its text. Close the handle and open a new one.",
    "StorageError": "See to the disk and its permissions, or to the object store, then repeat; objects that have changed: open a new broker.",
    "DirectoryError": "Name another directory, or leave out `read_only` to make one.",
    "DirectoryLockedError": "End the other writer, read with `read_only=True`, or let it serve ([several processes](../howto/processes.md)).",
    "DamagedFileError": "`fletchlog verify DIR` says which file and where. Restore it, or leave the partition out.",
    "FencedLogError": "See to the disk, close the broker, open it again.",
    "AuthenticationError": "Compare `security.protocol`, the certificates and the user on both sides ([TLS and SASL](../howto/tls.md)).",
    "SchemaRegistryError": "Read the text: the registry says what is wrong; 409 means that the schema is not compatible with the versions before it.",
    "SchemaRegistryUnavailableError": "See whether the registry runs and the URL is right, then call again.",
    "ListenerError": "Choose another port, or 0 for any that is free.",
    "PolicyViolationError": "Alter the topic's `cleanup.policy`, or open without `read_only`; the text says which.",
    "InvalidTopicError": "Use letters, digits, `.`, `_` and `-`, at most 249 characters.",
    "InvalidPartitionsError": "Give a number from 1 on that is not lower than before.",
    "TopicAlreadyExistsError": "Use it (`exist_ok=True` accepts it), or delete it first.",
    "UnknownTopicOrPartitionError": "`broker.topics()` or `fletchlog topics list` lists what there is; create the topic.",
    "OffsetOutOfRangeError": "Seek to a valid offset, or set `auto.offset.reset` to earliest or latest.",
    "NoOffsetForPartitionError": "Commit or seek first, or set `auto.offset.reset` to earliest or latest.",
    "CorruptRecordError": "`fletchlog verify DIR` says where. `seek` past the batch to go on without it.",
    "RecordDeserializationError": 'Decode with `on_error="null"` or `"collect"`, or correct the schema.',
    "InvalidRecordError": "Correct the record: a compacted topic needs keys.",
    "InvalidTimestampError": "Correct the timestamp, or raise `message.timestamp.before.max.ms` or `.after.max.ms`.",
    "RecordTooLargeError": "Send less at once, or raise `max.request.size` and the topic's `max.message.bytes`.",
    "RecordBatchTooLargeError": "Lower `batch.size`, or raise the topic's `segment.bytes`.",
    "UnsupportedFormatError": "Choose another codec, or a newer broker.",
    "InvalidRequiredAcksError": "Set `acks` to all, 0 or 1.",
    "OutOfOrderSequenceError": "Close the producer and make a new one; records before this one may be missing.",
    "DuplicateSequenceError": "Nothing: the record is in the log.",
    "InvalidProducerEpochError": "Abort the transaction, or make a new producer.",
    "ProducerFencedError": "End this producer: another one with its `transactional.id` works.",
    "UnknownProducerIdError": "Make a new producer.",
    "NotEnoughReplicasError": "Wait for the replicas, or lower `min.insync.replicas`.",
    "LeaderError": "Nothing at once: it is repeated. If it stays, look at the cluster.",
    "NetworkError": "Nothing at once: it is repeated. An idempotent producer is safe from repeats; otherwise see whether the record is there.",
    "TransactionError": "Abort the transaction and begin again.",
    "TransactionAbortableError": "`abort_transaction()`, then begin again.",
    "TransactionAbortedError": "Send the record again in the next transaction.",
    "InvalidTxnTimeoutError": "Lower `transaction.timeout.ms`, or raise the broker's `transaction.max.timeout.ms`.",
    "GroupError": "Poll: the member joins again by itself.",
    "CommitFailedError": "Poll more often, or less at once (`max.poll.interval.ms`, `max.poll.records`); what was read may be read again.",
    "InvalidGroupIdError": "Set `group.id`.",
    "InconsistentGroupProtocolError": "Give all members an assignor in common (`partition.assignment.strategy`).",
    "InvalidSessionTimeoutError": "Choose `session.timeout.ms` within the broker's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.",
    "FencedInstanceIdError": "Give each member a `group.instance.id` of its own.",
    "GroupMaxSizeReachedError": "Run fewer members, or raise the broker's `group.max.size`.",
    "GroupIdNotFoundError": "`broker.groups()` or `fletchlog groups list` lists what there is.",
    "NonEmptyGroupError": "Close its members first.",
    "GroupSubscribedToTopicError": "Close the members that read the topic first.",
    "InvalidRecordStateError": "Let a poll return less, `renew` what takes long, or raise `share.record.lock.duration.ms`; the work may be done twice.",
    "ShareSessionNotFoundError": "Nothing: the next poll opens another session. What was not acknowledged comes again.",
    "InvalidShareSessionEpochError": "Nothing: the next poll opens another session. What was not acknowledged comes again.",
    "FencedStateEpochError": "Nothing: the leader reads the state again. Alter offsets of a share group while it has no members.",
    "ShareSessionLimitReachedError": "Run fewer share consumers, or raise the broker's `group.share.max.share.sessions`.",
    "OffsetMetadataTooLargeError": "Commit a shorter text.",
    "UnknownServerError": "Look at the broker's log.",
}


def config_tables() -> str:
    """Every property, by scope."""
    scopes = list(dict.fromkeys(key.scope for key in fl.admin.config_table()))
    parts = []
    for scope in scopes:
        rows = [
            [
                f"`{k.name}`",
                _breakable(k.type.replace("|", "\\|")),
                f"`{k.default}`{{.whole}}" if k.default else "",
                _breakable(k.doc),
            ]
            for k in fl.admin.config_table()
            if k.scope == scope
        ]
        parts.append(
            f"## {scope.capitalize()}\n\n{table(['property', 'type', 'default', 'what it does'], rows)}"
        )
    return "\n\n".join(parts)


def _breakable(text: str) -> str:
    """Text whose dotted names may go on in the next line behind a dot."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else re.sub(r"(?<=\w)\.(?=[a-zA-Z])", ".<wbr>", part)
        for number, part in enumerate(parts)
    )


def table(heads: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [
        "| " + " | ".join(str(cell) for cell in row) + " |"
        for row in [heads, ["---"] * len(heads), *rows]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    POLL_ORDER.parent.mkdir(exist_ok=True)
    POLL_ORDER.write_text(poll_order(), encoding="utf-8")
