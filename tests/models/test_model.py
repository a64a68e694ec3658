"""Models by their names; and the table: each is built and counted."""

from __future__ import annotations

import datetime
import json

import pytest

from outlay.errors import InputError, NotKnown
from outlay.facts import DATA, rows_of
from outlay.models.model import bundled_models, find_model, names_model
from outlay.models.recipe import methods_for
from outlay.trace.store import bundled_model_profiles, find_profile

SPELLINGS = [
    "llama-3.1-8b",
    "Llama 3.1 8B",
    "LLAMA_3.1_8B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "hf:meta-llama/Llama-3.1-8B",
    "Meta-Llama-3.1-8B",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_any_usual_spelling_is_found(spelling):
    assert find_model(spelling).name == "llama-3.1-8b"
    assert names_model(spelling)


def test_unknown_name_gets_the_nearest_ones():
    with pytest.raises(NotKnown) as raised:
        find_model("lama-3.1-8")
    assert raised.value.suggestions[0] == "llama-3.1-8b"
    assert "hf:" in raised.value.fix
    assert not names_model("lama-3.1-8")


@pytest.mark.parametrize("text", ["train.py:step", "resnet50.json", "", "hf:", "other:thing"])
def test_what_names_no_model(text):
    assert not names_model(text)


def test_folder_is_no_bundled_model_whatever_its_name(tmp_path, monkeypatch):
    folder = tmp_path / "llama-3.1-8b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    for place in ("./llama-3.1-8b", "llama-3.1-8b", str(folder)):
        assert find_model(f"hf:{place}").config["hidden_size"] == 64
    assert not names_model("./llama-3.1-8b")
    assert find_model("llama-3.1-8b").is_bundled


def test_two_models_share_no_spelling():
    names = [name for m in bundled_models() for name in {m.name, m.title, *m.aliases}]
    assert [find_model(name).name for name in names] == [
        m.name for m in bundled_models() for _ in {m.name, m.title, *m.aliases}
    ]


def test_architectures_of_timm_and_torchvision():
    vit = find_model("timm:vit_base_patch16_224")
    assert (vit.library, vit.task) == ("timm", "image classification")
    assert vit.config == {"architecture": "vit_base_patch16_224"}
    assert find_model("torchvision:fasterrcnn_resnet50_fpn").task == "detection"
    assert find_model("torchvision:deeplabv3_resnet50").task == "segmentation"
    with pytest.raises(InputError, match="no name of a model of timm"):
        find_model("timm:__import__('os')")


# A folder


def folder_of(tmp_path, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (tmp_path / "config.json").write_text(text)
    return f"hf:{tmp_path}"


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "max_position_embeddings": 512,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0",
    "_name_or_path": "/somewhere",
}


def test_config_in_a_folder(tmp_path):
    model = find_model(folder_of(tmp_path, LLAMA))
    assert (model.library, model.task) == ("transformers", "text generation")
    assert model.config == {
        "model_type": "llama",
        "hidden_size": 64,
        "max_position_embeddings": 512,
    }
    assert model.context_tokens == 512
    assert model.config_source == str(tmp_path / "config.json")
    assert not model.is_bundled


@pytest.mark.parametrize(
    ("classes", "model_type", "task"),
    [
        (["BertForMaskedLM"], "bert", "masked language"),
        (["BertModel"], "bert", "masked language"),
        (["T5ForConditionalGeneration"], "t5", "text to text"),
        (["WhisperForConditionalGeneration"], "whisper", "speech to text"),
        (["ViTForImageClassification"], "vit", "image classification"),
        (["CLIPModel"], "clip", "image and text"),
        (None, "qwen3", "text generation"),
    ],
)
def test_task_of_a_config(tmp_path, classes, model_type, task):
    content = {"model_type": model_type, "architectures": classes}
    assert find_model(folder_of(tmp_path, content)).task == task


def test_class_that_nobody_knows_what_it_is_for(tmp_path):
    content = {"model_type": "sam", "architectures": ["SamModel"]}
    with pytest.raises(InputError, match="SamModel"):
        find_model(folder_of(tmp_path, content))


def test_custom_code_is_refused_unless_trusted(tmp_path):
    name = folder_of(tmp_path, {**LLAMA, "auto_map": {"AutoModelForCausalLM": "code.Own"}})
    with pytest.raises(InputError, match="brings its own code") as raised:
        find_model(name)
    assert "--trust-remote-code" in raised.value.fix
    model = find_model(name, trust_remote_code=True)
    assert model.runs_own_code
    assert model.config["_name_or_path"] == str(tmp_path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"model_type": "llama", "hidden_', "no complete JSON"),
        ("[1, 2]", "no object with keys"),
        ('{"model_type": "llama", "eps": NaN}', "NaN"),
        ("", "empty"),
        ("{}", "no `model_type`"),
    ],
)
def test_config_that_is_none(tmp_path, content, why):
    with pytest.raises(InputError) as raised:
        find_model(folder_of(tmp_path, content))
    assert why in raised.value.why
    assert raised.value.fix


