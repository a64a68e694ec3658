"""CTC loss as CUDA runs it: torch's own kernels, one each way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlay.trace.capture.selection import Selection

_registered: list[torch.library.Library] = []


def install() -> None:
    """Let lengths given as lists be tensors, as the other form has them. Once."""
    if not _registered:
        library = torch.library.Library("aten", "IMPL")
        library.impl("ctc_loss.IntList", _with_tensors, "AutogradCUDA")
        _registered.append(library)


def _with_tensors(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    *options: int,
) -> Tensor:
    device = log_probs.device
    lengths = [torch.tensor(list(one), device=device) for one in (input_lengths, target_lengths)]
    on_gpu = targets.to(device)
    loss: Tensor = torch.ops.aten.ctc_loss.Tensor(log_probs, on_gpu, *lengths, *options)
    return loss


def ctc_loss(
    selection: Selection,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],  # noqa: ARG001
    target_lengths: Tensor | Sequence[int],
    *_: object,
) -> tuple[Tensor, Tensor]:
    """A loss a sequence, and the alignments kept for the backward: 2 labels + 1 at each position.

    Source: aten/src/ATen/native/cuda/LossCTC.cu.
    """
    positions, batch, _classes = log_probs.shape
    labels = _longest(selection, target_lengths)
    if labels is None:
        labels = targets.shape[1] if targets.dim() == 2 else -(-targets.numel() // batch)
        selection.note("ctc_loss", f"targets were assumed to be {labels} labels long")
    alignments = log_probs.new_empty((batch, positions, 2 * labels + 1))
    return log_probs.new_empty((batch,)), alignments


def _longest(selection: Selection, lengths: Tensor | Sequence[int]) -> int | None:
    if not isinstance(lengths, Tensor):
        return max(lengths, default=0)
    known = selection.values.of(lengths)
    if known is None:
        return None
    with torch._C._DisableTorchDispatch():
        return int(known.max().item())


def ctc_loss_backward(_grad: Tensor, log_probs: Tensor, *_: object) -> Tensor:
    """A gradient for each log probability."""
    return torch.empty_like(log_probs)
