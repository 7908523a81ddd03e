"""Keys and values in a format (`--value avro`): what `consume` decodes, and `produce` encodes."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING, Any, Self

from fletchlog.cli.common import CommandError
from fletchlog.cli.text import controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from fletchlog.serde.formats import Format

POLICIES = {"fail": "fail", "null": "null", "show": "show"}
# what a field of JSON texts says of itself
_AS_IT_IS = {b"fletchlog": b"json"}
# within a JSON text they are between its parts alone
_ENDS = str.maketrans("\r\n", "  ")
_BLANKS = re.compile(rb'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


_ENCODE = json.JSONEncoder(ensure_ascii=False).encode


def dumped(item: Any) -> str:
    """JSON, with escapes for all characters that a terminal obeys: it need not have them, and may."""
    text = _ENCODE(item)
    return text if text.isprintable() else controls().sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Shown(str):
    """A decoded key or value as text."""

    __slots__ = ()

    @property
    def json(self) -> str:
        """What it is in a line of JSON."""
        return dumped(str(self))


class _Typed(Shown):
    """What has a type, as the JSON of that."""

    __slots__ = ()

    @property
    def json(self) -> str:
        return dumped(json.loads(self))


class _JsonText(Shown):
    """JSON that has no type: in a line it is the text of the record, whose ends of lines are blanks."""

    __slots__ = ()

    @property
    def json(self) -> str:
        return self.translate(_ENDS)


class Malformed(bytes):
    """Bytes that cannot be decoded, and why."""

    reason: str

    def __new__(cls, data: bytes, reason: str) -> Self:
        """Bytes with a reason."""
        made = super().__new__(cls, data)
        made.reason = reason
        return made


def asked(
    option: str, *, form: str | None, schema: Path | None, message: str | None = None, registry: str | None = None, subject: str | None = None
) -> Format | None:
    """The format that options of the shell name.

    Args:
        option: `--value` or `--key`: what the format is given as; the others begin with it.
        form: The format.
        schema: The file with the schema.
        message: A class of Protobuf.
        registry: The URL of a schema registry.
        subject: The subject there.

    Raises:
        CommandError: They do not fit each other, or cannot work.
    """
    if all(given is None for given in (form, schema, message, subject)):
        return None  # also the modules of the formats are not needed
    from fletchlog.errors import InvalidArgumentError
    from fletchlog.serde import formats

    stem = option.removesuffix("-format")
    named = {"format": option, formats.REGISTRY: "--schema-registry", "subject": "--subject"}
    text = None if schema is None else _text(f"{stem}-schema", schema)
    # what has no schemas needs no registry
    of_registry = {formats.REGISTRY: registry} if form is not None and form.strip().lower() in formats.REGISTERED else {}
    given = {"format": form, "schema": text, "message": message, "subject": subject, **of_registry}
    try:
        return formats.parse(given, lambda name: named.get(name) or f"{stem}-{name}")
    except InvalidArgumentError as error:
        raise CommandError(str(error)) from None


def _text(option: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{option} {file} cannot be read: {error}") from None


def is_bytes(column: pa.Array) -> bool:
    """Whether a column has bytes, or nothing but nulls."""
    import pyarrow as pa

    return bool(pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type) or pa.types.is_null(column.type))


class JsonTexts:
    """JSON values without a type, each of which stays what it is: whether another one has the same fields is not their affair.

    Args:
        judge: What says which bytes are JSON, and follow a schema: `Json()`, `JsonSchema(..)`.
    """

    type = None

    def __init__(self, judge: Any) -> None:
        self._judge = judge

    def decode(self, column: pa.BinaryArray) -> tuple[pa.BinaryArray, dict[int, str]]:
        """The same bytes, null where they are no JSON, and why."""
        reasons, kept = self._judge.judged(column)
        return kept, reasons

    def encode(self, column: pa.Array) -> tuple[pa.BinaryArray, dict[int, str]]:
        """The same without blanks; of a typed column its JSON."""
        import pyarrow as pa

        if not is_bytes(column):
            made: tuple[pa.BinaryArray, dict[int, str]] = self._judge.encode(column)
            return made
        reasons, kept = self._judge.judged(column.cast(pa.binary()))
        return pa.array([None if data is None else _BLANKS.sub(rb"\1", data) for data in kept.to_pylist()], pa.binary()), reasons


class Decoder:
    """Decodes the columns of what was polled.

    Raises:
        CommandError: An unknown policy, or values that have no type of their own where columns need one.
    """

    def __init__(self, key: Format | None, value: Format | None, on_error: str | None, *, topics: Sequence[str], as_columns: bool) -> None:
        self._by_name: dict[str, Any] = {}
        if key is None and value is None and on_error is None:
            return
        from fletchlog.errors import InvalidArgumentError
        from fletchlog.serde import formats

        self._as_columns = as_columns
        try:
            for name, given in (("key", key), ("value", value)):
                topic = topics[0] if len(topics) == 1 else None
                wanted = given.resolved(topic, is_key=name == "key") if given is not None and as_columns else given
                one = wanted.deserializer() if wanted is not None else None
                if one is not None and one.type is None and as_columns:
                    form = wanted.name if wanted is not None else ""
                    raise CommandError(f"--{name} {form} has no type of its own in a file of columns: give one as --{name}-schema FILE")
                if one is not None:
                    # what has no type is JSON, and is shown as it is
                    self._by_name[name] = JsonTexts(one) if hasattr(one, "judged") and one.type is None else one
            self._on_error = formats.policy(on_error, "--on-error", POLICIES)
        except InvalidArgumentError as error:
            raise CommandError(str(error)) from None
        if on_error is not None and not self._by_name:
            raise CommandError("--on-error is for values that are decoded: give --value or --key")

    def decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The records with typed columns, in batches of one type.

        Raises:
            CommandError: One cannot be decoded, and that ends the command; those before it were returned.
        """
        if not self._by_name:
            yield batch
            return
        from fletchlog import serde
        from fletchlog.errors import InvalidArgumentError

        try:
            made = serde.deserialize(batch, **self._by_name, on_error="collect")
        except InvalidArgumentError as error:
            if self._as_columns or batch.num_rows < 2:  # noqa: PLR2004 - a row of its own
                raise CommandError(str(error)) from None
            # values of schemas with different types; text has no need of one type
            half = batch.num_rows // 2
            yield from self.decoded(batch.slice(0, half))
            yield from self.decoded(batch.slice(half))
            return
        for name in self._by_name:
            if isinstance(self._by_name[name], JsonTexts):
                place = made.schema.get_field_index(name)
                made = made.set_column(place, made.schema.field(place).with_metadata(_AS_IT_IS), made.column(place))
        errors = {name: made.column(f"{name}_error") for name in self._by_name}
        if self._on_error != "show":
            made = made.select(batch.schema.names)
        if self._on_error != "fail" or all(column.null_count == len(column) for column in errors.values()):
            yield made
            return
        row, name = min((column.is_valid().index(True).as_py(), name) for name, column in errors.items() if column.null_count < len(column))
        if row:
            yield made.slice(0, row)
        where = f"{batch.column('topic')[row].as_py()}-{batch.column('partition')[row].as_py()} at offset {batch.column('offset')[row].as_py()}"
        reason = errors[name][row].as_py()["reason"]
        raise CommandError(f"the {name} of {where} cannot be decoded: {reason}; --on-error show prints such records as they are")


