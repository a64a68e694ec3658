"""What to write for each change that `outlay fit` names, at the user's own lines where found."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeAdvice:
    """The lines that make a change, and what to mind."""

    lines: tuple[str, ...]
    caution: str = ""


_MODEL = "model"
ADVICE: dict[str, CodeAdvice] = {
    "bf16 autocast": CodeAdvice(
        lines=(
            'with torch.autocast("cuda", torch.bfloat16):',
            "    loss = ...          # forward and loss; backward stays outside",
        ),
    ),
    "fp16 autocast": CodeAdvice(
        lines=(
            'scaler = torch.amp.GradScaler("cuda")',
            'with torch.autocast("cuda", torch.float16):',
            "    loss = ...",
            "scaler.scale(loss).backward()",
            "scaler.step(optimizer); scaler.update()",
        ),
        caution="Gradients that overflow skip a step now and then.",
    ),
    "pure bf16": CodeAdvice(
        lines=("model = model.to(torch.bfloat16)  # and floating-point inputs",),
        caution="Updates smaller than 1/256 of a weight are lost: check that the loss still falls.",
    ),
    "recompute blocks": CodeAdvice(
        lines=(
            "from torch.utils.checkpoint import checkpoint",
            "x = checkpoint(block, x, use_reentrant=False)  # instead of x = block(x)",
            "# transformers: model.gradient_checkpointing_enable()",
        ),
    ),
    "recompute cheap operations": CodeAdvice(
        lines=(
            "from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts",
            "keep = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default, ...]",
            "contexts = partial(create_selective_checkpoint_contexts, keep)",
            "x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)",
        ),
        caution="Costs the host much: every operation of a block passes through Python.",
    ),
    "fused optimizer": CodeAdvice(lines=("torch.optim.AdamW(..., fused=True)",)),
    "8-bit optimizer": CodeAdvice(
        lines=("import bitsandbytes as bnb", "optimizer = bnb.optim.AdamW8bit(...)"),
        caution="pip install bitsandbytes. State is kept in 8 bits; results differ a little.",
    ),
    "paged 8-bit optimizer": CodeAdvice(
        lines=("import bitsandbytes as bnb", "optimizer = bnb.optim.PagedAdamW8bit(...)"),
        caution="pip install bitsandbytes. State moves to the host's memory when there is no room.",
    ),
    "optimizer on the host": CodeAdvice(
        lines=(
            "# deepspeed: zero_optimization.offload_optimizer.device = cpu",
            "# or copies of the parameters in pinned memory, updated there:",
            "master.grad.copy_(p.grad, non_blocking=True); ...; p.copy_(master)",
        ),
        caution="The host needs memory for parameters, gradients and state; fused=True there, too.",
    ),
    "smaller passes": CodeAdvice(
        lines=(
            "for part in batch.chunk(passes):",
            "    (loss_of(part) / passes).backward()",
            "optimizer.step(); optimizer.zero_grad()",
        ),
        caution="Batch norm sees the smaller batch.",
    ),
    "DDP": CodeAdvice(
        lines=("model = DistributedDataParallel(model)  # torchrun --nproc-per-node N train.py",)
    ),
    "ZeRO-2": CodeAdvice(lines=("# deepspeed: zero_optimization.stage = 2",)),
    "FSDP": CodeAdvice(
        lines=(
            "from torch.distributed.fsdp import fully_shard",
            "for block in model.blocks: fully_shard(block)",
            "fully_shard(model)      # torchrun --nproc-per-node N train.py",
        )
    ),
    "tensor parallel": CodeAdvice(
        lines=("# torch.distributed.tensor.parallel.parallelize_module(block, mesh, plan)",),
        caution="Asks for a plan for every block; wants NVLink.",
    ),
    "pipeline parallel": CodeAdvice(
        lines=("# torch.distributed.pipelining: pipeline(model, ...), ScheduleInterleaved1F1B",),
        caution="Asks for a model that can be cut into stages.",
    ),
}
_LORA = CodeAdvice(
    lines=(
        "from peft import LoraConfig, get_peft_model",
        'model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))',
    ),
    caution="Trains small matrices beside a frozen model: for fine-tuning, not from scratch.",
)


def advice_for(kind: str) -> CodeAdvice:
    """What to write for one kind of change."""
    return _LORA if kind.startswith("LoRA") else ADVICE[kind]


# The user's own lines

_OPTIMIZERS = ("Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "Adafactor", "NAdam", "RAdam", "Lion")


def places_in(path: Path, function: str) -> dict[str, str]:
    """Where a step makes its optimizer and calls backward: `train.py:31  loss.backward()`.

    In the step's own function, or else in the file where there is only one such place.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return {}
    own = [node for node in ast.walk(tree) if _is_function(node, function)]
    lines = text.splitlines()
    places = {}
    for what, names in (("optimizer", _OPTIMIZERS), ("backward", ("backward",))):
        line = _first_call(own[0], names) if own else None
        if line is None:
            line = _only_call(tree, names)
        if line is not None:
            places[what] = f"{path.name}:{line}  {lines[line - 1].strip()}"
    return places


def _is_function(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


def _calls(tree: ast.AST, names: tuple[str, ...]) -> list[int]:
    """The lines that call something of these names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(call.lineno for call in calls if _name(call.func) in names)


def _first_call(tree: ast.AST, names: tuple[str, ...]) -> int | None:
    return next(iter(_calls(tree, names)), None)


def _only_call(tree: ast.AST, names: tuple[str, ...]) -> int | None:
    lines = _calls(tree, names)
    return lines[0] if len(lines) == 1 else None


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


PLACE_OF = {
    "bf16 autocast": "backward",
    "fp16 autocast": "backward",
    "smaller passes": "backward",
    "fused optimizer": "optimizer",
    "8-bit optimizer": "optimizer",
    "paged 8-bit optimizer": "optimizer",
    "optimizer on the host": "optimizer",
}
"""The place in the user's file that a change is about."""
