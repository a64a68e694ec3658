"""Starts itself anew in another folder with an environment of its own making: respawns.py CLOCK."""

import os
import subprocess
import sys

if "CHILD" not in os.environ:
    own = {"CHILD": "1", "PATH": os.environ["PATH"], "PYTHONPATH": os.path.dirname(__file__)}
    command = [sys.executable, os.path.abspath(__file__), os.path.abspath(sys.argv[1])]
    os.makedirs("work", exist_ok=True)
    sys.exit(subprocess.run(command, env=own, cwd="work").returncode)

import lean
import plain

plain.main(lean.sgd)
