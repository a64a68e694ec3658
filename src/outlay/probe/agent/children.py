"""What a program of the command starts is watched as well, also with an environment of its own.

Launchers hand their environment on, and with it what outlay put there. One that makes an
environment for a program, or gives it a PYTHONPATH of its own, would hide it: here both get what
is missing. `Environment` knows what that is; nothing else of the environment is changed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import Any

from .channel import log_error
from .patches import after_import
from .protocol import FOLDER_VARIABLE

_PATH = "PYTHONPATH"


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
        """Begin to complete what programs are started with."""
        after_import("subprocess", self._wrap_popen)
        os.execve = self._completing_execve(os.execve)

    def _wrap_popen(self, subprocess: Any) -> None:
        original = subprocess.Popen.__init__

        @functools.wraps(original)
        def __init__(popen: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            kwargs["env"] = self._completed_safely(kwargs.get("env"))
            if kwargs["env"] is None:
                del kwargs["env"]
            original(popen, *args, **kwargs)

        subprocess.Popen.__init__ = __init__

    def _completing_execve(self, original: Any) -> Any:
        @functools.wraps(original)
        def execve(path: Any, args: Any, env: Any) -> Any:
            return original(path, args, self._completed_safely(env))

        return execve

    def _completed_safely(self, given: Any) -> Any:
        try:
            return self.completed(given)
        except Exception as error:  # names or values in bytes, or what is no environment at all
            log_error(error)
            return given
