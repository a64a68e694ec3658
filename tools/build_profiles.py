"""Trace the steps in `examples/` anew and write them as the bundled profiles (needs torch).

Run it after a change to an example or to the tracer:  make profiles
"""

from __future__ import annotations

import sys
from pathlib import Path

from outlay.facts import DATA
from outlay.trace.store import write_profile
from outlay.trace.tracing import profile_of

ROOT = Path(__file__).parent.parent
FOLDER = DATA / "profiles"

BATCH_SIZES = (4, 8, 16, 32)
"""Multiples of four: StyleNAT's discriminator compares images in groups of four."""

PROFILES = {
    "stylenat": (
        "stylenat.py:training_step",
        "image 256x256",
        "StyleNAT GAN on FFHQ-256, TF32, Adam, R1 every 16th iteration",
    ),
    "resnet50": (
        "resnet50.py:training_step",
        "image 224x224",
        "ResNet-50 on ImageNet, bf16 autocast, SGD with momentum",
    ),
    "vit-b16": ("vit_b16.py:training_step", "image 224x224", "ViT-B/16, bf16 autocast, AdamW"),
    "gpt2-medium": (
        "gpt2_medium.py:training_step",
        "sequence of 1024 tokens",
        "GPT-2 medium, bf16 autocast, AdamW",
    ),
    "bert-large": (
        "bert_large.py:training_step",
        "sequence of 512 tokens",
        "BERT-large masked language model, fp16 autocast with loss scaling, AdamW",
    ),
    "llama-1b": (
        "llama_1b.py:training_step",
        "sequence of 2048 tokens",
        "1.1B Llama (TinyLlama's shape), pure bf16, AdamW",
    ),
    "latent-diffusion-unet": (
        "latent_diffusion_unet.py:training_step",
        "latent 64x64x4 with 77 text tokens",
        "U-Net of Stable Diffusion 1.x, bf16 autocast, AdamW",
    ),
}
"""Name: the step, what one sample is, and a description."""


def main(names: list[str]) -> None:
    """Trace the named profiles, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PROFILES:
        step, sample, description = PROFILES[name]
        profile = profile_of(
            str(ROOT / "examples" / step),
            BATCH_SIZES,
            name=name,
            sample=sample,
            description=description,
        )
        write_profile(profile, FOLDER / f"{name}.json.gz")
        print(f"{name}: {profile.parameters:,} parameters, {len(profile.ops)} kinds of operation")


if __name__ == "__main__":
    main(sys.argv[1:])
