"""What recipes share. A rendered recipe has the functions that it uses written out at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


def dtypes_of(precision: str) -> tuple[torch.dtype, torch.dtype | None]:
    """The precision of the weights, and that of autocast, if any."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if precision == "bf16":
        return torch.bfloat16, None
    autocast = {"bf16 autocast": torch.bfloat16, "fp16 autocast": torch.float16}
    return torch.float32, autocast.get(precision)


def optimizer_of(parameters: list[nn.Parameter], name: str) -> Any:
    """The optimizer of a name, made as transformers' Trainer makes it."""
    if name == "adamw":  # its default, `adamw_torch_fused`
        return torch.optim.AdamW(parameters, lr=2e-5, fused=True)
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)
    if name == "adafactor":
        from transformers.optimization import Adafactor

        return Adafactor(parameters, lr=2e-5, scale_parameter=False, relative_step=False)
    if name == "muon":  # for matrices; what is none has AdamW
        matrices = [parameter for parameter in parameters if parameter.ndim == 2]
        others = [parameter for parameter in parameters if parameter.ndim != 2]
        adamw = [torch.optim.AdamW(others, lr=2e-5, fused=True)] if others else []
        return Together([torch.optim.Muon(matrices, lr=2e-3), *adamw])
    import bitsandbytes

    paged = name == "paged-adamw-8bit"  # the other is "adamw-8bit"
    return bitsandbytes.optim.AdamW8bit(parameters, lr=2e-5, is_paged=paged)


class Together:
    """Several optimizers as one."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)

    def step(self) -> None:
        """Update what each has."""
        for optimizer in self.optimizers:
            optimizer.step()

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()


def step_of(
    loss_of: Callable[[], Tensor],
    parameters: list[nn.Parameter],
    optimizer: str,
    autocast: torch.dtype | None,
    accumulation: int = 1,
    clip_norm: float | None = None,
) -> Callable[[], None]:
    """A step on one batch: forward and backward; the last of `accumulation` of them updates."""
    update = optimizer_of(parameters, optimizer)
    scaler = torch.amp.GradScaler("cuda") if autocast is torch.float16 else None
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            loss = loss_of()
        if accumulation > 1:
            loss = loss / accumulation
        (loss if scaler is None else scaler.scale(loss)).backward()
        if calls % accumulation:
            return
        if clip_norm is not None:
            if scaler is not None:
                scaler.unscale_(update)
            nn.utils.clip_grad_norm_(parameters, clip_norm)
        if scaler is None:
            update.step()
        else:
            scaler.step(update)
            scaler.update()
        update.zero_grad()

    step.period = accumulation  # so many calls make an update
    return step


def trained_parameters(model: nn.Module, frozen: tuple[str, ...] = ()) -> list[nn.Parameter]:
    """The parameters to train, without those with one of these texts in their names."""
    for name, parameter in model.named_parameters():
        if any(text in name for text in frozen):
            parameter.requires_grad_(False)
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def transformers_model(
    auto_class: str,
    config: dict[str, Any],
    dtype: torch.dtype,
    attention: str = "sdpa",
    checkpointing: bool = False,
) -> nn.Module:
    """A model of a config with random weights, ready to be trained."""
    import transformers

    runs_own_code = "auto_map" in config  # code of its repository, which is fetched and run
    if runs_own_code:
        made = transformers.AutoConfig.from_pretrained(
            config["_name_or_path"], trust_remote_code=True
        )
    elif config["model_type"] not in transformers.CONFIG_MAPPING:
        raise ValueError(
            f"transformers {transformers.__version__} knows no models of the type "
            f"{config['model_type']!r}: a newer one may"
        )
    else:
        made = transformers.AutoConfig.for_model(**config)
    model = getattr(transformers, auto_class).from_config(
        made,
        dtype=dtype,
        attn_implementation=None if attention == "sdpa" else attention,  # sdpa, where it has it
        trust_remote_code=runs_own_code,
    )
    model.config.use_cache = False  # as Trainer sets it
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def apply_liger(config: dict[str, Any]) -> None:
    """Let models of this kind be built of Liger's layers."""
    from liger_kernel import transformers

    getattr(transformers, f"apply_liger_kernel_to_{config['model_type']}")()


def token_batch(
    model: nn.Module, batch_size: int, tokens: int, packing: bool = False
) -> dict[str, Tensor]:
    """Token ids and labels; unless samples are packed, one is shorter and the mask says so."""
    vocabulary = model.config.get_text_config().vocab_size
    ids = torch.randint(vocabulary, (batch_size, tokens))
    if packing:
        return {"input_ids": ids, "labels": ids}
    mask = torch.ones(batch_size, tokens, dtype=torch.long)
    mask[0, -1] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}


def linears_of(model: nn.Module, targets: tuple[str, ...]) -> list[str]:
    """Names of linear layers that end in one of these; of "all-linear" all but the last layer."""
    last = model.get_output_embeddings()
    return [
        name
        for name, layer in model.named_modules()
        if (isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D")
        and layer is not last
        and ("all-linear" in targets or name.rpartition(".")[2] in targets)
    ]


def adapted(
    model: nn.Module, rank: int, alpha: int, dropout: float, targets: tuple[str, ...]
) -> nn.Module:
    """The model frozen, with trained low-rank pairs beside its linear layers."""
    import peft

    names = linears_of(model, targets)
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=names)
    model = peft.get_peft_model(model, config)
    if model.is_gradient_checkpointing:
        model.enable_input_require_grads()  # as trl does, whatever kind of checkpoint it is
    return model


