"""Training steps kept out of every fit."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Step, allow_tf32, classify, step_of

import torchvision.models as tv  # isort: skip  (after training, which defines its operators)
import transformers as tf  # isort: skip


def efficientnet_b4_bf16_amp(batch_size: int) -> Step:
    return classify(tv.efficientnet_b4(), batch_size, "bf16-amp", "rmsprop", size=(380, 380))


def efficientnet_v2_m_fp16_amp_nhwc(batch_size: int) -> Step:
    model = tv.efficientnet_v2_m()
    return classify(model, batch_size, "fp16-amp", size=(384, 384), channels_last=True)


def convnext_base_bf16_amp(batch_size: int) -> Step:
    return classify(tv.convnext_base(), batch_size, "bf16-amp", "adamw-fused", clip=True)


def swin_s_fp16_amp(batch_size: int) -> Step:
    return classify(tv.swin_s(), batch_size, "fp16-amp", "adamw", clip=True)


def regnet_x_16gf_tf32(batch_size: int) -> Step:
    return classify(tv.regnet_x_16gf(), batch_size, "tf32")


def resnext101_32x8d_bf16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.resnext101_32x8d(), batch_size, channels_last=True)


def densenet201_fp32(batch_size: int) -> Step:
    return classify(tv.densenet201(), batch_size, "fp32")


def mobilenet_v3_small_bf16_amp(batch_size: int) -> Step:
    return classify(tv.mobilenet_v3_small(num_classes=100), batch_size, classes=100)


def shufflenet_v2_x2_0_fp32(batch_size: int) -> Step:
    return classify(tv.shufflenet_v2_x2_0(), batch_size, "fp32", "sgd")


def vit_b16_384_tf32(batch_size: int) -> Step:
    return classify(tv.vit_b_16(image_size=384), batch_size, "tf32", "adamw", size=(384, 384))


def vgg13_bn_bf16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.vgg13_bn(), batch_size, channels_last=True)


def resnet152_bf16_amp_nhwc(batch_size: int) -> Step:
    return classify(tv.resnet152(), batch_size, channels_last=True)


def resnet50_96_bf16(batch_size: int) -> Step:
    return classify(tv.resnet50(num_classes=200), batch_size, "bf16", size=(96, 96), classes=200)


def resnet50_mixup_fp32_nhwc(batch_size: int) -> Step:
    """Each image mixed with another of its batch, and smoothed labels."""
    model = tv.resnet50().to(memory_format=torch.channels_last)
    x = torch.randn(batch_size, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    y = torch.randint(1000, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        order = torch.randperm(len(x), device=x.device)
        scores = model(0.7 * x + 0.3 * x[order])
        one = functional.cross_entropy(scores, y, label_smoothing=0.1)
        other = functional.cross_entropy(scores, y[order], label_smoothing=0.1)
        return 0.7 * one + 0.3 * other

    return step_of(model, loss_of, "fp32", "momentum")


def lraspp_mobilenet_v3_tf32(batch_size: int) -> Step:
    model = tv.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=21
    )
    x = torch.randn(batch_size, 3, 520, 520)
    y = torch.randint(21, (batch_size, 520, 520))
    return step_of(model, lambda m: functional.cross_entropy(m(x)["out"], y), "tf32", "momentum")


def mc3_18_fp16_amp(batch_size: int) -> Step:
    model = tv.video.mc3_18(num_classes=101)
    return classify(model, batch_size, "fp16-amp", size=(16, 112, 112), classes=101)


def simclr_resnet50_bf16_amp(batch_size: int) -> Step:
    """Two views of each image, each to be told from all others of the batch."""
    model = tv.resnet50()
    model.fc = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(inplace=True), nn.Linear(2048, 128))
    x = torch.randn(2 * batch_size, 3, 128, 128)
    pairs = torch.arange(2 * batch_size).roll(batch_size)
    itself = torch.eye(2 * batch_size, dtype=torch.bool)

    def loss_of(model: nn.Module) -> Tensor:
        z = functional.normalize(model(x).float(), dim=1)
        alike = (z @ z.T / 0.5).masked_fill(itself, -1e4)
        return functional.cross_entropy(alike.float(), pairs)

    return step_of(model, loss_of, "bf16-amp", "momentum")


def distillation_resnet18_fp16_amp(batch_size: int) -> Step:
    """A frozen ResNet-101 teaches a ResNet-18."""
    teacher = tv.resnet101().eval().requires_grad_(False)
    x, y = torch.randn(batch_size, 3, 224, 224), torch.randint(1000, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        with torch.no_grad():
            wanted = functional.softmax(teacher(x).float() / 4, 1)
        scores = model(x).float()
        soft = functional.kl_div(
            functional.log_softmax(scores / 4, 1), wanted, reduction="batchmean"
        )
        return 0.9 * 16 * soft + 0.1 * functional.cross_entropy(scores, y)

    return step_of(tv.resnet18(), loss_of, "fp16-amp", "momentum")


def pyramid_detector_fp16_amp(batch_size: int) -> Step:
    """A one-stage detector without anchors (FCOS): feature pyramid, two towers, focal loss."""

    def tower(out: int) -> nn.Sequential:
        layers = [
            layer
            for _ in range(4)
            for layer in (nn.Conv2d(256, 256, 3, padding=1), nn.GroupNorm(32, 256), nn.ReLU())
        ]
        return nn.Sequential(*layers, nn.Conv2d(256, out, 3, padding=1))

    class Pyramid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body = tv.resnet50()
            self.stem = nn.Sequential(body.conv1, body.bn1, body.relu, body.maxpool, body.layer1)
            self.stages = nn.ModuleList([body.layer2, body.layer3, body.layer4])
            self.sides = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in (512, 1024, 2048))
            self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
            self.further = nn.ModuleList(nn.Conv2d(256, 256, 3, 2, 1) for _ in range(2))
            self.classes, self.boxes = tower(80), tower(4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.stem(x)
            levels = []
            for stage, side in zip(self.stages, self.sides, strict=True):
                x = stage(x)
                levels.append(side(x))
            for fine in (1, 0):
                above = functional.interpolate(levels[fine + 1], scale_factor=2)
                levels[fine] = levels[fine] + above
            levels = [smooth(y) for smooth, y in zip(self.smooth, levels, strict=True)]
            for conv in self.further:
                levels.append(conv(functional.relu(levels[-1])))
            classes = torch.cat([self.classes(y).flatten(2) for y in levels], 2)
            return classes, torch.cat([self.boxes(y).flatten(2) for y in levels], 2)

    places = sum((640 // stride) ** 2 for stride in (8, 16, 32, 64, 128))
    x = torch.randn(batch_size, 3, 640, 640)
    there = (torch.rand(batch_size, 80, places) < 0.001).float()
    boxes = torch.rand(batch_size, 4, places)

    def loss_of(model: nn.Module) -> Tensor:
        scores, found = model(x)
        scores, p = scores.float(), scores.float().sigmoid()
        entropy = functional.binary_cross_entropy_with_logits(scores, there, reduction="none")
        wrong = p * (1 - there) + (1 - p) * there
        focal = (0.25 * there + 0.75 * (1 - there)) * wrong.square() * entropy
        weight = there.amax(1, keepdim=True)
        distance = (
            functional.smooth_l1_loss(found.float(), boxes, reduction="none") * weight
        ).sum()
        return (focal.sum() + distance) / weight.sum().clamp(min=1)

    return step_of(Pyramid(), loss_of, "fp16-amp", "momentum")


def _causal(
    model: nn.Module, batch_size: int, length: int, vocabulary: int, *args: str, **choices: object
) -> Step:
    ids = torch.randint(vocabulary, (batch_size, length))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids, use_cache=False).loss

    return step_of(model, loss_of, *args, **choices)


def gpt2_large_bf16_amp(batch_size: int) -> Step:
    model = tf.GPT2LMHeadModel(tf.GPT2Config(n_embd=1280, n_layer=36, n_head=20))
    return _causal(model, batch_size, 1024, 50257, "bf16-amp", "adamw-fused", clip=True)


def qwen2_500m_checkpointed_bf16_amp(batch_size: int) -> Step:
    config = tf.Qwen2Config(
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        intermediate_size=4864,
        vocab_size=151936,
        tie_word_embeddings=True,
    )
    model = tf.Qwen2ForCausalLM(config)
    model.gradient_checkpointing_enable()
    return _causal(model, batch_size, 1024, 151936, "bf16-amp", clip=True)


def mistral_500m_8k_bf16(batch_size: int) -> Step:
    """8192 tokens, of which each sees the 4096 before it."""
    config = tf.MistralConfig(
        hidden_size=1536,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=4,
        intermediate_size=4096,
        vocab_size=32000,
        sliding_window=4096,
    )
    return _causal(tf.MistralForCausalLM(config), batch_size, 8192, 32000, "bf16", "adamw-fused")


def bloom_560m_bf16(batch_size: int) -> Step:
    config = tf.BloomConfig(hidden_size=1024, n_layer=24, n_head=16, vocab_size=250880)
    return _causal(tf.BloomForCausalLM(config), batch_size, 512, 250000, "bf16")


class _LowRank(nn.Module):
    """A frozen linear layer and a trained correction of low rank."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(self.dropout(x)))


