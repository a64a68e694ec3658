"""The scripts of `public/`: how they are called, and what is true of them.

They are written as people write theirs, one way of stepping each, and know nothing of outlay. Two
presets: `tiny` for a CPU (some 60 to 200 steps of a few hundredths of a second, to the end), `gpu`
for an H200 that it keeps busy (steps of some 50 to 300 ms, without an end of its own).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PUBLIC = Path(__file__).parent / "public"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """Arguments, and what is true of a run with them."""

    arguments: str
    samples: int
    """Of one training step: batch times accumulation."""
    steps_per_epoch: int | None = None
    """None where there are no epochs."""
    steps: int | None = None
    """Training steps of the whole run; None where nobody waits for its end."""
    evaluates_every: int | None = None
    """Steps from one evaluation (or sample) to the next; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script, the lines that it prints while it trains, and its two presets."""

    path: str
    line: str
    """What a line of its log has: `it` is an iteration, `epoch` where those begin anew."""
    batch: str
    """The argument that sets its batch."""
    tiny: Preset
    gpu: Preset
    per_step: tuple[float, ...] = (1.0,)
    """How often each optimizer steps in a training step, the most frequent first."""
    lines_per_step: int = 1
    """Iterations, as it counts them, of one training step."""
    is_endless: bool = False
    """Whether its loaders begin anew without a line in its log."""
    has_loader: bool = True
    """Without a DataLoader, nothing tells outlay where an epoch begins."""
    is_reinforcement: bool = False
    """Whether it learns from what it did: what a sample is, is then a matter of words."""

    def command(self, preset: Preset) -> list[str]:
        return [str(PUBLIC / self.path), *preset.arguments.split()]

    def iteration(self, text: str) -> tuple[int, int] | None:
        """The epoch and iteration that a line of output is of, or None."""
        found = re.search(self.line, text)
        if found is None:
            return None
        return int(found.groupdict().get("epoch") or 0), int(found["it"])


SCRIPTS: dict[str, Script] = {
    "nanogpt": Script(
        path="nanogpt.py",
        line=r"^iter (?P<it>\d+): loss",
        batch="--batch_size",
        tiny=Preset(
            arguments="--n_layer=2 --n_head=2 --n_embd=32 --block_size=32 --vocab_size=128"
            " --batch_size=4 --gradient_accumulation_steps=3 --max_iters=99"
            " --eval_interval=40 --eval_iters=4 --log_interval=5 --data_tokens=20000"
            " --out_dir=checkpoints",
            samples=4 * 3,
            steps=100,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--batch_size=16 --gradient_accumulation_steps=4 --eval_interval=40"
            " --eval_iters=10 --log_interval=5",
            samples=16 * 4,
            evaluates_every=40,
        ),
    ),
    "mingpt": Script(
        path="mingpt.py",
        line=r"iter (?P<it>\d+): train loss",
        batch="--batch-size",
        is_endless=True,
        tiny=Preset(
            arguments="--max-iters 120 --batch-size 16 --num-workers 1 --log-every 5 --eval-every"
            " 40 --n-embd 24 --num-samples 480",
            samples=16,
            steps_per_epoch=480 // 16,
            steps=120,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--length 128 --num-digits 10 --n-layer 12 --n-head 12 --n-embd 768"
            " --batch-size 64 --num-samples 2560 --log-every 5 --eval-every 100000",
            samples=64,
            steps_per_epoch=2560 // 64,
        ),
    ),
    "ddpm": Script(
        path="ddpm.py",
        line=r"^(?P<it>\d+): [\d.]+ \(mem",
        batch="--batch-size",
        is_endless=True,
        tiny=Preset(
            arguments="--image-size 16 --images 96 --dim 8 --batch-size 4 --workers 1"
            " --train-num-steps 80 --update-ema-every 5 --step-start-ema 10"
            " --save-and-sample-every 25 --n-samples 2 --sample-steps 4 --log-every 5",
            samples=4 * 2,
            steps_per_epoch=96 // 4 // 2,
            steps=80,
            evaluates_every=25,
        ),
        gpu=Preset(
            arguments="--image-size 64 --images 6400 --dim 128 --batch-size 64 --workers 6 --fp16"
            " --save-and-sample-every 40 --n-samples 8 --sample-steps 20 --log-every 5",
            samples=64 * 2,
            steps_per_epoch=6400 // 64 // 2,
            evaluates_every=40,
        ),
    ),
    "dit": Script(
        path="dit.py",
        line=r"\(step=(?P<it>\d+)\) Train Loss",
        batch="--global-batch-size",
        tiny=Preset(
            arguments="--model DiT-XS/2 --image-size 64 --num-classes 10 --num-samples 240"
            " --epochs 4 --global-batch-size 8 --num-workers 1 --log-every 5"
            " --ckpt-every 40",
            samples=8,
            steps_per_epoch=240 // 8,
            steps=120,
        ),
        gpu=Preset(
            arguments="--model DiT-B/2 --num-samples 12800 --global-batch-size 256 --log-every 10"
            " --mixed-precision --num-workers 6",
            samples=256,
            steps_per_epoch=12800 // 256,
        ),
    ),
    "stargan2": Script(
        path="stargan2/main.py",
        line=r"Iteration \[(?P<it>\d+)/",
        batch="--batch_size",
        is_endless=True,
        per_step=(2, 2, 1, 1),
        tiny=Preset(
            arguments="--img_size 16 --num_images 64 --batch_size 4 --val_batch_size 4 --dim_in 4"
            " --max_dim 8 --hidden_dim 16 --style_dim 8 --total_iters 70 --num_workers 1"
            " --print_every 5 --sample_every 20 --save_every 50",
            samples=4 + 4,  # of its loader of sources, and of that of references
            steps_per_epoch=64 // 4,
            steps=70,
            evaluates_every=20,
        ),
        gpu=Preset(
            arguments="--img_size 256 --num_images 160 --batch_size 4 --print_every 5"
            " --sample_every 20",
            samples=4 + 4,  # of its loader of sources, and of that of references
            steps_per_epoch=160 // 4,
            evaluates_every=20,
        ),
    ),
    "stylegan2": Script(
        path="stylegan2/train.py",
        line=r"^\[(?P<it>\d+)/\d+\] d:",
        batch="--batch",
        is_endless=True,
        per_step=(1 + 1 / 4, 1 + 1 / 16),
        tiny=Preset(
            arguments="--size 16 --latent 16 --n_mlp 2 --channel_base 256 --channel_max 16"
            " --batch 4 --images 160 --n_sample 4 --iter 160 --workers 1 --log_every 16"
            " --sample_every 48 --save_every 80",
            samples=4,
            steps_per_epoch=160 // 4,
            steps=160,
            evaluates_every=48,
        ),
        gpu=Preset(
            arguments="--size 64 --batch 32 --images 3200 --log_every 16 --sample_every 96"
            " --workers 6",
            samples=32,
            steps_per_epoch=3200 // 32,
            evaluates_every=96,
        ),
    ),
    "stylegan2_ext": Script(
        path="stylegan2_ext/train.py",
        line=r"^\[(?P<it>\d+)/\d+\] d:",
        batch="--batch",
        is_endless=True,
        per_step=(1 + 1 / 4, 1 + 1 / 16),
        tiny=Preset(
            arguments="--size 16 --latent 16 --n_mlp 2 --channel_base 256 --channel_max 16"
            " --batch 4 --images 160 --n_sample 4 --iter 96 --workers 1 --log_every 16"
            " --sample_every 48 --save_every 80",
            samples=4,
            steps_per_epoch=160 // 4,
            steps=96,
            evaluates_every=48,
        ),
        gpu=Preset(
            arguments="--size 64 --batch 32 --images 3200 --log_every 16 --sample_every 96"
            " --workers 6",
            samples=32,
            steps_per_epoch=3200 // 32,
            evaluates_every=96,
        ),
    ),
    "cyclegan": Script(
        path="cyclegan.py",
        line=r"^\(epoch: (?P<epoch>\d+), iters: (?P<it>\d+),",
        batch="--batch_size",
        per_step=(1, 1),
        tiny=Preset(
            arguments="--load_size 36 --crop_size 32 --ngf 4 --ndf 4 --n_blocks 2 --batch_size 2"
            " --max_dataset_size 60 --num_threads 1 --n_epochs 2 --n_epochs_decay 1"
            " --print_freq 5 --save_epoch_freq 2",
            samples=2,
            steps_per_epoch=60 // 2,
            steps=3 * 30,
        ),
        gpu=Preset(
            arguments="--batch_size 4 --max_dataset_size 160 --print_freq 5",
            samples=4,
            steps_per_epoch=160 // 4,
        ),
    ),
    "wgan_gp": Script(
        path="wgan_gp.py",
        line=r"^iter (?P<it>\d+)\ttrain disc",
        batch="--batch-size",
        is_endless=True,
        per_step=(5, 1),
        tiny=Preset(
            arguments="--size 16 --dim 8 --latent 16 --batch-size 8 --images 800 --iters 80"
            " --workers 1 --print-every 5 --dev-every 20 --save-every 40",
            samples=5 * 8,
            steps_per_epoch=800 // 8 // 5,
            steps=80,
            evaluates_every=20,
        ),
        gpu=Preset(
            arguments="--size 64 --dim 192 --batch-size 256 --images 51200 --workers 8"
            " --print-every 5 --dev-every 30",
            samples=5 * 256,
            steps_per_epoch=51200 // 256 // 5,
            evaluates_every=30,
        ),
    ),
    "resnet_imagenet": Script(
        path="resnet_imagenet.py",
        line=r"^Epoch: \[(?P<epoch>\d+)\]\[ *(?P<it>\d+)/",
        batch="--batch-size",
        tiny=Preset(
            arguments="-a tiny --image-size 32 --train-images 320 --val-images 64 -b 8 -j 1"
            " --epochs 3 -p 5 --channels-last",
            samples=8,
            steps_per_epoch=320 // 8,
            steps=3 * 40,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="-a resnet50 --train-images 10240 --val-images 1024 -b 256 -j 10"
            " --channels-last",
            samples=256,
            steps_per_epoch=10240 // 256,
            evaluates_every=40,
        ),
    ),
    "yolo": Script(
        path="yolo.py",
        line=r"(?P<epoch>\d+)/\d+ batch (?P<it>\d+)/\d+ mem",
        batch="--batch-size",
        lines_per_step=4,
        tiny=Preset(
            arguments="--images 384 --val-images 32 --nc 4 --width 4 --depth 1 --epochs 6"
            " --batch-size 16 --imgsz 64 --warmup-epochs 0.1 --warmup-iters 4 --workers"
            " 1 --log-every 4",
            samples=64,
            steps_per_epoch=384 // 64,
            evaluates_every=6,
        ),
        gpu=Preset(
            arguments="--images 2560 --val-images 128 --batch-size 16 --warmup-epochs 0.02"
            " --warmup-iters 8 --log-every 20",
            samples=64,
            steps_per_epoch=2560 // 64,
            evaluates_every=40,
        ),
    ),
    "dqn": Script(
        path="dqn.py",
        line=r"^step (?P<it>\d+) episode",
        batch="--batch-size",
        is_reinforcement=True,
        tiny=Preset(
            arguments="--episodes 1000 --max-steps 800 --batch-size 64 --width 32 --log-every 100",
            samples=64,
        ),
        gpu=Preset(arguments="--episodes 100000 --log-every 500", samples=128),
    ),
    "ppo": Script(
        path="ppo.py",
        line=r"gradient_step=(?P<it>\d+)",
        batch="--num-envs",
        is_reinforcement=True,
        tiny=Preset(
            arguments="--total-timesteps 5120 --num-envs 8 --num-steps 32 --save-every 10",
            samples=8 * 32 // 4,
            steps=5120 // (8 * 32) * 16,
        ),
        gpu=Preset(arguments="--total-timesteps 50000000", samples=16 * 128 // 4),
    ),
    "unet_segmentation": Script(
        path="unet_segmentation.py",
        line=r"Epoch \d+/\d+ step (?P<it>\d+) loss",
        batch="--batch-size",
        tiny=Preset(
            arguments="--size 32 --width 4 -b 4 --images 200 -e 2 --workers 1 --log-every 5"
            " --evaluations 2",
            samples=4,
            steps_per_epoch=180 // 4,
            steps=2 * 45,
            evaluates_every=180 // (2 * 4),
        ),
        gpu=Preset(
            arguments="-b 8 --images 800 -e 100 --workers 8 --log-every 15 --evaluations 2 --amp",
            samples=8,
            steps_per_epoch=720 // 8,
            evaluates_every=45,
        ),
    ),
    "bert_mlm": Script(
        path="bert_mlm.py",
        line=r"^step (?P<it>\d+)/\d+ loss",
        batch="--per_device_train_batch_size",
        tiny=Preset(
            arguments="--vocab_size 200 --hidden_size 32 --layers 2 --heads 2 --max_seq_length 32"
            " --train_lines 240 --validation_lines 16 --per_device_train_batch_size 4"
            " --gradient_accumulation_steps 2 --num_train_epochs 3 --logging_steps 5"
            " --checkpointing_steps 40 --num_workers 1 --num_warmup_steps 5",
            samples=4 * 2,
            steps_per_epoch=240 // 8,
            steps=3 * 30,
            evaluates_every=30,
        ),
        gpu=Preset(
            arguments="--train_lines 5120 --validation_lines 128 --per_device_train_batch_size 32"
            " --gradient_accumulation_steps 4 --num_train_epochs 100 --logging_steps 5"
            " --num_workers 6 --bf16",
            samples=32 * 4,
            steps_per_epoch=5120 // 128,
            evaluates_every=40,
        ),
    ),
    "vit_mae": Script(
        path="vit_mae.py",
        line=r"^Epoch: \[(?P<epoch>\d+)\]  \[ *(?P<it>\d+)/",
        batch="--batch_size",
        lines_per_step=2,
        tiny=Preset(
            arguments="--batch_size 8 --accum_iter 2 --epochs 3 --input_size 32 --patch_size 8"
            " --embed_dim 32 --depth 2 --num_heads 2 --decoder_embed_dim 32"
            " --decoder_depth 1 --warmup_epochs 1 --data_images 480 --num_workers 1"
            " --print_freq 10",
            samples=8 * 2,
            steps_per_epoch=480 // 16,
            steps=3 * 30,
        ),
        gpu=Preset(
            arguments="--batch_size 128 --accum_iter 2 --embed_dim 1024 --depth 24 --num_heads 16"
            " --data_images 12800 --num_workers 10 --print_freq 20",
            samples=128 * 2,
            steps_per_epoch=12800 // 256,
        ),
    ),
    "lstm_lm": Script(
        path="lstm_lm.py",
        line=r"^\| epoch +(?P<epoch>\d+) \| +(?P<it>\d+)/",
        batch="--batch_size",
        has_loader=False,
        tiny=Preset(
            arguments="--words 6408 --ntoken 200 --emsize 32 --nhid 32 --batch_size 8 --bptt 20"
            " --epochs 3 --log-interval 10 --lr 2",
            samples=8,
            steps_per_epoch=(6408 // 8 - 1) // 20,
            steps=3 * 40,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--words 537728 --emsize 1500 --nhid 1500 --batch_size 128 --bptt 70"
            " --log-interval 10",
            samples=128,
            steps_per_epoch=(537728 // 128 - 1) // 70,
            evaluates_every=60,
        ),
    ),
    "moe_gpt": Script(
        path="moe_gpt.py",
        line=r"^step (?P<it>\d+) \| loss",
        batch="--batch-size",
        tiny=Preset(
            arguments="--vocab 128 --block 32 --dim 32 --hidden 48 --layers 2 --heads 2 --experts"
            " 4 --batch-size 4 --steps 120 --workers 1 --log-every 5 --eval-every 40"
            " --eval-batches 4 --save-every 60",
            samples=4,
            steps=120,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--batch-size 16 --log-every 10 --eval-every 60 --eval-batches 5"
            " --save-every 100000",
            samples=16,
            evaluates_every=60,
        ),
    ),
    "llama_finetune": Script(
        path="llama_finetune.py",
        line=r"^epoch \d+ step (?P<it>\d+)/\d+ loss",
        batch="--micro-batch-size",
        is_endless=True,
        tiny=Preset(
            arguments="--gradient-checkpointing --examples 320 --vocab-size 128 --dim 32 --ffn 64"
            " --n-layers 2 --n-heads 4 --n-kv-heads 2 --max-length 32 --micro-batch-size"
            " 4 --gradient-accumulation-steps 2 --epochs 3 --log-every 5 --eval-every 20"
            " --save-every 50",
            samples=4 * 2,
            steps_per_epoch=320 // 8,
            steps=3 * 40,
            evaluates_every=20,
        ),
        gpu=Preset(
            arguments="--gradient-checkpointing --examples 320 --epochs 100 --micro-batch-size 4"
            " --gradient-accumulation-steps 2 --eval-every 40 --save-every 100000",
            samples=4 * 2,
            steps_per_epoch=320 // 8,
            evaluates_every=40,
        ),
    ),
    "llama_lora": Script(
        path="llama_finetune.py",
        line=r"^epoch \d+ step (?P<it>\d+)/\d+ loss",
        batch="--micro-batch-size",
        is_endless=True,
        tiny=Preset(
            arguments="--lora --lora-r 4 --gradient-checkpointing --examples 160 --vocab-size 128"
            " --dim 32 --ffn 64 --n-layers 2 --n-heads 4 --n-kv-heads 2 --max-length 32"
            " --micro-batch-size 4 --gradient-accumulation-steps 1 --epochs 3"
            " --log-every 5 --eval-every 20 --lr 1e-3",
            samples=4,
            steps_per_epoch=160 // 4,
            steps=3 * 40,
            evaluates_every=20,
        ),
        gpu=Preset(
            arguments="--lora --gradient-checkpointing --examples 320 --epochs 100"
            " --micro-batch-size 8 --gradient-accumulation-steps 1 --lr 1e-4"
            " --eval-every 1000 --save-every 100000",
            samples=8,
            steps_per_epoch=320 // 8,
        ),
    ),
    "gnn": Script(
        path="gnn.py",
        line=r"^Epoch: (?P<epoch>\d+), batch: (?P<it>\d+)",
        batch="--batch-size",
        tiny=Preset(
            arguments="--graphs 320 --most-atoms 10 --hidden 16 --layers 2 --batch-size 8"
            " --epochs 3 --workers 1 --print-every 5",
            samples=8,
            steps_per_epoch=320 // 8,
            steps=3 * 40,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--graphs 25600 --batch-size 512 --workers 8",
            samples=512,
            steps_per_epoch=25600 // 512,
            evaluates_every=50,
        ),
    ),
    "conformer_ctc": Script(
        path="conformer_ctc.py",
        line=r"^TRAIN Batch (?P<epoch>\d+)/(?P<it>\d+) loss",
        batch="--batch-size",
        tiny=Preset(
            arguments="--utterances 160 --longest 64 --mels 16 --d-model 16 --layers 1 --heads 2"
            " --vocab 20 --batch-size 4 --max-epoch 3 --workers 1 --log-interval 5"
            " --warmup 50",
            samples=4,
            steps_per_epoch=160 // 4,
            steps=3 * 40,
            evaluates_every=40,
        ),
        gpu=Preset(
            arguments="--utterances 1600 --batch-size 32 --workers 8 --use-amp",
            samples=32,
            steps_per_epoch=1600 // 32,
            evaluates_every=50,
        ),
    ),
    "dino": Script(
        path="dino.py",
        line=r"^Epoch: \[(?P<epoch>\d+)/\d+\]  \[ *(?P<it>\d+)/",
        batch="--batch_size_per_gpu",
        tiny=Preset(
            arguments="--global_size 32 --local_size 16 --local_crops_number 4 --patch_size 8"
            " --dim 16 --depth 1 --heads 2 --out_dim 64 --batch_size_per_gpu 4 --images 120"
            " --epochs 3 --num_workers 1 --print_freq 5",
            samples=4,
            steps_per_epoch=120 // 4,
            steps=3 * 30,
        ),
        gpu=Preset(
            arguments="--batch_size_per_gpu 64 --images 3200 --use_fp16",
            samples=64,
            steps_per_epoch=3200 // 64,
        ),
    ),
    "td3": Script(
        path="td3.py",
        line=r"Updates: (?P<it>\d+) Critic loss",
        batch="--batch_size",
        per_step=(2, 1),
        lines_per_step=2,
        is_reinforcement=True,
        tiny=Preset(
            arguments="--start_timesteps 100 --max_timesteps 500 --eval_freq 200 --width 32"
            " --batch_size 64 --log_freq 50",
            samples=2 * 64,
            steps=(500 - 100) // 2,
            evaluates_every=200 // 2,
        ),
        gpu=Preset(arguments="", samples=2 * 256, evaluates_every=5000 // 2),
    ),
    "vqgan": Script(
        path="vqgan.py",
        line=r"^epoch (?P<epoch>\d+) it (?P<it>\d+)/",
        batch="--batch-size",
        per_step=(1, 1),
        tiny=Preset(
            arguments="--image-size 32 --channels 8 --latent-dim 8 --num-codebook-vectors 32"
            " --batch-size 4 --images 120 --epochs 3 --disc-start 20 --num-workers 1"
            " --log-every 5",
            samples=4,
            steps_per_epoch=120 // 4,
            steps=3 * 30,
        ),
        gpu=Preset(
            arguments="--batch-size 8 --images 400 --disc-start 10 --log-every 10",
            samples=8,
            steps_per_epoch=400 // 8,
        ),
    ),
}
"""By name; `stylegan2_ext` builds an extension at import and does without where it cannot."""
