"""Strategies for Arrow types of every kind, and for arrays of them.

An array is made of raw values (times are the integers of their types), which Arrow casts: Python's `datetime` has not all of them.
"""

import decimal
import functools

import pyarrow as pa
from hypothesis import strategies as st

DAYS = (-73_768_000, 72_330_000)  # from the year -200,000 to 200,000
PER_DAY = {unit: 86_400 * per_second for unit, per_second in {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}.items()}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
STRINGS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]


def decimals(make, most):
    return st.integers(1, most).flatmap(lambda precision: st.integers(0, precision).map(lambda scale: make(precision, scale)))


UNITS = st.sampled_from(["s", "ms", "us", "ns"])
ZONES = st.sampled_from([None, "UTC", "Europe/Berlin", "+05:30"])
SCALARS = st.one_of(
    st.sampled_from([pa.bool_(), pa.date32(), pa.date64(), pa.float16(), pa.float32(), pa.float64(), *INTEGERS, *TIMES, *STRINGS]),
    st.builds(pa.timestamp, UNITS, ZONES),
    st.builds(pa.duration, UNITS),
    st.one_of(*[decimals(*made) for made in [(pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)]]),
)
NAMES = st.lists(TEXT, max_size=3, unique=True)


def field(name, arrow_type, nullable):
    return pa.field(name, arrow_type, nullable=nullable or arrow_type == pa.null())


def nested(inner):
    """Types with parts of the strategy `inner`."""
    return st.one_of(
        st.builds(pa.list_, inner),
        st.builds(pa.large_list, inner),
        # pyarrow makes no valid array of such lists of nulls
        st.builds(pa.list_, inner.filter(lambda one: one != pa.null()), st.integers(0, 2)),
        st.builds(pa.map_, SCALARS, inner),
        NAMES.flatmap(lambda names: st.tuples(*[st.builds(field, st.just(name), inner, st.booleans()) for name in names]).map(pa.struct)),
    )


TYPES = st.recursive(SCALARS | st.just(pa.null()), nested, max_leaves=4)


def raw_type(arrow_type):
    """The type whose values Python has for each of a type's; a cast makes the type of it."""
    types = pa.types
    if types.is_struct(arrow_type):
        return pa.struct([field.with_type(raw_type(field.type)) for field in arrow_type])
    if types.is_map(arrow_type):
        return pa.map_(raw_type(arrow_type.key_type), raw_type(arrow_type.item_type))
    if types.is_fixed_size_list(arrow_type):
        return pa.list_(raw_type(arrow_type.value_type), arrow_type.list_size)
    if types.is_list(arrow_type):
        return pa.list_(raw_type(arrow_type.value_type))
    if types.is_large_list(arrow_type):
        return pa.large_list(raw_type(arrow_type.value_type))
    if types.is_date32(arrow_type) or types.is_time32(arrow_type):
        return pa.int32()
    if types.is_temporal(arrow_type):
        return pa.int64()
    return pa.float32() if types.is_float16(arrow_type) else arrow_type


def integers(arrow_type):
    unsigned = pa.types.is_unsigned_integer(arrow_type)
    bits = arrow_type.bit_width
    return st.integers(0 if unsigned else -(2 ** (bits - 1)), 2 ** (bits if unsigned else bits - 1) - 1)


def times(arrow_type):
    """The numbers of a temporal type."""
    types = pa.types
    if types.is_date32(arrow_type):
        return st.integers(*DAYS)
    if types.is_date64(arrow_type):
        return st.integers(*DAYS).map(lambda days: days * PER_DAY["ms"])
    most = 2**63 - 1
    if types.is_duration(arrow_type):
        return st.integers(-most, most)
    per_day = PER_DAY[arrow_type.unit]
    if types.is_time(arrow_type):
        return st.integers(0, per_day - 1)
    return st.integers(max(DAYS[0] * per_day, -most), min(DAYS[1] * per_day, most))


def scalars(arrow_type, *, finite):
    """Raw values of a type that is not nested."""
    types = pa.types
    if types.is_null(arrow_type):
        return st.none()
    if types.is_boolean(arrow_type):
        return st.booleans()
    if types.is_integer(arrow_type):
        return integers(arrow_type)
    if types.is_floating(arrow_type):
        return st.floats(width=arrow_type.bit_width, allow_nan=False, allow_infinity=not finite)
    if types.is_decimal(arrow_type):
        most = 10**arrow_type.precision - 1
        return st.integers(-most, most).map(lambda digits: decimal_of(digits, arrow_type.scale))
    if types.is_temporal(arrow_type):
        return times(arrow_type)
    if types.is_fixed_size_binary(arrow_type):
        return st.binary(min_size=arrow_type.byte_width, max_size=arrow_type.byte_width)
    return st.binary(max_size=6) if any(is_one(arrow_type) for is_one in (types.is_binary, types.is_large_binary, types.is_binary_view)) else TEXT


def decimal_of(digits, scale):
    return decimal.Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))


def values(arrow_type, *, finite=True, nulls=True):
    """Raw values of a type."""
    types = pa.types
    some = functools.partial(values, finite=finite, nulls=nulls)
    if types.is_struct(arrow_type):
        # pyarrow has nulls in fields that must not be null only where the struct is null
        made = st.fixed_dictionaries({field.name: some(field.type, nulls=field.nullable) for field in arrow_type})
    elif types.is_map(arrow_type):
        key = some(arrow_type.key_type, nulls=False)
        made = st.lists(st.tuples(key, some(arrow_type.item_type)), max_size=3, unique_by=lambda entry: entry[0])
    elif types.is_fixed_size_list(arrow_type):
        made = st.lists(some(arrow_type.value_type), min_size=arrow_type.list_size, max_size=arrow_type.list_size)
    elif types.is_list(arrow_type) or types.is_large_list(arrow_type):
        made = st.lists(some(arrow_type.value_type), max_size=3)
    else:
        made = scalars(arrow_type, finite=finite)
    return st.none() | made if nulls else made


def array(arrow_type, raw_values):
    """An array of a type."""
    made = pa.array(raw_values, raw_type(arrow_type))
    return made if made.type == arrow_type else made.cast(arrow_type)


def arrays(arrow_type, **options):
    """Arrays of a type, some of them slices, each with the raw values of its rows."""
    made = st.lists(values(arrow_type, **options), max_size=5).map(lambda rows: (rows, array(arrow_type, rows))).filter(lambda pair: is_valid(pair[1]))
    return st.tuples(made, st.integers(0, 1)).map(lambda drawn: tuple(part[drawn[1] :] for part in drawn[0]))


def is_valid(made):
    """Whether pyarrow has made a valid array; with nested nulls and lists of fixed size it does not always."""
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
