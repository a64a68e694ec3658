"""Becomes itself, trains, becomes itself and trains again, becomes another: becomes.py CLOCK.

As scripts do that set up libraries before Python loads them, that shed memory between stages, and
that end with a program which exports what they trained.
"""

import os
import sys

EXPORT = "import sys; print('exported'); sys.exit(3)"


def become(*arguments):
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *arguments])


turn = int(os.environ.get("TURN", "0"))
os.environ["TURN"] = str(turn + 1)
if turn == 0:
    become(*sys.argv)

import plain  # noqa: E402

sys.argv[1:] = [sys.argv[1], "0", "-", "40" if turn == 1 else "30"]
plain.main(plain.sgd)
if turn == 1:
    become(sys.argv[0], "clock.json")
become("-c", EXPORT)
