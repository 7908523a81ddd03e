"""Google's protobuf as the judge of `serde.Protobuf`: generated schemas, and what its messages are as values of Arrow's types."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.message import DecodeError
from hypothesis import strategies as st

F = descriptor_pb2.FieldDescriptorProto
FEATURES = descriptor_pb2.FeatureSet
TIMESTAMP = "google.protobuf.Timestamp"
NUMBERS = ["DOUBLE", "FLOAT", "INT64", "UINT64", "INT32", "FIXED64", "FIXED32", "BOOL", "UINT32", "SFIXED32", "SFIXED64", "SINT32", "SINT64"]
KEYS = ["INT64", "UINT64", "INT32", "FIXED64", "FIXED32", "BOOL", "STRING", "UINT32", "SFIXED32", "SFIXED64", "SINT32", "SINT64"]
SYNTAXES = ["proto2", "proto3", "editions"]


@st.composite
def classes(draw):
    """The class of a message of a generated file."""
    file = finish(draw(files()))
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M0"))


@st.composite
def files(draw):
    """A file with the messages M0, M1, .., each of which has only later ones in its fields, and the enums A and B."""
    syntax = draw(st.sampled_from(SYNTAXES))
    file = descriptor_pb2.FileDescriptorProto(name="f.proto", package="p", syntax=syntax, dependency=["google/protobuf/timestamp.proto"])
    if syntax == "editions":
        file.edition = descriptor_pb2.Edition.EDITION_2023
        draw_features(draw, file.options.features, of_file=True)
    for name in ("A", "B"):
        enum = file.enum_type.add(name=name)
        enum.value.add(name=f"{name}_ZERO", number=0)
        enum.value.add(name=f"{name}_ONE", number=1)
        enum.value.add(name=f"{name}_LESS", number=-1)
        enum.value.add(name=f"{name}_MANY", number=1000)
        if syntax == "editions" and name == "B":
            enum.options.features.enum_type = draw(st.sampled_from([FEATURES.OPEN, FEATURES.CLOSED]))
    many = draw(st.integers(1, 3))
    for index in range(many):
        draw_message(draw, file, index, [f".p.M{later}" for later in range(index + 1, many)])
    return file


def draw_features(draw, features, *, of_file=False):
    choices = {
        "repeated_field_encoding": [FEATURES.PACKED, FEATURES.EXPANDED],
        "utf8_validation": [FEATURES.VERIFY, FEATURES.NONE],
        "message_encoding": [FEATURES.LENGTH_PREFIXED, FEATURES.DELIMITED],
        "field_presence": [FEATURES.EXPLICIT, FEATURES.IMPLICIT],
        "enum_type": [FEATURES.OPEN, FEATURES.CLOSED],
    }
    for name, values in choices.items():
        # a file whose fields are implicit must not have closed enums
        if name == "enum_type" and features.field_presence == FEATURES.IMPLICIT:
            continue
        if of_file and draw(st.booleans()):
            setattr(features, name, draw(st.sampled_from(values)))


def draw_message(draw, file, index, later):
    message = file.message_type.add(name=f"M{index}")
    for one in range(draw(st.integers(0, 5))):
        number = draw(st.sampled_from([1, 2, 3, 15, 16, 1023, 1024, 2**29 - 1]).filter(lambda number: number not in [field.number for field in message.field]))
        draw_field(draw, file, message, f"f{one}", number, later)
    members = draw(st.integers(0, 3))
    if members:
        message.oneof_decl.add(name="one")
        for member in range(members):
            kind, type_name = draw_kind(draw, file, later)
            message.field.add(name=f"o{member}", number=200 + member, type=kind, type_name=type_name, label=F.LABEL_OPTIONAL, oneof_index=0)


def draw_kind(draw, file, later):
    names = [*NUMBERS, "STRING", "BYTES", "ENUM", "MESSAGE", "MESSAGE"]
    kind = draw(st.sampled_from(names))
    if kind == "MESSAGE":
        return F.TYPE_MESSAGE, draw(st.sampled_from([f".{TIMESTAMP}", *later]))
    if kind == "ENUM":
        # one that may be closed needs presence
        return F.TYPE_ENUM, ".p.A"
    return getattr(F, f"TYPE_{kind}"), None


def draw_field(draw, file, message, name, number, later):
    kind, type_name = draw_kind(draw, file, later)
    label = draw(st.sampled_from([F.LABEL_OPTIONAL, F.LABEL_REPEATED, "map"]))
    if label == "map":
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=getattr(F, f"TYPE_{draw(st.sampled_from(KEYS))}"), label=F.LABEL_OPTIONAL)
        entry.field.add(name="value", number=2, type=kind, type_name=type_name, label=F.LABEL_OPTIONAL)
        message.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=f".p.{message.name}.{entry.name}", label=F.LABEL_REPEATED)
        return
    field = message.field.add(name=name, number=number, type=kind, type_name=type_name, label=label)
    packable = kind not in {F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE}
    if label == F.LABEL_REPEATED and packable and draw(st.booleans()):
        if file.syntax == "editions":
            field.options.features.repeated_field_encoding = draw(st.sampled_from([FEATURES.PACKED, FEATURES.EXPANDED]))
        else:
            field.options.packed = draw(st.booleans())
    if file.syntax == "proto2" and label == F.LABEL_OPTIONAL and draw(st.integers(0, 9)) == 0:
        field.label = F.LABEL_REQUIRED
    if file.syntax == "proto2" and kind == F.TYPE_MESSAGE and type_name != f".{TIMESTAMP}" and draw(st.booleans()):
        field.type = F.TYPE_GROUP
    if file.syntax == "proto3" and label == F.LABEL_OPTIONAL and kind != F.TYPE_MESSAGE and draw(st.booleans()):
        field.proto3_optional = True


def finish(file):
    """Gives each `optional` field of proto3 the oneof that protoc makes for it, behind those of the schema."""
    for message in file.message_type:
        for field in message.field:
            if field.proto3_optional:
                message.oneof_decl.add(name=f"_{field.name}")
                field.oneof_index = len(message.oneof_decl) - 1
    return file


@st.composite
def wire(draw, descriptor, depth=0):
    """Bytes that are mostly fields of a message, of any wire type."""
    made = b""
    fields = {field.number: field for field in descriptor.fields} if descriptor is not None else {}
    for _ in range(draw(st.integers(0, 4 if depth else 6))):
        number = draw(st.sampled_from([*fields, *fields, 1, 2, 7]))
        field = fields.get(number)
        likely = _wire_type(field) if field is not None else 0
        wire_type = draw(st.sampled_from([likely] * 6 + [0, 1, 2, 3, 5]))
        made += varint(number << 3 | wire_type)
        inner = field.message_type if field is not None else None
        if wire_type == 0:
            made += varint(draw(st.sampled_from([0, 1, 1000, 2**31, 2**32 - 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)))
        elif wire_type in (1, 5):
            size = 8 if wire_type == 1 else 4
            made += draw(st.binary(min_size=size, max_size=size))
        elif wire_type == 3:
            made += draw(wire(inner, depth + 1) if depth < 4 else st.just(b"")) + varint(number << 3 | 4)
        else:
            body = draw(
                (wire(inner, depth + 1) if inner is not None and depth < 4 else st.nothing()) | st.binary(max_size=6) | st.text(max_size=3).map(str.encode)
            )
            made += varint(len(body)) + body
    return made


def _wire_type(field):
    if field.type == F.TYPE_GROUP:
        return 3
    if field.type in (F.TYPE_DOUBLE, F.TYPE_FIXED64, F.TYPE_SFIXED64):
        return 1
    if field.type in (F.TYPE_FLOAT, F.TYPE_FIXED32, F.TYPE_SFIXED32):
        return 5
    return 2 if field.type in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE) else 0


def varint(number):
    made = bytearray()
    while number >= 1 << 7:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def read(message_class, data):
    """A value as Google's parser reads it; None if it refuses the bytes, or if Arrow's types have no such value."""
    try:
        return value(message_class.FromString(data))
    except (DecodeError, ValueError, OverflowError):
        return None


def is_map(field):
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def value(message):
    """A message as a dict; times as microseconds."""
    made = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            made[field.name] = None
            continue
        found = getattr(message, field.name)
        if is_map(field):
            entry = field.message_type.fields_by_name["value"]
            key_field = field.message_type.fields_by_name["key"]
            made[field.name] = [(_one(key_field, key), _one(entry, found[key])) for key in found]
        else:
            made[field.name] = [_one(field, item) for item in found] if field.is_repeated else _one(field, found)
    return made


def _one(field, found):
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            micros = found.seconds * 1_000_000 + found.nanos // 1000
            if not -(2**63) <= micros < 2**63:
                raise ValueError(f"a Timestamp of {found.seconds} seconds is beyond timestamp[us]")
            return micros
        return value(found)
    if field.type == F.TYPE_STRING and isinstance(found, bytes):
        raise ValueError("Arrow's strings are UTF-8")
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(found)
        return str(found) if known is None else known.name
    return found


def values(descriptor):
    """Values of a message, as `value` makes them."""
    return st.fixed_dictionaries({field.name: _column_values(field) for field in descriptor.fields})


def _column_values(field):
    if is_map(field):
        key, item = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(_values(key), _values(item), max_size=3).map(lambda entries: list(entries.items()))
    one = _values(field)
    if field.is_repeated:
        return st.lists(one, max_size=3)
    return st.none() | one if field.has_presence and not field.is_required else one


def _values(field):
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return st.integers(-62135596800 * 10**6, 253402300800 * 10**6 - 1)
        return values(field.message_type)
    kind = {getattr(F, f"TYPE_{name}"): name for name in [*NUMBERS, "STRING", "BYTES", "ENUM"]}[field.type]
    if kind == "ENUM":
        return st.sampled_from([value.name for value in field.enum_type.values])
    if kind == "STRING":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    if kind == "BYTES":
        return st.binary(max_size=3)
    if kind == "BOOL":
        return st.booleans()
    if kind in ("DOUBLE", "FLOAT"):
        return st.floats(width=64 if kind == "DOUBLE" else 32, allow_nan=False) | st.just(-0.0)
    bits, unsigned = int(kind[-2:]), kind.startswith(("U", "F"))
    return st.integers(0, 2**bits - 1) | st.integers(0, 5) if unsigned else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) | st.integers(-2, 5)


def fill(message, given):
    """Sets the fields of a message to a dict as `value` makes it."""
    for field in message.DESCRIPTOR.fields:
        found = given.get(field.name)
        if found is None:
            continue
        if is_map(field):
            entry, into = field.message_type.fields_by_name["value"], getattr(message, field.name)
            for key, item in found:
                if entry.message_type is None:
                    into[key] = _scalar(entry, item)
                else:
                    _fill_one(entry, into[key], item)
        elif field.message_type is not None:
            into = getattr(message, field.name)
            for item in found if field.is_repeated else [found]:
                target = into.add() if field.is_repeated else into
                target.SetInParent()
                _fill_one(field, target, item)
        elif field.is_repeated:
            getattr(message, field.name).extend(_scalar(field, item) for item in found)
        else:
            setattr(message, field.name, _scalar(field, found))
    return message


def _fill_one(field, message, given):
    if field.message_type.full_name == TIMESTAMP:
        message.FromMicroseconds(given)
    else:
        fill(message, given)


def _scalar(field, given):
    return given if field.enum_type is None else field.enum_type.values_by_name[given].number


def comparable(found):
    """A value without what equality does not see: numbers that are not a number, and the order of a map's entries."""
    if isinstance(found, dict):
        return {name: comparable(part) for name, part in found.items()}
    if isinstance(found, float):
        return repr(found)
    if isinstance(found, list) and found and isinstance(found[0], tuple):
        return {repr(key): comparable(item) for key, item in found}
    return [comparable(item) for item in found] if isinstance(found, list) else found


def mutated(draw, data):
    """Bytes with a few of them changed, taken away or repeated."""
    made = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(made)))
        how = draw(st.integers(0, 2))
        if how == 0:
            made[at:at] = draw(st.binary(max_size=3))
        elif how == 1:
            del made[at : at + draw(st.integers(1, 3))]
        else:
            made[at : at + 1] = bytes([draw(st.integers(0, 255))])
    return bytes(made)
