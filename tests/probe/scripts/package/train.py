"""Run as `python -m package.train CLOCK`, by `train.sh`."""

from . import loop

loop.run()