def test_folder_without_a_config(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json in"):
        find_model(f"hf:{tmp_path}")
    with pytest.raises(InputError, match="There is no folder"):
        find_model(f"hf:{tmp_path}/nothing")


def test_pipeline_of_diffusers_in_a_folder(tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(
        '{"_class_name": "UNet2DModel", "sample_size": 8}'
    )
    model = find_model(f"diffusers:{tmp_path}")
    assert (model.task, model.config["_class_name"]) == ("image generation", "UNet2DModel")
    (tmp_path / "unet" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="no config of a model of diffusers"):
        find_model(f"diffusers:{tmp_path}")


# The table


def test_every_row_has_source_and_date():
    rows = rows_of("models.csv")
    configs = {path.stem for path in (DATA / "model_configs").glob("*.json")}
    assert {row["model"] for row in rows} == configs
    assert len(rows) == len(configs) >= 60
    for row in rows:
        assert row["config_source"].startswith("https://"), row["model"]
        assert row["parameters_source"].startswith("https://"), row["model"]
        assert datetime.date.fromisoformat(row["as_of"])
        assert row["unit"] in ("1", "1e6", "1e9")


def printed(count: float, fact) -> str:
    """A count as it is published: at its precision."""
    decimals = len(fact.text.partition(".")[2])
    return f"{count / float(fact.unit):.{decimals}f}"


def test_bundled_steps_have_the_published_parameters():
    """Those whose recipe builds what was counted, without a pooler or another head."""
    wrong, found = {}, 0
    for model in bundled_models():
        name = f"{model.name}.{methods_for(model)[0]}"
        if model.counted or name not in bundled_model_profiles():
            continue
        found += 1
        count = printed(find_profile(name).parameters, model.parameters)
        if count != model.parameters.text:
            wrong[name] = (count, model.parameters.text)
    assert not wrong
    assert found > 30


PUBLISHED_GIGA_MULTIPLY_ADDS = {
    "resnet18": "1.81",
    "resnet50": "4.09",
    "resnet101": "7.80",
    "efficientnet-b0": "0.39",
    "convnext-tiny": "4.46",
    "swin-tiny": "4.49",
}
"""Of one image forward: docs.pytorch.org/vision/0.28/models.html, the column "GFLOPS"."""


@pytest.mark.parametrize(("name", "published"), PUBLISHED_GIGA_MULTIPLY_ADDS.items())
def test_bundled_classifiers_do_the_published_arithmetic(name, published):
    step = find_profile(f"{name}.classify").at(8)
    flops = sum(op.flops * op.count for op in step.ops if op.phase == "forward")
    assert f"{flops / 8 / 2e9:.2f}" == published


@pytest.mark.frameworks
@pytest.mark.filterwarnings("ignore")
def test_parameters_of_each_model_are_the_published_ones():
    torch = pytest.importorskip("torch")
    from outlay.trace.capture import torchvision_ops

    torchvision_ops.install()
    for library in ("transformers", "timm", "diffusers"):
        pytest.importorskip(library)
    wrong = {}
    for model in bundled_models():
        with torch.device("meta"):
            built = built_of(model)
        count = sum(parameter.numel() for parameter in built.parameters())
        found = printed(count, model.parameters)
        if found != model.parameters.text:
            wrong[model.name] = (found, model.parameters.text)
    assert not wrong


def built_of(model):
    import diffusers
    import timm
    import torchvision
    import transformers

    from outlay.models.recipe import rendered_step

    if model.library == "timm":
        return timm.create_model(model.config["architecture"])
    if model.library == "torch":
        return built_by_its_recipe(model)
    if model.library == "torchvision":
        backbone = {"weights_backbone": None} if model.task == "detection" else {}
        name = model.config["architecture"]
        return torchvision.models.get_model(name, weights=None, **backbone)
    if model.library == "diffusers":
        return getattr(diffusers, model.config["_class_name"]).from_config(model.config)
    auto_class = model.counted
    if not auto_class:  # what its recipe builds
        text = rendered_step(model, None)
        auto_class = text.partition('AUTO_CLASS = "')[2].partition('"')[0]
    config = transformers.AutoConfig.for_model(**model.config)
    return getattr(transformers, auto_class).from_config(config)


def built_by_its_recipe(model):
    """Of a GAN the generator: what is published."""
    from outlay.models.recipe import rendered_step

    namespace: dict[str, object] = {}
    exec(compile(rendered_step(model, None), "step.py", "exec"), namespace)
    built = namespace[model.counted](model.config["image_size"], model.config)
    return built[0] if isinstance(built, tuple) else built
