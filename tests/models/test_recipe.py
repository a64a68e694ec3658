"""Recipes: what is rendered, what is refused, and what the steps do."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from tests.trace.apart import capture_apart

from outlay.errors import ExtraMissing, InputError, NotKnown
from outlay.models import recipe as recipes
from outlay.models.model import bundled_models, find_model
from outlay.models.recipe import (
    RecipeSettings,
    bundled_recipes,
    check_packages,
    find_recipe,
    methods_for,
    named_target,
    recipe_for,
    rendered_step,
    target_of,
    tasks_of,
)
from outlay.trace.target import parse_target


def settings(*words: str) -> RecipeSettings:
    return RecipeSettings.from_words(words)


def constants_of(text: str) -> dict[str, object]:
    """The constants at the top of a file, as Python reads them."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    names = [node.target if isinstance(node, ast.AnnAssign) else node.targets[0] for node in nodes]
    values = [ast.literal_eval(node.value) for node in nodes]
    return {name.id: value for name, value in zip(names, values, strict=True)}


# Rendering


@pytest.mark.parametrize("model", bundled_models(), ids=lambda model: model.name)
def test_every_model_is_rendered_by_each_of_its_methods(model):
    assert methods_for(model)
    for method in methods_for(model):
        text = rendered_step(model, method)
        compile(text, "step.py", "exec")
        assert max(map(len, text.splitlines())) <= 100
        constants = constants_of(text)
        assert constants["MODEL"] == model.name
        assert constants["CONFIG"] == model.config


def test_only_constants_change():
    model = find_model("llama-3.1-8b")
    plain = rendered_step(model, "qlora").splitlines()
    changed = rendered_step(
        model, "qlora", settings("tokens=2048", "checkpointing=no", "lora-targets=q_proj,v_proj")
    ).splitlines()
    pairs = [(old, new) for old, new in zip(plain, changed, strict=True) if old != new]
    assert [new.partition("  #")[0] for _, new in pairs] == [
        "TOKENS: int = 2048",
        'LORA_TARGETS: tuple[str, ...] = ("q_proj", "v_proj")',
        "CHECKPOINTING: bool = False",
    ]
    assert all(old.partition("  #")[2] == new.partition("  #")[2] for old, new in pairs)


def test_text_in_a_config_cannot_become_code(tmp_path):
    odd = 'quote " \\ newline \n and {brace} \u2028 __import__("os")'
    config = {"model_type": "llama", "hidden_act": odd, "layers": ["a", None, True, 1.5, {}]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = rendered_step(find_model(f"hf:{tmp_path}"), "full")
    assert constants_of(text)["CONFIG"] == config


OTHERS = {"detect": "torchvision:ssd300_vgg16", "segment": "torchvision:fcn_resnet50"}
"""Models for recipes that no bundled one has."""


@pytest.mark.parametrize("recipe", bundled_recipes(), ids=lambda recipe: recipe.method)
def test_a_rendered_step_needs_nothing_of_outlay(recipe):
    fitting = [m for m in bundled_models() if recipe.method in methods_for(m)]
    model = fitting[0] if fitting else find_model(OTHERS[recipe.method])
    tree = ast.parse(rendered_step(model, recipe.method))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).partition(".")[0])
    assert not modules & {"outlay", "parts"}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert "training_step" in functions


# Settings


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("tokens=many", "whole number"),
        ("tokens=0", "whole number"),
        ("tokens=1.5", "whole number"),
        ("tokens=nan", "whole number"),
        ("precision=fp12", "bf16 autocast"),
        ("checkpointing=perhaps", "yes or no"),
        ("clip_norm=inf", "a number"),
    ],
)
def test_value_that_a_setting_does_not_take(word, why):
    with pytest.raises(InputError) as raised:
        rendered_step(find_model("llama-3.1-8b"), "full", settings(word))
    key, _, value = word.partition("=")
    assert f"{key} cannot be {value!r}" in raised.value.what
    assert why in raised.value.fix


def test_unknown_setting_names_the_known_ones():
    with pytest.raises(NotKnown) as raised:
        rendered_step(find_model("llama-3.1-8b"), "lora", settings("tokenz=2048"))
    assert raised.value.suggestions == ("tokens",)
    for known in ("lora_rank", "checkpointing", "optimizer"):
        assert known in raised.value.fix


