"""`python -m outlay` is the `outlay` command."""

from outlay.cli.main import main

main()
