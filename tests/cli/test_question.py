"""`outlay plan MODEL`: one line to an answer, the methods side by side, and what a budget pays."""

from __future__ import annotations

import json

import jsonschema
import pytest
from tests.builders import a_method_step

from outlay.cli.question import amount_of, is_model
from outlay.plan import from_measurement

LINE = (
    "llama-3.2-1b", "--method", "qlora", "--samples", "50k", "--tokens", "1024", "--epochs", "3",
    "--budget", "100", "--deadline", "2d",
)  # fmt: skip


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch, few_offers):
    monkeypatch.setattr(from_measurement, "profile_of_model", a_method_step)


def test_one_line_is_answered(outlay):
    ended = outlay("plan", *LINE)
    assert (ended.code, ended.err) == (0, "")
    # 3 x 50,000 x 1,024 = 153,600,000
    assert ended.out.startswith(
        "llama-3.2-1b qlora, 3 epochs of 50,000 samples x 1,024 tokens: 154 M tokens.\n"
    )
    assert "--packing packs them instead" in ended.out
    assert "Take: " in ended.out


def test_the_document_says_what_was_asked_and_is_valid(outlay):
    ended = outlay("plan", *LINE, "--json")
    jsonschema.validate(ended.document, outlay("schema", "plan").document)
    question = ended.document["question"]
    assert (question["model"], question["method"]) == ("llama-3.2-1b", "qlora")
    assert (question["tokens"], question["samples"], question["epochs"]) == (1024, 50_000, 3)
    assert ended.document["chosen"]["samples"] == 150_000


def test_a_bundled_profile_is_planned_by_its_name(outlay):
    ended = outlay(
        "plan", "resnet50", "--epochs", "90", "--samples", "1281167", "--budget", "900", "--json"
    )
    assert ended.code == 0
    assert ended.document["chosen"]["samples"] == 90 * 1_281_167


@pytest.mark.parametrize(
    "line",
    [
        LINE,
        ("resnet50", "--epochs", "90", "--samples", "1_281_167", "--gpu", "A100,H100"),
        ("llama-3.2-1b", "--method", "lora", "--set", "lora_rank=8", "--length", "2M tokens"),
        ("llama-3.2-1b", "--method", "lora", "--budget", "20"),
    ],
)
def test_init_writes_the_file_of_the_same_question(line, outlay, tmp_path):
    """The plan of the file is that of the line, to the last digit."""
    path = tmp_path / "written.toml"
    model, *options = line
    written = outlay("init", path, "--model", model, *options)
    assert (written.code, written.err) == (0, "")
    asked, read = outlay("plan", *line, "--json").document, outlay("plan", path, "--json").document
    assert asked.pop("question") is not None
    assert read.pop("question") is None
    assert read == asked


def test_what_no_option_satisfies_ends_with_3(outlay):
    ended = outlay("plan", *LINE[:-3], "0.01", "--deadline", "2d", "--json")
    assert ended.code == 3
    assert ended.document["chosen"] is None


def test_an_option_is_explained(outlay):
    ended = outlay("plan", *LINE, "--explain", "1")
    assert ended.code == 0
    assert ended.out.startswith("#1 ")
    assert "data preparation" in ended.out


# Methods


def test_methods_side_by_side(outlay):
    ended = outlay("plan", "llama-3.2-1b", "--method", "all", *LINE[3:])
    assert (ended.code, ended.err) == (0, "")
    rows = {line.split()[0]: line for line in ended.out.splitlines() if line.startswith("  ")}
    assert {"full", "lora", "qlora"} <= set(rows)
    assert "SAVES" in ended.out
    second = ended.out.splitlines()[1]
    assert second.startswith(("lora, the cheapest: ", "qlora, the cheapest: "))
    assert "against full" in second + ended.out.splitlines()[2]
    assert "Rests on: " in ended.out
    assert "%" in rows["lora"]
    for method in ("full", "lora", "qlora"):
        assert f"- {method}: " in ended.out


def test_the_document_of_methods_has_the_plan_of_each(outlay):
    ended = outlay("plan", "llama-3.2-1b", "--method", "all", *LINE[3:], "--json")
    document = ended.document
    jsonschema.validate(document, outlay("schema", "methods").document)
    full, lora, _ = document["methods"]
    assert [one["method"] for one in document["methods"]] == ["full", "lora", "qlora"]
    saved = (
        full["plan"]["chosen"]["expected_cost_usd"] - lora["plan"]["chosen"]["expected_cost_usd"]
    )
    assert lora["saves_usd"] == pytest.approx(saved)
    costs = {
        one["method"]: one["plan"]["chosen"]["expected_cost_usd"] for one in document["methods"]
    }
    assert document["cheapest"] == min(costs, key=costs.get)
    assert lora["batch_size"] == lora["plan"]["chosen"]["batch_size"]
    assert lora["reserved_bytes_per_gpu"]["likely"] > lora["allocated_bytes_per_gpu"]["low"] > 0
    assert lora["smallest"]["memory_bytes"] > 0