@pytest.mark.parametrize("words", [["tokens"], ["=3"], ["tokens=1", "TOKENS=2"]])
def test_words_that_set_nothing(words):
    with pytest.raises(InputError):
        settings(*words)


def test_spellings_of_values():
    values = settings("Tokens=2,048", "precision=bf16-autocast", "clip-norm=none", "frozen=a, b")
    constants = constants_of(rendered_step(find_model("qwen3-8b"), "full", values))
    assert constants["TOKENS"] == 2048
    assert constants["PRECISION"] == "bf16 autocast"
    assert constants["CLIP_NORM"] is None
    assert constants["FROZEN"] == ("a", "b")


def test_tokens_stay_within_what_the_model_takes():
    bert = find_model("bert-base")
    assert constants_of(rendered_step(bert, "full"))["TOKENS"] == 512
    with pytest.raises(InputError, match="tokens cannot be 1024") as raised:
        rendered_step(bert, "full", settings("tokens=1024"))
    assert "at most 512" in raised.value.why


# Methods


def test_methods_of_a_model():
    assert methods_for(find_model("llama-3.1-8b"))[:3] == ("full", "lora", "qlora")
    assert recipe_for(find_model("timm:resnet18")).method == "classify"
    assert recipe_for(find_model("timm:resnet18"), "full").method == "classify"
    with pytest.raises(InputError, match="cannot be trained by lora") as raised:
        recipe_for(find_model("timm:resnet18"), "lora")
    assert "classify" in raised.value.fix
    with pytest.raises(InputError, match="cannot be trained by lora") as of_diffusion:
        recipe_for(find_model("sdxl"), "lora")
    assert "--set lora_rank=16" in of_diffusion.value.fix
    with pytest.raises(NotKnown) as unknown:
        recipe_for(find_model("llama-3.1-8b"), "qlorra")
    assert unknown.value.suggestions[0] == "qlora"


def test_a_model_of_a_library_that_no_recipe_builds_is_refused(tmp_path):
    config = {"model_type": "detr", "architectures": ["DetrForObjectDetection"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, library in ((f"hf:{tmp_path}", "transformers"), ("ultralytics:yolov8n",) * 2):
        with pytest.raises(InputError, match="There is no recipe for .* yet") as raised:
            recipe_for(find_model(name))
        assert f"a model of {library.partition(':')[0]} for detection" in raised.value.why


def test_every_recipe_is_for_something_and_says_what_it_does():
    assert {recipe.method for recipe in bundled_recipes()} == {
        "classify", "detect", "diffusion", "dpo", "embedding", "full", "gan", "lora", "pretrain",
        "qlora", "segment", "speech",
    }  # fmt: skip
    for recipe in bundled_recipes():
        assert recipe.title.endswith(".")
        assert tasks_of(recipe.method)
        assert recipe.text.isascii()
        assert recipe.constants


def test_constants_of_a_recipe():
    (rank,) = [c for c in find_recipe("lora").constants if c.name == "lora_rank"]
    assert (rank.kind, rank.default, rank.choices) == ("int", 16, ())
    (optimizer,) = [c for c in find_recipe("lora").constants if c.name == "optimizer"]
    assert optimizer.choices[0] == optimizer.default == "adamw"


# Targets


def test_the_same_step_has_the_same_path(tmp_path):
    model = find_model("llama-3.1-8b")
    first = target_of(model, "lora", folder=tmp_path)
    assert target_of(model, "lora", folder=tmp_path) == first
    assert target_of(model, "lora", settings("tokens=2048"), folder=tmp_path) != first
    target = parse_target(first)
    assert target.function == "training_step"
    assert target.path.read_text() == rendered_step(model, "lora")


def test_steps_go_into_outlays_folder_or_where_they_can(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))
    target = target_of(find_model("llama-3.1-8b"), "lora")
    assert Path(target.partition(":")[0]).is_relative_to(tmp_path / "data" / "recipes")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "file"))  # nothing can be kept below a file
    target = target_of(find_model("llama-3.1-8b"), "lora")
    assert parse_target(target).path.is_file()


def test_what_is_no_model_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path))
    for text in ("resnet50", "train.py:step", "train.py -- --lr 1", "mine.json.gz", "./x/y"):
        assert named_target(text) == text
    with pytest.raises(InputError, match="has no methods or settings"):
        named_target("train.py:step", "lora")
    with pytest.raises(NotKnown, match="No model or profile is known as 'lama-3.1-8'") as raised:
        named_target("lama-3.1-8")
    assert raised.value.suggestions[0] == "llama-3.1-8b"