def cells(batch: Any, name: str) -> Sequence[Any]:
    """What text shows of a column of keys or values: bytes as they are, `Shown` of what is typed, and `Malformed`."""
    import pyarrow as pa

    column = batch.column(name)
    made: list[Any]
    if pa.types.is_binary(column.type):
        made = column.to_pylist()
        if batch.schema.field(name).metadata == _AS_IT_IS:
            made = [None if data is None else _JsonText(data.decode()) for data in made]
    else:
        made = [part for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column]) for part in _shown(chunk)]
    if f"{name}_error" in batch.schema.names:
        for row, error in enumerate(batch.column(f"{name}_error").to_pylist()):
            if error is not None:
                made[row] = Malformed(error["data"], error["reason"])
    return made


def data(batch: Any, name: str) -> list[bytes | None]:
    """The same as bytes."""
    import pyarrow as pa

    column = batch.column(name)
    if pa.types.is_binary(column.type) and f"{name}_error" not in batch.schema.names:
        found: list[bytes | None] = column.to_pylist()
        return found
    return [item.encode() if isinstance(item, str) else item for item in cells(batch, name)]


def _shown(column: pa.Array) -> list[Shown | None]:
    import pyarrow as pa

    if pa.types.is_string(column.type):
        return [None if text is None else Shown(text) for text in column.to_pylist()]
    return [None if text is None else _Typed(text) for text in _json_texts(column)]


def _json_texts(column: pa.Array) -> list[str | None]:
    """Values as JSON; bytes within them are base64."""
    from fletchlog.errors import InvalidArgumentError
    from fletchlog.serde import Json
    from fletchlog.serde.columns import converted

    kind = text_type(column.type)
    try:
        made, reasons = Json(kind).encode(converted(column, kind, _leaf))
    except InvalidArgumentError:  # a type that has no JSON
        made, reasons = column, dict.fromkeys(range(len(column)), "")
    # what JSON does not have, such as NaN and intervals, is text
    return [
        _plain(column[row].as_py(maps_as_pydicts="lossy")) if row in reasons else None if data is None else data.decode()
        for row, data in enumerate(made.to_pylist())
    ]


def text_type(kind: pa.DataType) -> pa.DataType:
    """The type with a text in place of bytes: JSON has none."""
    import pyarrow as pa

    from fletchlog.serde.columns import mapped

    def part(one: Any, _path: str) -> Any:
        types = pa.types
        is_bytes = types.is_binary(one) or types.is_large_binary(one) or types.is_fixed_size_binary(one) or types.is_binary_view(one)
        return pa.string() if is_bytes else None

    return mapped(kind, part)


def _leaf(part: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if part.type == kind:
        return part
    if pa.types.is_string(kind):
        return pa.array([None if data is None else base64.b64encode(data).decode() for data in part.to_pylist()], kind)
    return part.cast(kind)


def _plain(item: Any) -> str | None:
    def finite(part: Any) -> Any:
        if isinstance(part, dict):
            return {str(name): finite(of) for name, of in part.items()}
        if isinstance(part, list | tuple):
            return [finite(of) for of in part]
        if isinstance(part, bytes):
            return base64.b64encode(part).decode()
        if isinstance(part, float):
            return part if math.isfinite(part) else str(part)
        return part if part is None or isinstance(part, int | str) else str(part)

    return None if item is None else json.dumps(finite(item), ensure_ascii=False)
