"""Uploads the segments of a directory as Aiven's tiered storage plug-in does: written anew after the plug-in's sources, by nothing of ours.

Kafka's `RemoteLogManager` hands over what is rolled: the segment, its indexes, the snapshot at the next segment, and the leader epochs up to
there. The plug-in's `KafkaRemoteStorageManager` makes three objects of it.
"""

from __future__ import annotations

import base64
import itertools
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

ID = "AAAAAAAAAAAAAAAAAAAAAQ"


@dataclass(frozen=True)
class Segment:
    """What Kafka hands over."""

    topic: str
    topic_id: str
    partition: int
    base: int
    end: int
    """Exclusive."""
    log: bytes
    offset_index: bytes
    time_index: bytes
    snapshot: bytes
    txn_index: bytes | None
    epochs: dict[int, int]
    """Of the log, up to the end."""


def rolled(directory: Path, topic: str) -> Iterator[Segment]:
    """The segments of a topic but the last of each partition, as a leader has them."""
    for folder in sorted(directory.glob(f"{topic}-[0-9]*")):
        lines = (folder / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        epochs = {int(epoch): int(start) for epoch, start in (line.split() for line in lines)}
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        for base, end in itertools.pairwise(bases):

            def content(suffix: str, offset: int = base, folder: Path = folder) -> bytes:
                return (folder / f"{offset:020}.{suffix}").read_bytes()

            yield Segment(
                topic=topic,
                topic_id=(folder / "partition.metadata").read_text().split("topic_id: ")[1].strip(),
                partition=int(folder.name.rpartition("-")[2]),
                base=base,
                end=end,
                log=content("log"),
                offset_index=content("index"),
                time_index=content("timeindex"),
                snapshot=content("snapshot", end),
                txn_index=content("txnindex") if (folder / f"{base:020}.txnindex").exists() else None,
                epochs={epoch: start for epoch, start in epochs.items() if start < end},
            )


def batches(log: bytes) -> Iterator[bytes]:
    """The batches of a segment."""
    at = 0
    while at < len(log):
        (length,) = struct.unpack_from(">i", log, at + 8)
        yield log[at : at + 12 + length]
        at += 12 + length


def of_other_leader(segments: list[Segment], cuts: list[int]) -> Iterator[Segment]:
    """The same batches as another replica rolled them: segments that begin at these batches. Its indexes have no entries yet."""
    whole = [batch for segment in segments for batch in batches(segment.log)]
    base_of = [struct.unpack_from(">q", batch)[0] for batch in whole]
    for start, stop in zip(cuts, [*cuts[1:], len(whole)], strict=True):
        end = base_of[stop] if stop < len(whole) else segments[-1].end
        epochs = {epoch: first for epoch, first in segments[-1].epochs.items() if first < end}
        yield replace(
            segments[-1],
            base=base_of[start],
            end=end,
            log=b"".join(whole[start:stop]),
            offset_index=b"",
            time_index=b"",
            snapshot=b"",
            txn_index=b"".join(entry for segment in segments for entry in _txns(segment.txn_index or b"", base_of[start], end)) or None,
            epochs=epochs,
        )


def _txns(index: bytes, start: int, end: int) -> Iterator[bytes]:
    for at in range(0, len(index), 34):
        if start <= struct.unpack_from(">q", index, at + 18)[0] < end:
            yield index[at : at + 34]


def objects(segment: Segment, *, chunk_size: int = 4 << 20, compression: bool = False, prefix: str = "", uuid: str = ID, event: int = 1) -> dict[str, bytes]:
    """The three objects, the manifest last."""
    stem = f"{prefix}{segment.topic}-{segment.topic_id}/{segment.partition}/{segment.base:020}-{uuid}"
    text = "".join(f"{epoch} {start}\n" for epoch, start in segment.epochs.items())
    checkpoint = f"0\n{len(segment.epochs)}\n{text}".encode()
    parts = {
        "offset": segment.offset_index,
        "timestamp": segment.time_index,
        "producerSnapshot": segment.snapshot,
        "leaderEpoch": checkpoint,
        "transaction": segment.txn_index,
    }
    indexes, places = b"", {}
    for name, part in parts.items():
        places[name] = None if part is None else {"position": len(indexes), "size": len(part)}
        indexes += part or b""
    chunk_index, log = _chunks(segment.log, chunk_size, compression)
    # the epochs of the segment: the one that it begins in, from its first offset on, and those that begin in it
    own = {epoch: max(start, segment.base) for epoch, start in segment.epochs.items() if start < segment.end}
    first = max(epoch for epoch, start in segment.epochs.items() if start <= segment.base)
    manifest = {
        "version": "1",
        "chunkIndex": chunk_index,
        "segmentIndexes": places,
        "compression": compression,
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {"topicId": segment.topic_id, "topicPartition": {"topic": segment.topic, "partition": segment.partition}},
                "id": uuid,
            },
            "startOffset": segment.base,
            "endOffset": segment.end - 1,
            "maxTimestampMs": 0,
            "brokerId": 1,
            "eventTimestampMs": event,
            "segmentLeaderEpochs": {str(epoch): start for epoch, start in own.items() if epoch >= first},
        },
    }
    return {f"{stem}.log": log, f"{stem}.indexes": indexes, f"{stem}.rsm-manifest": json.dumps(manifest).encode()}


def _chunks(log: bytes, size: int, compression: bool) -> tuple[dict[str, object], bytes]:
    whole = {"originalChunkSize": size, "originalFileSize": len(log)}
    chunks = [log[at : at + size] for at in range(0, len(log), size)]
    if not compression:
        return {"type": "fixed", **whole, "transformedChunkSize": size, "finalTransformedChunkSize": len(chunks[-1])}, log
    compressed = [pa.compress(chunk, codec="zstd", asbytes=True) for chunk in chunks]
    return {"type": "variable", **whole, "transformedChunks": encoded([len(chunk) for chunk in compressed])}, b"".join(compressed)


def encoded(sizes: list[int]) -> str:
    """`ChunkSizesBinaryCodec`, in zstd and base64."""
    listed, data = sizes[:-1], struct.pack(">i", len(sizes))
    if listed:
        base = min(listed)
        width = max(1, (max(listed) - base).bit_length() + 7 >> 3)
        data += struct.pack(">ib", base, width) + b"".join((size - base).to_bytes(width, "big") for size in listed)
    if sizes:
        data += struct.pack(">i", sizes[-1])
    return base64.b64encode(pa.compress(data, codec="zstd", asbytes=True)).decode()


def write(directory: Path, files: dict[str, bytes]) -> None:
    """Into a directory, as the plug-in's `FileSystemStorage` does."""
    for key, data in files.items():
        (directory / key).parent.mkdir(parents=True, exist_ok=True)
        (directory / key).write_bytes(data)