def gemma_low_rank_bf16(batch_size: int) -> Step:
    """Corrections of rank 16 to the attention of a frozen model."""
    config = tf.GemmaConfig(
        hidden_size=2048,
        num_hidden_layers=12,
        num_attention_heads=8,
        num_key_value_heads=1,
        head_dim=256,
        intermediate_size=8192,
        vocab_size=64000,
    )
    model = tf.GemmaForCausalLM(config).requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, _LowRank(getattr(layer.self_attn, name), 16))
    return _causal(model, batch_size, 512, 64000, "bf16", "adamw")


def deberta_v3_base_tf32(batch_size: int) -> Step:
    config = tf.DebertaV2Config(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        relative_attention=True,
        position_buckets=256,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        num_labels=3,
    )
    model = tf.DebertaV2ForSequenceClassification(config)
    ids = torch.randint(128000, (batch_size, 192))
    mask = torch.ones(batch_size, 192, dtype=torch.long)
    y = torch.randint(3, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, attention_mask=mask, labels=y).loss

    return step_of(model, loss_of, "tf32")


def electra_small_accumulate2_fp16_amp(batch_size: int) -> Step:
    model = tf.ElectraForPreTraining(tf.ElectraConfig())
    ids = torch.randint(30000, (batch_size, 128))
    replaced = torch.randint(2, (batch_size, 128))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=replaced).loss

    return step_of(model, loss_of, "fp16-amp", "adam", accumulate=2, clip=True)


def albert_large_fp16_amp(batch_size: int) -> Step:
    """24 layers that share their weights."""
    config = tf.AlbertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    model = tf.AlbertForMaskedLM(config)
    ids = torch.randint(30000, (batch_size, 256))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    return step_of(model, loss_of, "fp16-amp")


def modernbert_base_bf16_amp(batch_size: int) -> Step:
    model = tf.ModernBertForMaskedLM(tf.ModernBertConfig())
    ids = torch.randint(50000, (batch_size, 1024))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=ids).loss

    return step_of(model, loss_of, "bf16-amp", "adamw-fused")


def t5_small_fp32(batch_size: int) -> Step:
    config = tf.T5Config()
    config.decoder_start_token_id = 0
    model = tf.T5ForConditionalGeneration(config)
    ids = torch.randint(32000, (batch_size, 384))
    labels = torch.randint(32000, (batch_size, 96))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, labels=labels, use_cache=False).loss

    return step_of(model, loss_of, "fp32", "adafactor")


