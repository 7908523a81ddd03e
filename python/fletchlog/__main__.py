"""`python -m fletchlog` is the command `fletchlog`."""

from fletchlog.cli import main

main()