def test_missing_packages_are_named_with_the_command(monkeypatch):
    model = find_model("llama-3.1-8b")
    monkeypatch.setattr(
        recipes.importlib.util, "find_spec", lambda name: name in ("torch", "transformers") or None
    )
    check_packages(model, "full")
    with pytest.raises(ExtraMissing) as raised:
        check_packages(model, "qlora")
    assert raised.value.fix == "pip install peft bitsandbytes"
    with pytest.raises(ExtraMissing) as raised:
        check_packages(model, "full", settings("optimizer=adamw-8bit"))
    assert raised.value.fix == "pip install bitsandbytes"


# Steps. A Llama of 2 layers: width 64, 4 heads of 16, 2 for keys and values, MLP of 128, 256 words.

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
T32 = "tokens=32"
LINEARS = 2 * (64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128)  # 73,728 in both layers
WORDS = 256 * 64  # 16,384, once to read them and once to tell them
PARAMETERS = LINEARS + 2 * WORDS + 5 * 64  # and five norms: 106,816
TOKENS = 2 * 32
FORWARD = 2 * TOKENS * (LINEARS + WORDS)  # 11,534,336 FLOPs
ADAPTERS = 2 * 4 * (128 + 96 + 96 + 128 + 3 * 192)  # rank 4, inputs and outputs of each: 8,192

needs_torch = [
    pytest.mark.torch,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore"),
]


def captured(tmp_path, method: str, *words: str, config=TINY):
    (tmp_path / "config.json").write_text(json.dumps(config))
    prefix = "diffusers" if "_class_name" in config else "hf"
    return captured_of(tmp_path, f"{prefix}:{tmp_path}", method, *words)


def captured_of(tmp_path, name: str, method: str | None, *words: str):
    return capture_apart(target_of(find_model(name), method, settings(*words), folder=tmp_path), 2)


def products_of(capture) -> float:
    return sum(op.flops for op in capture.ops if op.kind == "gemm") / capture.period