def vit_mae_base_bf16_amp(batch_size: int) -> Step:
    model = tf.ViTMAEForPreTraining(tf.ViTMAEConfig())
    pixels = torch.randn(batch_size, 3, 224, 224)
    return step_of(model, lambda m: m(pixel_values=pixels).loss)


def clip_vit_l14_fp16_amp(batch_size: int) -> Step:
    config = tf.CLIPConfig(
        text_config={
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
        },
        vision_config={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
        projection_dim=768,
    )
    model = tf.CLIPModel(config)
    pixels = torch.randn(batch_size, 3, 224, 224)
    ids = torch.randint(49000, (batch_size, 77))

    def loss_of(model: nn.Module) -> Tensor:
        return model(input_ids=ids, pixel_values=pixels, return_loss=True).loss

    return step_of(model, loss_of, "fp16-amp")


def hubert_base_bf16_amp(batch_size: int) -> Step:
    """Ten seconds of sound to text, with the CTC loss."""
    config = tf.HubertConfig(layerdrop=0.0, apply_spec_augment=False, ctc_loss_reduction="mean")
    model = tf.HubertForCTC(config)
    model.freeze_feature_encoder()
    sound = torch.randn(batch_size, 160_000)
    labels = torch.randint(1, 32, (batch_size, 120))
    return step_of(model, lambda m: m(sound, labels=labels).loss, "bf16-amp")


class _Updates:
    """One optimizer under autocast (or without), for steps with several losses."""

    def __init__(self, update: torch.optim.Optimizer, dtype: torch.dtype | None = None) -> None:
        self.update, self.dtype = update, dtype

    def autocast(self) -> torch.autocast:
        return torch.autocast("cuda", self.dtype, enabled=self.dtype is not None)

    def apply(self, loss: Tensor) -> None:
        self.update.zero_grad(set_to_none=True)
        loss.backward()
        self.update.step()


def _patch_critic(channels: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(channels, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for a, b, stride in ((64, 128, 2), (128, 256, 2), (256, 512, 1)):
        layers += [nn.Conv2d(a, b, 4, stride, 1), nn.InstanceNorm2d(b), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*layers, nn.Conv2d(512, 1, 4, 1, 1))


class _Translator(nn.Module):
    """The U-Net of pix2pix: eight halvings down to one pixel, with instance norm."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = [3, *(width * m for m in (1, 2, 4, 8, 8, 8, 8, 8))]
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        for level, (a, b) in enumerate(pairwise(widths)):
            layers: list[nn.Module] = [nn.Conv2d(a, b, 4, 2, 1)]
            if 0 < level < 7:
                layers.append(nn.InstanceNorm2d(b))
            self.down.append(nn.Sequential(*layers, nn.LeakyReLU(0.2)))
            joined = b if level == 7 else 2 * b
            layers = [nn.ConvTranspose2d(joined, a, 4, 2, 1)]
            if level > 0:
                layers += [nn.InstanceNorm2d(a), nn.ReLU()]
            if 3 < level < 7:
                layers.append(nn.Dropout(0.5))
            self.up.append(nn.Sequential(*layers))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
        for level in reversed(range(8)):
            x = self.up[level](x if level == 7 else torch.cat([x, kept[level]], 1))
        return x.tanh()


def pix2pix_bf16_amp(batch_size: int) -> Step:
    allow_tf32(True)
    generator, critic = _Translator(), _patch_critic(6)
    dtype = torch.bfloat16
    for_g = _Updates(torch.optim.Adam(generator.parameters(), 2e-4, (0.5, 0.999)), dtype)
    for_c = _Updates(torch.optim.Adam(critic.parameters(), 2e-4, (0.5, 0.999)), dtype)
    x, y = torch.randn(2, batch_size, 3, 256, 256)

    def judged(image: Tensor, real: bool) -> Tensor:
        scores = critic(torch.cat([x, image], 1)).float()
        wanted = torch.full_like(scores, float(real))
        return functional.binary_cross_entropy_with_logits(scores, wanted)

    def step() -> None:
        with for_g.autocast():
            fake = generator(x)
            loss = 0.5 * (judged(fake.detach(), False) + judged(y, True))
        for_c.apply(loss)
        critic.requires_grad_(False)
        with for_g.autocast():
            loss = judged(fake, True) + 100 * functional.l1_loss(fake.float(), y)
        for_g.apply(loss)
        critic.requires_grad_(True)

    return step


class _ImageBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            nn.InstanceNorm2d(width),
            nn.ReLU(True),
            nn.ReflectionPad2d(1),
            nn.Conv2d(width, width, 3),
            nn.InstanceNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def _image_generator() -> nn.Module:
    layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(3, 64, 7)]
    for a, b in ((64, 128), (128, 256)):
        layers += [nn.InstanceNorm2d(a), nn.ReLU(True), nn.Conv2d(a, b, 3, 2, 1)]
    layers += [nn.InstanceNorm2d(256), nn.ReLU(True), *(_ImageBlock(256) for _ in range(9))]
    for a, b in ((256, 128), (128, 64)):
        layers += [nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.InstanceNorm2d(b), nn.ReLU(True)]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(64, 3, 7), nn.Tanh())


def cyclegan_tf32(batch_size: int) -> Step:
    """Two generators, two critics; cycle and identity losses."""
    allow_tf32(True)
    forth, back = _image_generator(), _image_generator()
    critics = nn.ModuleList([_patch_critic(3), _patch_critic(3)])
    generators = nn.ModuleList([forth, back])
    for_g = _Updates(torch.optim.Adam(generators.parameters(), 2e-4, (0.5, 0.999)))
    for_c = _Updates(torch.optim.Adam(critics.parameters(), 2e-4, (0.5, 0.999)))
    a, b = torch.randn(2, batch_size, 3, 256, 256)

    def step() -> None:
        critics.requires_grad_(False)
        fake_b, fake_a = forth(a), back(b)
        loss = (critics[0](fake_b) - 1).square().mean() + (critics[1](fake_a) - 1).square().mean()
        loss = loss + 10 * functional.l1_loss(back(fake_b), a)
        loss = loss + 10 * functional.l1_loss(forth(fake_a), b)
        loss = loss + 5 * (functional.l1_loss(forth(b), b) + functional.l1_loss(back(a), a))
        for_g.apply(loss)
        critics.requires_grad_(True)
        pairs = zip(critics, (b, a), (fake_b.detach(), fake_a.detach()), strict=True)
        loss = sum(
            0.5 * ((critic(real) - 1).square().mean() + critic(fake).square().mean())
            for critic, real, fake in pairs
        )
        for_c.apply(loss)

    return step


def wgan_clipped_fp32(batch_size: int) -> Step:
    """Five updates of a critic with clipped weights before one of the generator."""
    allow_tf32(False)
    widths = [512, 256, 128, 64]
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4), nn.BatchNorm2d(512), nn.ReLU(True)]
    for one, two in pairwise(widths):
        layers += [nn.ConvTranspose2d(one, two, 4, 2, 1), nn.BatchNorm2d(two), nn.ReLU(True)]
    generator = nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())
    layers = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for two, one in pairwise(reversed(widths)):
        layers += [nn.Conv2d(two, one, 4, 2, 1), nn.BatchNorm2d(one), nn.LeakyReLU(0.2, True)]
    critic = nn.Sequential(*layers, nn.Conv2d(512, 1, 4))
    for_g = _Updates(torch.optim.RMSprop(generator.parameters(), lr=5e-5))
    for_c = _Updates(torch.optim.RMSprop(critic.parameters(), lr=5e-5))
    real = torch.randn(batch_size, 3, 64, 64)

    def step() -> None:
        for _ in range(5):
            with torch.no_grad():
                fake = generator(torch.randn(batch_size, 100, 1, 1, device=real.device))
            for_c.apply(critic(fake).mean() - critic(real).mean())
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-0.01, 0.01)
        for_g.apply(
            -critic(generator(torch.randn(batch_size, 100, 1, 1, device=real.device))).mean()
        )

    return step


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, *, causal: bool = False) -> Tensor:
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return out.transpose(1, 2).flatten(2)


class _Spatial(nn.Module):
    """A transformer block over the pixels: attention to themselves and to a text."""

    def __init__(self, width: int, context: int) -> None:
        super().__init__()
        self.heads = width // 64
        self.norm = nn.GroupNorm(32, width)
        self.enter, self.leave = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.text = nn.Linear(context, 2 * width, bias=False)
        self.out1, self.out2 = nn.Linear(width, width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        rows = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norms[0](rows)).chunk(3, -1)
        rows = rows + self.out1(_attend(q, k, v, self.heads))
        k, v = self.text(text).chunk(2, -1)
        rows = rows + self.out2(_attend(self.query(self.norms[1](rows)), k, v, self.heads))
        value, gate = self.widen(self.norms[2](rows)).chunk(2, -1)
        rows = rows + self.narrow(value * functional.gelu(gate))
        return x + self.leave(rows.transpose(1, 2).reshape(x.shape))


class _Stage(nn.Module):
    """A residual block that hears the time, then attention where wanted."""

    def __init__(self, channels: int, out: int, time: int, context: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()
        self.attention = _Spatial(out, context) if context else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        x = self.skip(x) + self.conv2(functional.silu(self.norm2(y)))
        return x if self.attention is None else self.attention(x, text)


class _LatentUNet(nn.Module):
    def __init__(self, width: int, multiples: tuple[int, ...], context: int) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        channels, kept = width, [width]
        for level, multiple in enumerate(multiples):
            for _ in range(2):
                stage = _Stage(channels, multiple * width, time, context if level else 0)
                self.down.append(stage)
                channels = multiple * width
                kept.append(channels)
            if level < len(multiples) - 1:
                self.down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                kept.append(channels)
        self.middle = _Stage(channels, channels, time, context)
        for level, multiple in reversed(list(enumerate(multiples))):
            for _ in range(3):
                stage = _Stage(channels + kept.pop(), multiple * width, time, context * (level > 0))
                self.up.append(stage)
                channels = multiple * width
            if level:
                self.up.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.last = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1)
        )

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        rates = torch.exp(-9.2 * torch.linspace(0, 1, self.width // 2, device=x.device))
        angles = time[:, None] * rates
        t = functional.silu(self.time(torch.cat([angles.sin(), angles.cos()], 1)))
        x = self.first(x)
        kept = [x]
        for part in self.down:
            x = part(x, t, text) if isinstance(part, _Stage) else part(x)
            kept.append(x)
        x = self.middle(x, t, text)
        for part in self.up:
            if isinstance(part, _Stage):
                x = part(torch.cat([x, kept.pop()], 1), t, text)
            else:
                x = part(functional.interpolate(x, scale_factor=2))
        return self.last(x)


def _latent_diffusion(model: nn.Module, batch_size: int, *args: str, **choices: object) -> Step:
    x, noise = torch.randn(2, batch_size, 4, 32, 32)
    time, text = 1000 * torch.rand(batch_size), torch.randn(batch_size, 77, 768)

    def loss_of(model: nn.Module) -> Tensor:
        share = torch.cos(time * 0.00157)[:, None, None, None]
        noisy = share * x + (1 - share.square()).sqrt() * noise
        return functional.mse_loss(model(noisy, time, text).float(), noise)

    return step_of(model, loss_of, *args, **choices)


def latent_diffusion_bf16_amp(batch_size: int) -> Step:
    model = _LatentUNet(256, (1, 2, 4), 768)
    return _latent_diffusion(model, batch_size, "bf16-amp", "adamw-fused", clip=True)


def latent_diffusion_small_fp32(batch_size: int) -> Step:
    return _latent_diffusion(_LatentUNet(128, (1, 2, 4), 768), batch_size, "fp32", "adamw")


class _Stream(nn.Module):
    """One of the two streams of a joint block: its own weights, norms scaled by the time."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.scale = nn.Linear(width, 6 * width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm_q, self.norm_k = nn.RMSNorm(width // heads), nn.RMSNorm(width // heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def enter(self, x: Tensor, scales: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        qkv = self.qkv(self.norm(x) * (1 + scales[0]) + scales[1])
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.norm_q(q), self.norm_k(k), v

    def leave(self, x: Tensor, attended: Tensor, scales: tuple[Tensor, ...]) -> Tensor:
        x = x + scales[2] * self.out(attended)
        return x + scales[5] * self.mlp(self.norm(x) * (1 + scales[3]) + scales[4])


class _Joint(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.image, self.text = _Stream(width, heads), _Stream(width, heads)

    def forward(self, image: Tensor, text: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
        for_image = self.image.scale(time)[:, None].chunk(6, -1)
        for_text = self.text.scale(time)[:, None].chunk(6, -1)
        ours, theirs = self.image.enter(image, for_image), self.text.enter(text, for_text)
        q, k, v = (torch.cat(parts, 2) for parts in zip(ours, theirs, strict=True))
        out = functional.scaled_dot_product_attention(q, k, v)
        seen, read = out.transpose(1, 2).flatten(2).split([image.shape[1], text.shape[1]], 1)
        return self.image.leave(image, seen, for_image), self.text.leave(text, read, for_text)


def joint_diffusion_transformer_ema_bf16_amp(batch_size: int) -> Step:
    """Image and text in two streams that attend together; a moving average of the weights."""
    allow_tf32(True)

    class Denoiser(nn.Module):
        def __init__(self, width: int = 1024, depth: int = 12) -> None:
            super().__init__()
            self.patch = nn.Conv2d(16, width, 2, 2)
            self.place = nn.Parameter(0.02 * torch.randn(1, 256, width))
            self.text, self.time = nn.Linear(2048, width), nn.Linear(256, width)
            self.blocks = nn.ModuleList(_Joint(width, 16) for _ in range(depth))
            self.head = nn.Linear(width, 64)

        def forward(self, x: Tensor, text: Tensor, time: Tensor) -> Tensor:
            image = self.patch(x).flatten(2).transpose(1, 2) + self.place
            text, time = self.text(text), functional.silu(self.time(time))
            for block in self.blocks:
                image, text = block(image, text, time)
            return self.head(image)

    model = Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    weights, kept = list(model.parameters()), list(average.parameters())
    update = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    x, target = torch.randn(batch_size, 16, 32, 32), torch.randn(batch_size, 256, 64)
    text, time = torch.randn(batch_size, 77, 2048), torch.randn(batch_size, 256)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.mse_loss(model(x, text, time).float(), target)
        loss.backward()
        update.step()
        update.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(kept, weights, 0.001)

    return step


class _Bottleneck(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def vq_vae_bf16_amp(batch_size: int) -> Step:
    """An autoencoder whose code is the nearest of 1024 vectors."""

    class Autoencoder(nn.Module):
        def __init__(self, width: int = 256, code: int = 64) -> None:
            super().__init__()
            self.down = nn.Sequential(
                nn.Conv2d(3, width // 2, 4, 2, 1),
                nn.ReLU(True),
                nn.Conv2d(width // 2, width, 4, 2, 1),
                *(_Bottleneck(width) for _ in range(4)),
                nn.Conv2d(width, code, 1),
            )
            self.codes = nn.Embedding(1024, code)
            self.up = nn.Sequential(
                nn.Conv2d(code, width, 3, padding=1),
                *(_Bottleneck(width) for _ in range(4)),
                nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
                nn.ReLU(True),
                nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            z = self.down(x).permute(0, 2, 3, 1).float()
            flat = z.flatten(0, 2)
            nearest = torch.cdist(flat, self.codes.weight).argmin(1)
            chosen = self.codes(nearest).view(z.shape)
            gap = functional.mse_loss(chosen, z.detach())
            gap = gap + 0.25 * functional.mse_loss(z, chosen.detach())
            return self.up((z + (chosen - z).detach()).permute(0, 3, 1, 2)), gap

    x = torch.rand(batch_size, 3, 128, 128)

    def loss_of(model: nn.Module) -> Tensor:
        out, gap = model(x)
        return functional.mse_loss(out.float(), x) + gap

    return step_of(Autoencoder(), loss_of, "bf16-amp", "adam")


def v_net_fp16_amp(batch_size: int) -> Step:
    """Residual 3-d convolutions with group norm on 112 x 112 x 112 voxels, and the Dice loss."""

    class Residual(nn.Module):
        def __init__(self, width: int, count: int) -> None:
            super().__init__()
            layers = [
                layer
                for _ in range(count)
                for layer in (
                    nn.Conv3d(width, width, 3, padding=1),
                    nn.GroupNorm(8, width),
                    nn.PReLU(),
                )
            ]
            self.layers = nn.Sequential(*layers)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [16, 32, 64, 128, 256]
            self.first = nn.Conv3d(2, 16, 3, padding=1)
            self.down = nn.ModuleList(
                Residual(w, n) for w, n in zip(widths, (1, 2, 3, 3, 3), strict=True)
            )
            self.halve = nn.ModuleList(nn.Conv3d(a, b, 2, 2) for a, b in pairwise(widths))
            self.grow = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairwise(widths))
            self.join = nn.ModuleList(nn.Conv3d(2 * a, a, 1) for a in widths[:-1])
            self.up = nn.ModuleList(Residual(a, 2) for a in widths[:-1])
            self.head = nn.Conv3d(16, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            kept = []
            for block, halve in zip(self.down, self.halve, strict=False):
                x = block(x)
                kept.append(x)
                x = halve(x)
            x = self.down[-1](x)
            for level in reversed(range(4)):
                x = torch.cat([self.grow[level](x), kept[level]], 1)
                x = self.up[level](self.join[level](x))
            return self.head(x)

    x = torch.randn(batch_size, 2, 112, 112, 112)
    y = torch.randint(4, (batch_size, 112, 112, 112))
    wanted = functional.one_hot(y, 4).permute(0, 4, 1, 2, 3).float()

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(x).float()
        shares = scores.softmax(1)
        both = (shares * wanted).sum((2, 3, 4))
        dice = 2 * both / (shares.sum((2, 3, 4)) + wanted.sum((2, 3, 4)) + 1e-5)
        return 1 - dice.mean() + functional.cross_entropy(scores, y)

    return step_of(Net(), loss_of, "fp16-amp", "adam")


def wave_net_tf32(batch_size: int) -> Step:
    """Causal dilated convolutions over one second of sound in 256 steps of loudness."""

    class Layer(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.dilation = dilation
            self.conv = nn.Conv1d(64, 128, 2, dilation=dilation)
            self.out, self.skip = nn.Conv1d(64, 64, 1), nn.Conv1d(64, 256, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            a, b = self.conv(functional.pad(x, (self.dilation, 0))).chunk(2, 1)
            y = a.tanh() * b.sigmoid()
            return x + self.out(y), self.skip(y)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(256, 64)
            self.layers = nn.ModuleList(Layer(2**power) for _ in range(3) for power in range(10))
            self.head = nn.Sequential(
                nn.ReLU(), nn.Conv1d(256, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1)
            )

        def forward(self, ids: Tensor) -> Tensor:
            x, total = self.embed(ids).transpose(1, 2), 0
            for layer in self.layers:
                x, skip = layer(x)
                total = total + skip
            return self.head(total)

    ids = torch.randint(256, (batch_size, 16_001))
    return step_of(
        Net(), lambda m: functional.cross_entropy(m(ids[:, :-1]), ids[:, 1:]), "tf32", "adam"
    )


class _ConformerBlock(nn.Module):
    """Half a feed-forward layer, attention, a depthwise convolution, the other half."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = (
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 4 * width),
                nn.SiLU(),
                nn.Dropout(0.1),
                nn.Linear(4 * width, width),
                nn.Dropout(0.1),
            )
            for _ in range(2)
        )
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.convs = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1),
            nn.GLU(1),
            nn.Conv1d(width, width, 31, padding=15, groups=width),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 1),
            nn.Dropout(0.1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.before(x)
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(_attend(q, k, v, self.heads))
        x = x + self.convs(self.norm2(x).transpose(1, 2)).transpose(1, 2)
        return self.norm3(x + 0.5 * self.after(x))


def conformer_large_bf16_amp(batch_size: int) -> Step:
    """16 seconds of sound, a label for every fourth frame."""

    class Conformer(nn.Module):
        def __init__(self, width: int = 512, depth: int = 17) -> None:
            super().__init__()
            self.halve = nn.Sequential(
                nn.Conv2d(1, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU()
            )
            self.enter = nn.Linear(20 * width, width)
            self.blocks = nn.Sequential(*(_ConformerBlock(width, 8) for _ in range(depth)))
            self.head = nn.Linear(width, 1024)

        def forward(self, x: Tensor) -> Tensor:
            x = self.halve(x[:, None]).transpose(1, 2).flatten(2)
            return self.head(self.blocks(self.enter(x)))

    x = torch.randn(batch_size, 1600, 80)
    y = torch.randint(1024, (batch_size, 400))

    def loss_of(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(x).float().flatten(0, 1), y.flatten())

    return step_of(Conformer(), loss_of, "bf16-amp", "adam", clip=True)


def conv_lstm_fp16_amp(batch_size: int) -> Step:
    """The next of each of twelve frames, by two recurrent layers of convolutions."""

    class Cell(nn.Module):
        def __init__(self, channels: int, width: int) -> None:
            super().__init__()
            self.width = width
            self.gates = nn.Conv2d(channels + width, 4 * width, 3, padding=1)

        def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            i, f, o, g = self.gates(torch.cat([x, h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.ModuleList([Cell(1, 64), Cell(64, 64)])
            self.head = nn.Conv2d(64, 1, 1)

        def forward(self, frames: Tensor) -> Tensor:
            batch, length, _, height, width = frames.shape
            zero = frames.new_zeros(batch, 64, height, width)
            states, out = [(zero, zero), (zero, zero)], []
            for step in range(length):
                x = frames[:, step]
                for layer, cell in enumerate(self.cells):
                    states[layer] = cell(x, *states[layer])
                    x = states[layer][0]
                out.append(self.head(x))
            return torch.stack(out, 1)

    frames = torch.rand(batch_size, 13, 1, 64, 64)

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(frames[:, :-1]).float()
        return functional.binary_cross_entropy_with_logits(scores, frames[:, 1:])

    return step_of(Net(), loss_of, "fp16-amp", "adam", clip=True)


def bilstm_classifier_bf16_amp(batch_size: int) -> Step:
    """Texts of 400 words, classified by the maximum over time."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(60_000, 300, padding_idx=0)
            self.lstm = nn.LSTM(300, 768, 2, batch_first=True, bidirectional=True, dropout=0.3)
            self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(1536, 20))

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.lstm(self.embed(ids))[0].amax(1))

    ids, y = torch.randint(60_000, (batch_size, 400)), torch.randint(20, (batch_size,))
    return step_of(
        Classifier(), lambda m: functional.cross_entropy(m(ids).float(), y), "bf16-amp", "adam"
    )


def attention_seq2seq_fp32(batch_size: int) -> Step:
    """A GRU reads, a cell writes word by word and looks back (Bahdanau)."""

    class Translator(nn.Module):
        def __init__(self, words: int = 8000, width: int = 512) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
            self.reader = nn.GRU(width, width, batch_first=True)
            self.writer = nn.GRUCell(2 * width, width)
            self.key, self.query = nn.Linear(width, width), nn.Linear(width, width)
            self.score = nn.Linear(width, 1)
            self.head = nn.Linear(width, words)

        def forward(self, source: Tensor, target: Tensor) -> Tensor:
            read, last = self.reader(self.source(source))
            keys, h, out = self.key(read), last[0], []
            for word in self.target(target).unbind(1):
                scores = self.score(torch.tanh(keys + self.query(h)[:, None]))
                seen = (scores.softmax(1) * read).sum(1)
                h = self.writer(torch.cat([word, seen], 1), h)
                out.append(h)
            return self.head(torch.stack(out, 1))

    source, target = torch.randint(8000, (batch_size, 40)), torch.randint(8000, (batch_size, 41))

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(source, target[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())

    return step_of(Translator(), loss_of, "fp32", "adam", clip=True)


def tabular_residual_tf32(batch_size: int) -> Step:
    """200 columns through residual layers with batch norm and dropout."""

    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.BatchNorm1d(width),
                nn.Linear(width, 2 * width),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(2 * width, width),
                nn.Dropout(0.1),
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layers(x)

    layers = [Layer(512) for _ in range(8)]
    model = nn.Sequential(
        nn.Linear(200, 512), *layers, nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 1)
    )
    x, y = torch.randn(batch_size, 200), torch.randn(batch_size)
    return step_of(model, lambda m: functional.mse_loss(m(x)[:, 0], y), "tf32", "sgd")


def dlrm_tf32(batch_size: int) -> Step:
    """26 tables, the products of all pairs of rows, dense layers."""

    def dense(*widths: int) -> nn.Sequential:
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*layers)

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(250_000, 128) for _ in range(26))
            self.bottom = dense(13, 512, 256, 128)
            self.top = nn.Sequential(dense(128 + 351, 1024, 1024, 512, 256), nn.Linear(256, 1))
            self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

        def forward(self, x: Tensor, ids: Tensor) -> Tensor:
            first = self.bottom(x)
            rows = [table(part) for table, part in zip(self.tables, ids, strict=True)]
            rows = torch.stack([first, *rows], 1)
            products = (rows @ rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([first, products], 1))[:, 0]

    x, ids = torch.randn(batch_size, 13), torch.randint(250_000, (26, batch_size))
    y = torch.rand(batch_size).round()
    return step_of(
        Recommender(),
        lambda m: functional.binary_cross_entropy_with_logits(m(x, ids), y),
        "tf32",
        "sgd",
    )


def graph_attention_fp32(batch_size: int) -> Step:
    """Attention along edges (GAT); a sample is a graph of 150 nodes, 1500 edges."""

    class Layer(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.linear = nn.Linear(width, width, bias=False)
            self.sent, self.received = (
                nn.Parameter(0.1 * torch.randn(heads, width // heads)) for _ in range(2)
            )
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
            rows = self.linear(x).unflatten(1, (self.heads, -1))
            scores = (rows * self.sent).sum(-1)[source] + (rows * self.received).sum(-1)[target]
            scores = functional.leaky_relu(scores, 0.2)
            index = target[:, None].expand_as(scores)
            most = scores.new_full(rows.shape[:2], -1e9)
            most = most.scatter_reduce(0, index, scores.detach(), "amax")
            weights = (scores - most[target]).exp()
            total = torch.zeros_like(most).index_add(0, target, weights)
            weights = weights / (total[target] + 1e-16)
            messages = rows[source] * weights[..., None]
            out = torch.zeros_like(rows).index_add(0, target, messages)
            return x + functional.elu(self.norm(out.flatten(1)))

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(50, 256)
            self.layers = nn.ModuleList(Layer(256, 8) for _ in range(4))
            self.head = nn.Linear(256, 121)

        def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
            x = self.first(x)
            for layer in self.layers:
                x = layer(x, source, target)
            return self.head(x)

    nodes = 150 * batch_size
    x, y = torch.randn(nodes, 50), torch.rand(nodes, 121).round()
    source, target = torch.randint(nodes, (2, 1500 * batch_size))
    return step_of(
        Graph(),
        lambda m: functional.binary_cross_entropy_with_logits(m(x, source, target), y),
        "fp32",
        "adam",
    )


class _Field(nn.Module):
    """Density from the place, colour also from the direction; the input again in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(a, 256) for a in (63, 256, 256, 256, 256))
        self.second = nn.ModuleList(nn.Linear(a, 256) for a in (319, 256, 256))
        self.density, self.feature = nn.Linear(256, 1), nn.Linear(256, 256)
        self.colour = nn.Sequential(nn.Linear(283, 128), nn.ReLU(), nn.Linear(128, 3))

    @staticmethod
    def waves(x: Tensor, count: int) -> Tensor:
        angles = (x[..., None] * 2.0 ** torch.arange(count, device=x.device)).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], -1)

    def forward(self, places: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        place = self.waves(places, 10)
        x = place
        for layer in self.first:
            x = functional.relu(layer(x))
        x = torch.cat([x, place], -1)
        for layer in self.second:
            x = functional.relu(layer(x))
        view = self.waves(directions, 4)[:, None].expand(-1, x.shape[1], -1)
        colour = self.colour(torch.cat([self.feature(x), view], -1)).sigmoid()
        return functional.softplus(self.density(x)[..., 0]), colour


def radiance_field_coarse_fine_fp32(batch_size: int) -> Step:
    """A NeRF of two networks: 64 points of each ray, then 128 more where there is something."""
    fields = nn.ModuleDict({"coarse": _Field(), "fine": _Field()})
    origins = torch.randn(batch_size, 3)
    directions = functional.normalize(torch.randn(batch_size, 3), dim=1)
    wanted = torch.rand(batch_size, 3)

    def rendered(field: nn.Module, depth: Tensor) -> tuple[Tensor, Tensor]:
        places = origins[:, None] + depth[..., None] * directions[:, None]
        density, colour = field(places, directions)
        gaps = functional.pad(depth.diff(dim=1), (0, 1), value=0.05)
        alpha = 1 - torch.exp(-density * gaps)
        passed = torch.cumprod(functional.pad(1 - alpha + 1e-10, (1, 0), value=1.0), 1)[:, :-1]
        weights = alpha * passed
        return (weights[..., None] * colour).sum(1), weights

    def refined(depth: Tensor, weights: Tensor, count: int) -> Tensor:
        share = weights + 1e-5
        total = functional.pad(torch.cumsum(share / share.sum(1, keepdim=True), 1), (1, 0))[:, :-1]
        draws = torch.rand(len(depth), count, device=depth.device)
        above = torch.searchsorted(total, draws, right=True).clamp(1, depth.shape[1] - 1)
        low, high = depth.gather(1, above - 1), depth.gather(1, above)
        start, end = total.gather(1, above - 1), total.gather(1, above)
        found = low + (draws - start) / (end - start).clamp(min=1e-5) * (high - low)
        return torch.cat([depth, found], 1).sort(1).values

    def loss_of(model: nn.ModuleDict) -> Tensor:
        depth = torch.linspace(2, 6, 64, device=origins.device)
        depth = depth + 0.06 * torch.rand(len(origins), 64, device=origins.device)
        coarse, weights = rendered(model["coarse"], depth)
        fine, _ = rendered(model["fine"], refined(depth, weights.detach(), 128))
        return functional.mse_loss(coarse, wanted) + functional.mse_loss(fine, wanted)

    return step_of(fields, loss_of, "fp32", "adam")


def point_groups_tf32(batch_size: int) -> Step:
    """2048 points a sample, gathered around ever fewer of them by distance (PointNet++)."""

    class Group(nn.Module):
        def __init__(self, centres: int, near: int, channels: int, *widths: int) -> None:
            super().__init__()
            self.centres, self.near = centres, near
            layers = [
                layer
                for a, b in pairwise([channels + 3, *widths])
                for layer in (nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
            ]
            self.layers = nn.Sequential(*layers)

        def forward(self, places: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            centres = places[:, : self.centres]
            near = torch.cdist(centres, places).topk(self.near, largest=False).indices
            flat = near.flatten(1)[..., None]
            around = places.gather(1, flat.expand(-1, -1, 3)).unflatten(1, near.shape[1:])
            found = rows.gather(1, flat.expand(-1, -1, rows.shape[2])).unflatten(1, near.shape[1:])
            x = torch.cat([around - centres[:, :, None], found], -1).permute(0, 3, 1, 2)
            return centres, self.layers(x).amax(3).transpose(1, 2)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.groups = nn.ModuleList(
                [Group(512, 32, 3, 64, 64, 128), Group(128, 64, 128, 128, 128, 256)]
            )
            self.all = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1024))
            self.head = nn.Sequential(
                nn.Linear(1024, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Dropout(0.4),
                nn.Linear(256, 40),
            )  # fmt: skip

        def forward(self, places: Tensor) -> Tensor:
            rows = places
            for group in self.groups:
                places, rows = group(places, rows)
            return self.head(self.all(rows).amax(1))

    x, y = torch.randn(batch_size, 2048, 3), torch.randint(40, (batch_size,))
    return step_of(Classifier(), lambda m: functional.cross_entropy(m(x), y), "tf32", "adam")


class _Reader(nn.Module):
    """Attention from some rows to others (or to themselves), then a feed-forward layer."""

    def __init__(self, width: int, other: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_other = nn.LayerNorm(width), nn.LayerNorm(other)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(other, 2 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        k, v = self.kv(self.norm_other(other)).chunk(2, -1)
        x = x + self.out(_attend(self.q(self.norm(x)), k, v, self.heads))
        return x + self.mlp(x)


def perceiver_bf16_amp(batch_size: int) -> Step:
    """256 latent rows read every pixel of 224 x 224, three times."""

    class Perceiver(nn.Module):
        def __init__(self, width: int = 768) -> None:
            super().__init__()
            self.latent = nn.Parameter(0.02 * torch.randn(256, width))
            self.place = nn.Parameter(0.02 * torch.randn(224 * 224, 125))
            self.read = _Reader(width, 128, 8)
            self.think = nn.ModuleList(_Reader(width, width, 8) for _ in range(6))
            self.head = nn.Linear(width, 1000)

        def forward(self, image: Tensor) -> Tensor:
            pixels = image.flatten(2).transpose(1, 2)
            pixels = torch.cat([pixels, self.place.expand(len(pixels), -1, -1)], 2)
            x = self.latent.expand(len(pixels), -1, -1)
            for _ in range(3):
                x = self.read(x, pixels)
                for layer in self.think:
                    x = layer(x, x)
            return self.head(x.mean(1))

    return classify(Perceiver(), batch_size, "bf16-amp", "adamw")


def character_gpt_bf16_amp(batch_size: int) -> Step:
    """A small decoder with dropout whose head shares the weights of its embedding."""

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv = nn.Linear(width, 3 * width, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.2)
            )
            self.dropout = nn.Dropout(0.2)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
            x = x + self.dropout(self.out(_attend(q, k, v, self.heads, causal=True)))
            return x + self.mlp(self.norm2(x))

    class Decoder(nn.Module):
        def __init__(self, width: int = 384) -> None:
            super().__init__()
            self.embed, self.place = nn.Embedding(96, width), nn.Embedding(256, width)
            self.blocks = nn.Sequential(*(Block(width, 6) for _ in range(6)))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 96, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            places = torch.arange(ids.shape[1], device=ids.device)
            return self.head(self.norm(self.blocks(self.embed(ids) + self.place(places))))

    ids = torch.randint(96, (batch_size, 257))

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(ids[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())

    return step_of(Decoder(), loss_of, "bf16-amp", "adamw-fused", clip=True)
