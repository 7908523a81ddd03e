"""What holds for every store, on S3, whose server is a Python package; `interop/test_30_stores.py` has the others."""

from every_store import *  # noqa: F403
