"""Waits for what is to happen, with a limit that only a failure meets."""

import time


def until(condition, limit=15):
    """Calls until it returns something true; False after so many seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
    return False
