"""Which steps of models are bundled, and of how few layers they are traced."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import build_model_profiles as tool
from outlay.models.model import find_model
from outlay.models.recipe import RecipeSettings, profile_name
from outlay.trace.store import bundled_model_profiles


def test_a_config_with_fewer_layers_keeps_all_else():
    config = {
        "hidden_size": 64,
        "num_hidden_layers": 6,
        "layer_types": ["a", "a", "b", "a", "a", "b"],
        "text_config": {"n_layer": 6, "sizes": [1, 2]},
        "encoder_layers": 2,
    }
    assert tool._with_depth(config, 6, 3) == {
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "layer_types": ["a", "a", "b"],
        "text_config": {"n_layer": 3, "sizes": [1, 2]},
        "encoder_layers": 2,
    }


def test_sizes_of_a_config_are_hints():
    config = {"a": 4096, "b": {"c": 512, "d": True}, "e": 0.5, "f": "1"}
    assert sorted(tool.sizes_in(config)) == [512, 4096]


def test_what_is_bundled_is_listed_once_and_named_by_its_settings():
    names = [
        profile_name(model, method, RecipeSettings(values=settings))[0]
        for model, method, settings in tool.steps()
    ]
    assert len(names) == len(set(names))
    assert set(bundled_model_profiles()) <= set(names)
    assert names[:3] == ["llama-3.1-8b.qlora", "llama-3.1-8b.lora", "llama-3.1-8b.full"]


def test_a_step_is_found_by_what_is_set_of_its_recipe():
    model = find_model("Llama 3.1 8B")
    settings = RecipeSettings.from_words(["tokens=2,048", "checkpointing=yes"])
    assert profile_name(model, "lora", settings) == ("llama-3.1-8b.lora", 2048)
    settings = RecipeSettings.from_words(["checkpointing=no", "lora_rank=8"])
    name = "llama-3.1-8b.lora.checkpointing-no.lora_rank-8"
    assert profile_name(model, "lora", settings) == (name, 1024)
