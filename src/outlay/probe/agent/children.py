"""What a program of the command starts is watched as well, also with an environment of its own.

Launchers hand their environment on, and with it what outlay put there. One that makes an
environment for a program, or gives it a PYTHONPATH of its own, would hide it: here both get what
is missing. `Environment` knows what that is; nothing else of the environment is changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .channel import log_error
from .patches import FunctionPatches, after_import
from .protocol import FOLDER_VARIABLE

_PATH = "PYTHONPATH"
_PLACE_OF_ENVIRONMENT = 10
"""Among the arguments of `subprocess.Popen`, where they are given without names."""


class Environment:
    """Adds to an environment what a program needs to be watched."""

    def __init__(self, inject: str, folder: str) -> None:
        self._inject = inject
        self._folder = folder

    def completed(self, given: Mapping[str, str] | None) -> Mapping[str, str] | None:
        """The environment as it was given; a copy with what is missing, where something is."""
        current: Mapping[str, str] = os.environ if given is None else given
        places = current.get(_PATH, "").split(os.pathsep)
        if FOLDER_VARIABLE in current and self._inject in places:
            return given
        path = os.pathsep.join([self._inject, *filter(None, places)])
        return {FOLDER_VARIABLE: self._folder, **current, _PATH: path}

    def install(self) -> None:
        """Begin to complete what programs are started with, for good."""
        patches = FunctionPatches()
        patches.wrap(os, "execve", self._become)
        after_import(
            "subprocess", lambda module: patches.wrap(module.Popen, "__init__", self._start)
        )

    def _become(self, original: Any, path: Any, argv: Any, env: Any) -> Any:
        return original(path, argv, self._completed_safely(env))

    def _start(self, original: Any, popen: Any, *args: Any, **kwargs: Any) -> None:
        given = kwargs.get("env")
        completed = self._completed_safely(given)
        if completed is not given and len(args) <= _PLACE_OF_ENVIRONMENT:
            kwargs["env"] = completed
        original(popen, *args, **kwargs)

    def _completed_safely(self, given: Any) -> Any:
        try:
            return self.completed(given)
        except Exception as error:  # names or values in bytes, or what is no environment at all
            log_error(error)
            return given