def in_four_bits(model: nn.Module, double: bool) -> None:
    """Replace linear layers but the last by layers of 4-bit weights, one after the other.

    As from_pretrained does it, each weight is packed on its way to the GPU.
    """
    import bitsandbytes

    for name in linears_of(model, ("all-linear",)):
        linear = model.get_submodule(name)
        if not isinstance(linear, nn.Linear):  # GPT-2's Conv1D has its weight the other way round
            linear.weight = nn.Parameter(linear.weight.data.t().contiguous())
        outputs, inputs = linear.weight.shape
        packed = bitsandbytes.nn.Linear4bit(
            inputs,
            outputs,
            bias=linear.bias is not None,
            compute_dtype=torch.bfloat16,
            compress_statistics=double,
            quant_type="nf4",
            device="meta",
        )
        packed.weight = bitsandbytes.nn.Params4bit(
            linear.weight.data,
            requires_grad=False,
            compress_statistics=double,
            quant_type="nf4",
            module=packed,
        )
        packed.bias = linear.bias
        model.set_submodule(name, packed.to("cuda"))  # packs the weight
    model.is_loaded_in_4bit = True


def image_classifier(
    library: str,
    config: dict[str, Any],
    classes: int,
    image_size: int | None,
    checkpointing: bool,
) -> tuple[nn.Module, int]:
    """A classifier with random weights, and the size of its images."""
    if library == "timm":
        import timm

        name = config["architecture"]
        usual = timm.models.get_pretrained_cfg(name)
        size = image_size or usual.input_size[-1]
        fixed = {"img_size": size} if usual.fixed_input_size else {}
        model = timm.create_model(name, num_classes=classes, **fixed)
        if checkpointing:
            model.set_grad_checkpointing()
        return model, size
    if library == "torchvision":
        from torchvision.models import get_model, get_model_weights

        name = config["architecture"]
        usual = get_model_weights(name).DEFAULT.transforms().crop_size[0]
        size = image_size or usual
        fixed = {"image_size": size} if name.startswith("vit_") else {}
        return get_model(name, weights=None, num_classes=classes, **fixed), size
    size = image_size or config.get("image_size", 224)
    sized = {**config, "num_labels": classes}
    if "image_size" in config:
        sized["image_size"] = size
    model = transformers_model(
        "AutoModelForImageClassification", sized, torch.float32, "sdpa", checkpointing
    )
    return model, size


def diffusion_inputs(
    model: nn.Module,
    batch_size: int,
    image_size: int | None,
    text_tokens: int | None,
    dtype: torch.dtype,
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """What a model of diffusers is called with, and the shape of the noise it predicts."""
    config, kind = model.config, type(model).__name__

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=dtype)

    if kind == "FluxTransformer2DModel":  # patches of 2 x 2 latents in a row
        patches = ((image_size or 1024) // 16) ** 2
        tokens = text_tokens or 512
        inputs = {
            "hidden_states": made(batch_size, patches, config.in_channels),
            "encoder_hidden_states": made(batch_size, tokens, config.joint_attention_dim),
            "pooled_projections": made(batch_size, config.pooled_projection_dim),
            "timestep": torch.rand(batch_size, dtype=dtype),
            "img_ids": torch.zeros(patches, 3, dtype=dtype),
            "txt_ids": torch.zeros(tokens, 3, dtype=dtype),
        }
        if config.guidance_embeds:
            inputs["guidance"] = torch.ones(batch_size, dtype=dtype)
        return inputs, (batch_size, patches, config.in_channels)
    side = config.sample_size if image_size is None else image_size // 8
    shape = (batch_size, config.in_channels, side, side)
    steps = torch.randint(1000, (batch_size,))
    if kind == "SD3Transformer2DModel":
        inputs = {
            "hidden_states": made(*shape),
            "timestep": steps,
            "encoder_hidden_states": made(
                batch_size, text_tokens or 333, config.joint_attention_dim
            ),
            "pooled_projections": made(batch_size, config.pooled_projection_dim),
        }
        return inputs, shape
    if kind == "DiTTransformer2DModel":
        classes = torch.randint(config.num_embeds_ada_norm, (batch_size,))
        return {"hidden_states": made(*shape), "timestep": steps, "class_labels": classes}, shape
    inputs = {"sample": made(*shape), "timestep": steps}
    if getattr(config, "cross_attention_dim", None):
        texts = made(batch_size, text_tokens or 77, config.cross_attention_dim)
        inputs["encoder_hidden_states"] = texts
    if getattr(config, "addition_embed_type", None) == "text_time":  # Stable Diffusion XL
        pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        inputs["added_cond_kwargs"] = {
            "text_embeds": made(batch_size, pooled),
            "time_ids": torch.zeros(batch_size, 6, dtype=dtype),
        }
    return inputs, shape
