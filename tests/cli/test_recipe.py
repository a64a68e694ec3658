"""`outlay recipe`, and models by their names where a TARGET is taken."""

from __future__ import annotations

import json

import jsonschema
import pytest

from outlay.models.model import bundled_models, find_model
from outlay.models.recipe import RecipeSettings, bundled_recipes, rendered_step
from outlay.report.recipes import published_parameters


@pytest.fixture(autouse=True)
def own_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ("recipe-models", ["recipe", "models"]),
        ("recipe-list", ["recipe", "list"]),
        ("recipe-list", ["recipe", "list", "qlora"]),
        ("recipe-show", ["recipe", "show", "lora", "--model", "qwen3-8b"]),
    ],
)
def test_documents_validate_against_their_schemas(outlay, schema, arguments):
    document = outlay(*arguments, "--json").document
    jsonschema.validate(document, outlay("schema", schema).document)


def test_models_are_listed(outlay):
    ended = outlay("recipe", "models")
    assert (ended.code, ended.err) == (0, "")
    for model in bundled_models():
        assert model.name in ended.out
    models = outlay("recipe", "models", "--json").document["models"]
    (llama,) = [model for model in models if model["name"] == "llama-3.1-8b"]
    assert llama["published_parameters"] == 8_030_261_248
    assert llama["methods"][:3] == ["full", "lora", "qlora"]
    assert llama["bundled"] == ["full", "lora", "qlora"]
    assert "full*, lora*, qlora*, dpo, pretrain" in ended.out
    # keras-nlp counts Hugging Face's layout
    assert published_parameters(find_model("whisper-small")) == 241_734_912


def test_recipes_are_listed_and_one_tells_its_settings(outlay):
    out = outlay("recipe", "list").out
    for recipe in bundled_recipes():
        assert f"\n{recipe.method} " in out
    out = outlay("recipe", "list", "qlora").out
    assert "lora_rank" in out
    assert "paged-adamw-8bit" in out


def test_show_prints_exactly_the_step(outlay):
    expected = rendered_step(
        find_model("llama-3.1-8b"), "qlora", RecipeSettings(values={"tokens": 2048})
    )
    shown = outlay("recipe", "show", "qlora", "--model", "llama-3.1-8b", "--tokens", "2048")
    assert (shown.code, shown.out, shown.err) == (0, expected, "")
    words = ["--model", "Llama 3.1 8B", "--method", "qlora", "--set", "tokens=2048"]
    assert outlay("recipe", "show", *words).out == expected


def test_what_cannot_be_shown(outlay):
    both = outlay("recipe", "show", "lora", "--method", "qlora")
    assert both.code == 2
    unknown = outlay("recipe", "show", "lora", "--model", "lama-3.1-8")
    assert unknown.code == 2
    assert '"llama-3.1-8b"' in unknown.err
    setting = outlay("recipe", "show", "lora", "--set", "tokenz=1")
    assert setting.code == 2
    assert '"tokens"' in setting.err


@pytest.mark.parametrize(
    "command",
    [["predict", "--gpu", "T4"], ["trace"], ["fit", "--gpu", "T4"]],
    ids=lambda command: command[0],
)
def test_methods_are_for_models(outlay, command):
    name, *options = command
    ended = outlay(name, "train.py:step", "--method", "lora", *options)
    assert ended.code == 2
    assert "has no methods or settings" in ended.err
    ended = outlay(name, "lama-3.1-8", *options)
    assert ended.code == 2
    assert '"llama-3.1-8b"' in ended.err


@pytest.mark.torch
@pytest.mark.frameworks
def test_model_in_a_folder_is_predicted_and_traced(outlay, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")  # of transformers
    config = {
        "model_type": "gpt2",
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 256,
        "n_positions": 64,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    ended = outlay(
        "trace", f"hf:{tmp_path}", "--method", "pretrain", "--set", "tokens=32", "--batch-size",
        "2", "--gpu", "T4", "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    # Words 256 x 64 and places 64 x 64; two blocks of 12 x 64 x 64 values, 13 x 64 of biases and
    # norms; a norm of 2 x 64 at the end.
    parameters = 256 * 64 + 64 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    assert ended.document["parameters"] == parameters