def test_methods_that_all_cost_too_much_end_with_3(outlay):
    ended = outlay("plan", *LINE[:2], "all", *LINE[3:-3], "0.01")
    assert ended.code == 3
    assert "nothing within the limits" in ended.out


def test_a_budget_alone_says_what_it_pays_for(outlay):
    ended = outlay("plan", "llama-3.2-1b", "--method", "lora", "--budget", "$20", "--json")
    assert ended.code == 0
    chosen = ended.document["chosen"]
    assert chosen["samples"] == ended.document["question"]["samples"]
    assert chosen["within_budget_chance"] >= 0.8
    shown = outlay("plan", "llama-3.2-1b", "--method", "lora", "--budget", "$20")
    assert shown.out.startswith("For $20.00: llama-3.2-1b lora, ")
    assert "or 3 over" in shown.out


# Data


def test_data_is_measured_on_the_spot(outlay, tmp_path):
    path = tmp_path / "train.jsonl"
    record = {"messages": [{"role": "user", "content": "x" * 426}]}
    path.write_text((json.dumps(record) + "\n") * 40 + "{broken\n")
    ended = outlay("plan", "llama-3.2-1b", "--data", path, "--json")
    assert ended.code == 0
    question = ended.document["question"]
    # 426 bytes at 4.26 a token: 100, which 128 covers
    assert (question["samples"], question["tokens"]) == (40, 128)
    told = " ".join(question["decided"])
    assert "40 samples" in told
    assert "1 damaged, not counted: line 41: not JSON" in told


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("llama-3.2-1b",), "How long is llama-3.2-1b to be trained"),
        (("llama-3.2-1b", "--samples", "lots"), "--samples 'lots'"),
        (("llama-3.2-1b", "--samples", "0.5"), "no whole number"),
        (("llama-3.2-1b", "--samples", "-3"), "--samples '-3'"),
        (("llama-3.2-1b", "--samples", "nan"), "--samples 'nan'"),
        (("llama-3.2-1b", "--samples", "1k", "--budget", "0"), "--budget '0'"),
        (("llama-3.2-1b", "--samples", "1k", "--deadline", "soon"), "--deadline 'soon'"),
        (("llama-3.2-1b", "--samples", "1k", "--length", "3 moons"), "--length '3 moons'"),
        (("llama-3.2-1b", "--samples", "1k", "--length", "3k samples"), "the same twice"),
        (("llama-3.2-1b", "--samples", "1k", "--epochs", "max"), "there is none"),
        (("llama-3.2-1b", "--data", "absent.jsonl"), "no data at absent.jsonl"),
        (("llama-3.2-1b", "--samples", "1k", "--set", "x=1"), "No setting of full"),
        (("llama-3.2-1b", "--samples", "1k", "--tokenizer", "no", "--data", "."), "no tokenizer"),
        (("llama-3.2-1bb", "--samples", "1k"), 'Did you mean "llama-3.2-1b"'),
        (("outlay.tml",), "A workload file's name ends in .toml"),
        (("llama-3.2-1b", "--samples", "1k", "--vary", "epochs=1..3"), "--vary needs a file"),
        (("llama-3.2-1b", "--budget", "5", "--alert-below", "3"), "--alert-below needs"),
        (("work.toml", "--samples", "1k"), "--samples is for a MODEL"),
    ],
)
def test_what_will_not_do_is_told_with_2(line, words, outlay):
    ended = outlay("plan", *line)
    assert ended.code == 2
    assert words in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("50k", 50_000),
        ("1.2M", 1.2e6),
        ("2 b", 2e9),
        ("1_281_167", 1_281_167),
        ("50,000", 50_000),
        ("1e6", 1e6),
    ],
)
def test_amounts_as_people_write_them(text, amount):
    assert amount_of(text) == amount


@pytest.mark.parametrize("length", ["200M tokens", "3 epochs", "10,000 steps", "6h", "5k samples"])
def test_a_length_in_any_words(length, outlay):
    samples = ("--samples", "1k") if "epochs" in length else ()
    ended = outlay("plan", "llama-3.2-1b", "--length", length, *samples, "--json")
    assert ended.code == 0, ended.err


def test_a_file_is_a_file_and_a_model_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("")
    (tmp_path / "folder").mkdir()
    names = ("resnet50", "llama-3.2-1b", "hf:./folder", "train.py:step", "Llama 3.2 1B", "typo")
    assert all(map(is_model, names))
    files = ("plain", "folder", "a.toml", "probe.json", "-", "dir/file")
    assert not any(map(is_model, files))
