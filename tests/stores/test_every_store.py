"""What holds for every store, on S3, whose server is a Python package; `judges/interop/test_30_stores.py` has the others."""

from tests.support.every_store import *  # noqa: F403
