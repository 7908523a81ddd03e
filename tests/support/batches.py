"""Builds Kafka v2 record batches of an exact size, in plain Python, independent of the code under test."""

from __future__ import annotations

import struct
from functools import cache

_POLYNOMIAL = 0x82F63B78


@cache
def _crc_table() -> tuple[int, ...]:
    table = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    table = _crc_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(value: int) -> bytes:
    """Zig-zag varint."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record(delta: int, value: bytes | None, key: bytes | None = None, timestamp_delta: int = 0) -> bytes:
    """One record with its length."""
    body = bytearray(b"\x00") + varint(timestamp_delta) + varint(delta)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += varint(0)
    return varint(len(body)) + bytes(body)


def record_size(delta: int, value_length: int) -> int:
    """Bytes of a null-key record with this offset delta and value length."""
    body = 1 + 1 + len(varint(delta)) + 1 + len(varint(value_length)) + value_length + 1
    return len(varint(body)) + body


def batch(
    records: list[bytes],
    *,
    timestamp: int = 1_700_000_000_000,
    max_timestamp: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch as a Produce request carries it."""
    body = struct.pack(
        ">hiqqqhii", attributes, len(records) - 1, timestamp, timestamp if max_timestamp is None else max_timestamp, *producer, len(records)
    ) + b"".join(records)
    tail = struct.pack(">ibI", -1, 2, crc32c(body)) + body
    return struct.pack(">qi", 0, len(tail)) + tail


@cache
def batch_of(count: int, size: int) -> bytes:
    """A batch of `count` null-key records whose total size is exactly `size` bytes."""
    low, high = 0, size
    while low < high:  # the largest common value length that still fits
        middle = (low + high + 1) // 2
        fits = sum(record_size(i, middle) for i in range(count)) <= size - 61
        low, high = (middle, high) if fits else (low, middle - 1)
    lengths = [low] * count
    missing = size - 61 - sum(record_size(i, low) for i in range(count))
    for i in range(count):  # then byte by byte; a grown length varint may take two at once
        while missing > 0 and (step := record_size(i, lengths[i] + 1) - record_size(i, lengths[i])) <= missing:
            lengths[i] += 1
            missing -= step
            if i < count - 1 and missing < count:
                break
    assert missing == 0, f"no batch of {count} records has {size} bytes"
    built = batch([record(i, bytes(n)) for i, n in enumerate(lengths)])
    assert len(built) == size
    return built
