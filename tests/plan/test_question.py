"""A question about a model: what is decided where nothing is said, and the file it becomes."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.errors import InputError, NotKnown
from outlay.plan.question import (
    TrainingQuestion,
    answer,
    workload_of_question,
    workload_text,
)
from outlay.units import DAY_S, HOUR_S
from outlay.workload.survey import DataSurvey, TokenLengths

MODEL = "llama-3.2-1b"


def asked(**changes):
    return TrainingQuestion(**{"model": MODEL, "method": "qlora", "samples": 50_000} | changes)


def some_texts(**changes):
    """A thousand texts of 10, 20 ... 210 tokens, 110 on average."""
    lengths = TokenLengths(mean=110, percentiles=tuple(range(10, 211, 10)), counted_by="bytes")
    values = {"path": "train.jsonl", "kind": "text", "samples": 1000, "size_bytes": 468_600}
    return DataSurvey(**values | {"lengths": lengths, "read_from": "text"} | changes)


# The workload


def test_the_one_line_question_as_a_workload():
    question = asked(tokens=1024, epochs=3, budget_usd=100, deadline_s=2 * DAY_S)
    workload = workload_of_question(question)
    step = workload.step
    assert (step.model, step.method, step.tokens) == (MODEL, "qlora", 1024)
    assert workload.samples() == 3 * 50_000
    # 50,000 x 1,024 tokens of 4.26 bytes: 218.1 MB
    assert workload.data.size_bytes == pytest.approx(50_000 * 1024 * 4.26, rel=1e-3)
    assert workload.limits.budget_usd == 100
    assert workload.limits.deadline_s == 2 * DAY_S
    assert step.batch_left_open


def test_a_bundled_profile_is_a_model_too():
    workload = workload_of_question(
        TrainingQuestion(model="resnet50", epochs=90, samples=1_281_167, budget_usd=100)
    )
    assert workload.step.profile == "resnet50"
    assert workload.samples() == 90 * 1_281_167
    assert workload.data.size_bytes is None  # what an image takes is not known


def test_a_setting_that_may_be_left_out_is_a_number_too():
    question = TrainingQuestion(model="sdxl", samples=1000, settings={"lora_rank": "16"})
    settings = dict(workload_of_question(question).step.settings)
    assert settings == {"lora_rank": 16}
    assert isinstance(settings["lora_rank"], int)


def test_ones_own_step_is_asked_about_as_easily():
    workload = workload_of_question(TrainingQuestion(model="my/train.py:step", samples=1000))
    assert workload.step.target == "my/train.py:step"
    assert workload.samples() == 1000


def test_the_usual_method_and_length_are_taken_and_told():
    answered = answer(asked(method=None))
    assert (answered.method, answered.tokens, answered.epochs) == ("full", 1024, 1)
    told = " ".join(answered.defaults)
    assert "Recipe full (or --method lora, qlora" in told
    assert "padded or cut to 1,024 tokens; --packing packs them" in told
    assert "One pass over the data (--epochs)" in told
    assert "4.26 bytes a token (--data FILE measures yours)" in told


def test_what_is_said_is_not_told_as_decided():
    told = " ".join(answer(asked(tokens=512, epochs=2)).defaults)
    assert "--method" not in told
    assert "--epochs" not in told


def test_settings_are_written_as_the_recipe_has_them():
    words = {"lora_rank": "64", "checkpointing": "no", "lora_targets": "q_proj,v_proj"}
    step = workload_of_question(asked(settings=words)).step
    assert dict(step.settings) == {
        "lora_rank": 64,
        "checkpointing": False,
        "lora_targets": ("q_proj", "v_proj"),
    }


@pytest.mark.parametrize("settings", [{"lora_rnk": "64"}, {"optimizer": "magic"}])
def test_a_setting_that_cannot_be_is_refused_at_once(settings):
    with pytest.raises(InputError):
        answer(asked(settings=settings))


# How much


@pytest.mark.parametrize(
    ("said", "samples"),
    [
        ({"samples": None, "total_tokens": 2e6, "tokens": 1000}, 2000),
        ({"samples": None, "total_tokens": 2e6 + 1, "tokens": 1000}, 2001),
        ({"samples": None, "total_tokens": 2e6, "tokens": 1000, "epochs": 3}, 6000),
        ({"epochs": 2.5}, 125_000),
    ],
)
def test_lengths_in_the_users_words(said, samples):
    assert workload_of_question(asked(**said)).samples() == samples


def test_steps_and_a_time_are_lengths_too():
    steps = workload_of_question(asked(samples=None, steps=400))
    assert steps.length.iterations == 400
    timed = workload_of_question(asked(samples=None, training_s=6 * HOUR_S))
    assert timed.length.training_s == 6 * HOUR_S


def test_packing_makes_sequences_of_what_samples_have():
    # 50,000 samples of 300 tokens in sequences of 1,024: 14,648.4 of them
    answered = answer(asked(packing=True, mean_tokens=300, tokens=1024))
    assert answered.samples == 14_649
    assert dict(workload_of_question(answered.question).step.settings)["packing"] is True


def test_packing_takes_the_mean_of_the_data():
    # 1,000 texts of 110 tokens in sequences of 1,024: 107.4
    answered = answer(asked(samples=None, data=some_texts(), packing=True))
    assert answered.samples == 108


def test_pretraining_joins_samples_by_itself():
    question = TrainingQuestion(model=MODEL, method="pretrain", data=some_texts())
    # 1,000 texts of 110 tokens in rows of 2,048: 53.7
    assert answer(question).samples == 54
    assert workload_of_question(question).step.settings == ()
    rows = answer(TrainingQuestion(model=MODEL, method="pretrain", samples=500))
    assert rows.samples == 500
    assert "A sample is a row of 2,048 tokens without padding." in rows.defaults


def sounds(**changes):
    values = {"path": "talks", "kind": "audio", "samples": 10, "size_bytes": 1000}
    return DataSurvey(**values | {"audio_s": 100.0} | changes)


@pytest.mark.parametrize(
    ("said", "samples"),
    [
        ({"audio_s": 100 * HOUR_S}, 24_000),  # 360,000 s in samples of 15 s
        ({"audio_s": 100 * HOUR_S, "settings": {"seconds": "30"}}, 12_000),
        ({"data": sounds()}, 10),  # of 10 s: a sample each
        ({"data": sounds(audio_s=6000.0)}, 400),  # of 600 s: cut into pieces of 15 s
    ],
)
def test_hours_of_audio(said, samples):
    answered = answer(TrainingQuestion(model="whisper-tiny", **said))
    assert (answered.samples, answered.tokens) == (samples, None)


def test_packing_without_a_mean_says_what_to_give():
    with pytest.raises(InputError, match="--mean-tokens"):
        answer(asked(packing=True))


def test_measured_data_decides_the_length_that_covers_most_of_it():
    answered = answer(asked(samples=None, data=some_texts()))
    # 95 % have up to 200 tokens: two times 128
    assert (answered.samples, answered.tokens) == (1000, 256)
    told = " ".join(answered.defaults)
    assert "train.jsonl: 1,000 samples, 468.6 KB, read from text" in told
    assert "110 tokens on average, 200 at the 95th percentile" in told
    assert "no tokenizer is at hand" in told
    # 110 of 256 tokens are text
    assert f"--packing would save {1 - 110 / 256:.0%}" in told
    workload = workload_of_question(answered.question)
    assert workload.data.size_bytes == 468_600
    tiny = answer(asked(samples=None, data=some_texts(samples=1, size_bytes=18)))
    assert "train.jsonl: 1 sample, 18 B, read" in " ".join(tiny.defaults)


def test_what_is_cut_is_told():
    told = " ".join(answer(asked(samples=None, data=some_texts(), tokens=110)).defaults)
    # half of them are longer than 110
    assert "50% are longer and cut" in told


def test_damaged_lines_are_told():
    data = some_texts(damaged=3, damaged_lines=("line 7: not JSON",))
    told = " ".join(answer(asked(samples=None, data=data)).defaults)
    assert "3 damaged, not counted: line 7: not JSON" in told


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"data": some_texts()}, "Both a number of samples and the data"),
        ({"tokens": 200_000}, "at most 131,072 tokens"),
        ({"samples": None, "data": some_texts(kind="images")}, "holds images"),
        ({"samples": None, "audio_s": 60.0}, "does not take sounds"),
        ({"method": "classify"}, "classify"),
        ({"model": "resnet50", "method": None, "tokens": 5}, "no text a sample"),
        ({"model": "llama-1b", "method": None, "tokens": 5}, "2,048 tokens a sample"),
        ({"model": "a.py:step"}, "a step of your own"),
        ({"samples": None, "epochs": 3, "budget_usd": 50}, "not of how many samples"),
    ],
)
def test_what_contradicts_itself_is_refused(said, words):
    with pytest.raises(InputError, match=words):
        answer(asked(**said))


def test_a_question_without_a_length_says_how_to_give_one():
    with pytest.raises(InputError, match="How long is llama-3.2-1b to be trained"):
        workload_of_question(asked(samples=None))


def test_an_unknown_model_has_the_nearest_ones():
    with pytest.raises(NotKnown) as refused:
        answer(asked(model="llama-3.2-1bb"))
    assert refused.value.suggestions[0] == MODEL


def test_a_budget_alone_is_a_question_about_money():
    assert asked(samples=None, budget_usd=50).is_about_money
    assert not asked(budget_usd=50).is_about_money
    assert asked(budget_usd=50, as_many_epochs=True).is_about_money
    assert not asked(samples=None).is_about_money


# The file


@given(
    samples=st.integers(1, 10**12),
    epochs=st.floats(0.01, 1000),
    budget=st.floats(0.01, 1e8),
    deadline=st.floats(1, 3e9),
    gpus=st.lists(st.text(min_size=1, max_size=8), max_size=3),
    name=st.sampled_from(["resnet50", 'odd"\\\n\x7f.py:step', "ü.py"]),
)
def test_any_question_reads_back_as_it_was_asked(samples, epochs, budget, deadline, gpus, name):
    question = TrainingQuestion(
        model="train.py" if "\n" in name else name,
        samples=samples,
        epochs=epochs,
        budget_usd=budget,
        deadline_s=deadline,
        providers=tuple(gpus),
    )
    table = tomllib.loads(workload_text(question))
    assert table["data"]["samples"] == samples
    assert table["length"]["epochs"] == epochs
    assert table["limits"]["budget"] == budget
    assert tuple(table.get("consider", {}).get("providers", ())) == tuple(gpus)


def test_the_file_keeps_every_key_of_the_template_as_a_comment():
    text = workload_text(asked(tokens=1024))
    assert "# global_batch_size = 256" in text
    assert "# [[machine]]" in text
    assert "# budget = 500" in text
    assert "tokens = 1_024" in text
