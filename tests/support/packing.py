"""Compressed files."""

import pyarrow as pa


def zstd(data):
    """A frame of zstd."""
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as file:
        file.write(data)
    return out.getvalue().to_pybytes()