class TestSteps:
    pytestmark = needs_torch

    def test_a_gan_trains_both_networks_and_keeps_an_average_of_one(self, tmp_path):
        capture = captured_of(tmp_path, "dcgan", "gan")
        generator, discriminator = 3_576_704, 2_765_568  # published
        assert capture.trainable_parameters == generator + discriminator
        assert capture.parameters == 2 * generator + discriminator
        assert capture.period == 1

    def test_a_gan_is_as_periodic_as_its_penalties(self, tmp_path):
        words = ("image_size=8", "r1_period=4", "path_period=2")
        capture = captured_of(tmp_path, "stylegan2-256", "gan", *words)
        assert capture.period == 4
        assert not capture.unknown_ops

    def test_pretraining(self, tmp_path):
        capture = captured(tmp_path, "pretrain", T32)
        assert capture.parameters == capture.trainable_parameters == PARAMETERS
        assert products_of(capture) == 3 * FORWARD  # backward is twice forward
        memory = capture.memory.peak()
        assert memory.parameters == 4 * PARAMETERS + 5 * 256  # each norm a block of 512 bytes
        # Two moments in fp32, norms in blocks of 512 bytes, and a count of steps, in a block of
        # its own, for each of 2 + 2 x 9 + 1 parameters.
        assert memory.optimizer_state == 8 * PARAMETERS + 2 * 5 * 256 + 21 * 512
        assert capture.unknown_ops == {}

    def test_full_fine_tuning_runs_blocks_again(self, tmp_path):
        capture = captured(tmp_path, "full", T32, "accumulation=2")
        # Forward again but for the last product of each block, whose result nothing needs.
        again = 2 * TOKENS * (LINEARS - 2 * 64 * 128)
        assert products_of(capture) == 3 * FORWARD + again
        # The mask of padded samples keeps attention from the flash kernel.
        assert {op.name for op in capture.ops if op.kind == "attention"} == {
            "aten._scaled_dot_product_efficient_attention",
            "aten._scaled_dot_product_efficient_attention_backward",
        }
        assert capture.period == 2  # two batches make an update
        names = [op.name for op in capture.ops]
        assert sum("_fused_adamw" in name for name in names) == 1

    def test_lora(self, tmp_path):
        capture = captured(tmp_path, "lora", T32, "lora_rank=4")
        assert capture.trainable_parameters == ADAPTERS
        assert capture.parameters == PARAMETERS + ADAPTERS
        memory = capture.memory.peak()
        # bf16, adapters fp32; each norm, of 128 bytes, a block of 512.
        assert memory.parameters == 2 * PARAMETERS + 4 * ADAPTERS + 5 * 384

    def test_qlora(self, tmp_path):
        capture = captured(tmp_path, "qlora", T32, "lora_rank=4")
        assert capture.trainable_parameters == ADAPTERS
        assert capture.parameters == PARAMETERS + ADAPTERS
        memory = capture.memory.peak()
        # Linear layers half a byte a value; words, norms and adapters bf16. Blocks of 512 bytes for
        # norms of 128, and for 4 x 32 values of the adapters of keys and values: 256.
        blocks = 5 * 384 + 2 * 2 * 256
        assert memory.parameters == LINEARS / 2 + 4 * WORDS + 10 * 64 + 2 * ADAPTERS + blocks
        assert capture.unknown_ops == {}

    def test_dpo_holds_pairs_against_the_model_without_adapters(self, tmp_path):
        capture = captured(tmp_path, "dpo", T32, "lora_rank=4", "checkpointing=no")
        assert capture.trainable_parameters == ADAPTERS
        frozen = [op for op in capture.ops if op.kind == "gemm" and op.phase == "forward"]
        # Twice as many rows, once without adapters and once with them.
        adapters = 2 * 2 * TOKENS * ADAPTERS
        assert sum(op.flops for op in frozen) == 2 * 2 * FORWARD + adapters

    def test_classification(self, tmp_path):
        for name in ("timm:resnet18", "torchvision:resnet18"):
            capture = captured_of(tmp_path, name, None, "image_size=64")
            # torchvision publishes 11,689,512 parameters.
            assert capture.parameters == capture.trainable_parameters == 11_689_512

    def test_embedding_compares_each_text_with_those_of_the_batch(self, tmp_path):
        bert = {
            "model_type": "bert",
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "vocab_size": 100,
            "max_position_embeddings": 64,
        }
        capture = captured(tmp_path, "embedding", T32, config=bert)
        layer = 2 * TOKENS * (4 * 32 * 32 + 2 * 32 * 64)  # 2 texts of 32 tokens: 1,048,576
        pooler = 2 * 2 * 32 * 32  # of 2 first tokens; the loss does not ask for it
        scores = 2 * 2 * 2 * 32  # 2 x 2 products of width 32
        assert products_of(capture) == 2 * (3 * layer + pooler) + 3 * scores

    def test_diffusion(self, tmp_path):
        dit = {
            "_class_name": "DiTTransformer2DModel",
            "sample_size": 8,
            "patch_size": 2,
            "in_channels": 4,
            "out_channels": 8,
            "num_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "num_embeds_ada_norm": 10,
        }
        capture = captured(tmp_path, "diffusion", config=dit)
        assert capture.parameters == capture.trainable_parameters > 0
        adapted = captured(tmp_path, "diffusion", "lora_rank=2", config=dit)
        # Query, key, value and what follows: 32 x 32 each, 2 x (32 + 32) values beside each.
        assert adapted.trainable_parameters == 4 * 2 * 64

    def test_speech(self, tmp_path):
        whisper = {
            "model_type": "whisper",
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "vocab_size": 100,
            "num_mel_bins": 8,
            "max_source_positions": 50,
            "max_target_positions": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        }
        capture = captured(tmp_path, "speech", "text_tokens=16", config=whisper)
        # Places of the encoder, 50 x 32, are sines: they are kept and not trained.
        assert capture.parameters - capture.trainable_parameters == 50 * 32

    def test_segmentation_and_detection(self, tmp_path):
        name = "torchvision:lraspp_mobilenet_v3_large"
        capture = captured_of(tmp_path, name, None, "image_size=64")
        assert capture.parameters == 3_221_538  # as torchvision publishes
        name = "torchvision:ssdlite320_mobilenet_v3_large"
        capture = captured_of(tmp_path, name, None, "image_size=320")
        assert capture.parameters == 3_440_060  # as torchvision publishes
