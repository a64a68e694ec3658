"""Shared pieces of the reference workloads."""

import torch
import torch.nn.functional as F

if torch.version.cuda is None:
    # torchvision's only wheel needs CUDA libraries for its own operators; with a CPU torch its
    # models import once these exist.
    try:
        _ops = torch.library.Library("torchvision", "DEF")
        for _name in ("nms", "qnms"):
            _ops.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass  # someone else defined them first


def train(model, loss_fn, optimizer="adamw", precision="bf16-amp", lr=1e-4):
    """Wrap `loss_fn(model) -> scalar` into a full step: forward, backward, update, zero_grad.

    precision: fp32 | tf32 | bf16-amp | fp16-amp (with GradScaler) | bf16 (weights in bf16)
    """
    if precision == "bf16":
        model.bfloat16()
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    opt = {
        "adamw": lambda: torch.optim.AdamW(params, lr=lr),
        "adam": lambda: torch.optim.Adam(params, lr=lr),
        "sgd": lambda: torch.optim.SGD(params, lr=lr, momentum=0.9),
    }[optimizer]()
    amp = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16-amp" else None
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision != "fp32"

    def step():
        with torch.autocast("cuda", amp, enabled=amp is not None):
            loss = loss_fn(model)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        else:
            loss.backward()
            opt.step()
        opt.zero_grad(set_to_none=True)

    return step


def classify(model, batch_size, size=224, classes=1000, channels_last=False, **kw):
    x = torch.randn(batch_size, 3, size, size)
    y = torch.randint(classes, (batch_size,))
    if channels_last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.to(memory_format=torch.channels_last),
        )
    if kw.get("precision") == "bf16":
        x = x.bfloat16()
    return train(model, lambda m: F.cross_entropy(m(x).float(), y), **kw)


def causal_lm(model, batch_size, seq, vocab, **kw):
    ids = torch.randint(vocab, (batch_size, seq))
    return train(model, lambda m: m(input_ids=ids, labels=ids).loss, **kw)
