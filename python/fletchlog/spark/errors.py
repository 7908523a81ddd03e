"""What the data source refuses. Spark shows the text of these, so it says what, where and what to do."""

from __future__ import annotations


class OptionError(ValueError):
    """An option is unknown, refused, missing or malformed."""


class CheckpointError(ValueError):
    """The checkpoint of a query holds something else than offsets of this source."""


class BatchChangedError(RuntimeError):
    """A batch that is repeated with `transactionPerTask` is cut into other tasks than the first time."""


class LedgerMissingError(RuntimeError):
    """A batch is not the first one, its topic has records, and the ledger does not know the query: it may have been written already."""


class DataLossError(RuntimeError):
    """Records that the query was to read are gone, and `failOnDataLoss` is true."""


DATA_LOSS_ADVICE = (
    "Retention or a deleted topic may have taken records that this query had not read. Set the option failOnDataLoss to false to go on with what is there"
)
