"""`python examples/demo`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from demo import main  # noqa: E402 - the path comes first

main()
