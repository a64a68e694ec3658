"""One training step, operation by operation, and what it is at any batch size.

The package is also the function of that name: `outlay.trace(step, 32)` is `trace_step(step, 32)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlay.trace.step_report import StepReport


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> StepReport:
        """See `outlay.trace.tracing.trace_step`."""
        from outlay.trace.tracing import trace_step

        return trace_step(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
