"""Which batches of a query or an application are in the log: their entry in the ledger (`fletchlog.ledger`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.ledger import TOPIC, Ledger, has_records, names_of
from fletchlog.spark.errors import LedgerMissingError

if TYPE_CHECKING:
    from collections.abc import Callable

    import fletchlog as fl
    from fletchlog.spark.sink_options import SinkOptions


class Written:
    """The entry of a query or an application, or of one task of it, for one destination."""

    def __init__(self, admin: Any, peer: Any, options: SinkOptions, name: str, task: int | None = None) -> None:
        into = "" if options.topic is None else names_of(admin, admin.describe_topic(options.topic))[0]
        self._of_all = ("spark", into, name)
        self._key = self._of_all if task is None else (*self._of_all, str(task))
        self._admin, self._options, self._name, self._task = admin, options, name, task
        self._ledger = Ledger(admin, peer, options.client)
        self._ledger.create()

    def begin(self, producer: fl.Producer) -> None:
        """Ends what an earlier attempt has left open. Before anything is read of the ledger."""
        with self._ledger.rights():
            producer.init_transactions()

    def last(self) -> dict[str, Any] | None:
        """The last batch that was written: `batch`, its number, and `rows`, the fingerprint of a task's rows."""
        return self._ledger.read(*self._key)

    def is_missing(self) -> bool:
        """Whether no task of the query or the application has an entry. Batches may have different numbers of tasks."""
        return not self._ledger.knows(*self._of_all)

    def looks_at(self, batch: int) -> Callable[[str], None] | None:
        """What looks at each topic before its first row, where the query has no entry; None: nothing has to.

        A batch that is not the first one has an entry before it, unless the query goes into a new topic. If the topic has records, they may be this batch.
        """
        if batch == 0 or self._options.missing_ledger == "append":
            return None

        def look(topic: str) -> None:
            # In this order: another task of the batch may commit, rows and entry, in between. Its open transaction is no reason to stop.
            if has_records(self._admin, topic, undecided=self._task is None) and self.is_missing():
                raise LedgerMissingError(
                    f"batch {batch} of {self._name}: topic {topic} of {self._options.source} has records, and no batch of {self._name} is in the ledger, topic "
                    f"{TOPIC}: its entry may be lost, and the batch may be there already. Set the option missingLedger for one run: to append if it is not "
                    "there, as when the query is new in a topic that others fill, or to skip if it is"
                )

        return look

    def write(self, producer: fl.Producer, batch: int, rows: str | None = None) -> None:
        """The entry of a batch, as the last record of its transaction."""
        value: dict[str, Any] = {"name": self._name, "batch": batch}
        self._ledger.write(producer, value if rows is None else {**value, "rows": rows}, *self._key)
