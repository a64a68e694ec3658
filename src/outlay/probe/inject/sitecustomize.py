"""Run by Python itself at the start of every process of a probed command.

Loads the agent, hides its traces, and then runs the `sitecustomize` that would have run without
it. Whatever goes wrong here, the user's script must not notice. The names of the variable and of
the module are those of `agent/protocol.py`, which cannot be imported yet.
"""

from __future__ import annotations

import os
import sys


def _load_agent() -> None:
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here]  # noqa: PTH100
    folder = os.environ.get("OUTLAY_PROBE_FOLDER")
    if not folder or not os.path.isdir(folder):  # noqa: PTH112
        return
    agent = os.path.join(os.path.dirname(here), "agent")  # noqa: PTH118, PTH120
    spec = importlib.util.spec_from_file_location(
        "_outlay_agent",
        os.path.join(agent, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[agent],
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["_outlay_agent"] = module
    spec.loader.exec_module(module)
    module.start(folder, here)


def _run_shadowed() -> None:
    """The `sitecustomize` further down the path, as if ours did not exist."""
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _load_agent()
except Exception as error:
    if os.environ.get("OUTLAY_DEBUG"):
        sys.stderr.write(f"outlay: the agent could not be loaded: {error!r}\n")
_run_shadowed()
