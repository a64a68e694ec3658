from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import for_every

from outlay.errors import InputError, NotKnown
from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import gpus


def meanings(spelling, provider=None):
    return [gpu.name for gpu in find_gpu(spelling, provider).candidates]


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("RTX 3090", "RTX 3090"),
        ("rtx3090", "RTX 3090"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100 80GB PCIe", "A100 80GB PCIe"),
        ("A100-PCIE-40GB", "A100 40GB PCIe"),
        ("H100 SXM", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA L4", "L4"),
        ("Tesla T4", "T4"),
        ("T4G", "T4g"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("Tesla V100-PCIE-32GB", "V100 PCIe 32GB"),
        ("Tesla P100-PCIE-16GB", "P100 PCIe 16GB"),
        ("4090", "RTX 4090"),
        ("RTX 4070 Ti SUPER", "RTX 4070 Ti SUPER"),
        ("RTX_4070S_Ti", "RTX 4070 Ti SUPER"),
        ("GTX1660S", "GTX 1660 SUPER"),
        ("RTX 4060 Ti 16GB", "RTX 4060 Ti 16GB"),
        ("RTX 6000 Ada Generation", "RTX 6000 Ada"),
        ("Quadro RTX 6000", "Quadro RTX 6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("A6000", "RTX A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000 WS"),
        ("AMD Instinct MI300X", "MI300X"),
        ("GTX 1080Ti", "GTX 1080 Ti"),
        ("NVIDIA GH200 480GB", "GH200 96GB"),
        ("NVIDIA TITAN RTX", "Titan RTX"),
    ],
)
def test_usual_spellings_mean_one_gpu(spelling, name):
    match = find_gpu(spelling)
    assert [gpu.name for gpu in match.candidates] == [name]
    assert match.gpu.name == name
    assert match.spelling == spelling
    assert match.note == ""


def test_a_laptop_gpu_is_not_the_desktop_card():
    laptop = find_gpu("NVIDIA GeForce RTX 4090 Laptop GPU").gpu
    assert laptop.name == "RTX 4090 Laptop"
    assert laptop.memory_bytes < find_gpu("RTX 4090").gpu.memory_bytes


@pytest.mark.parametrize(
    ("spelling", "names"),
    [
        ("A100-80GB", ["A100 80GB PCIe", "A100 80GB SXM"]),
        ("A100 SXM", ["A100 40GB SXM", "A100 80GB SXM"]),
        ("H100", ["H100 PCIe", "H100 SXM", "H100 NVL"]),
        ("V100 32GB", ["V100 PCIe 32GB", "V100 SXM2 32GB"]),
        ("V100", ["V100 PCIe 16GB", "V100 PCIe 32GB", "V100 SXM2 16GB", "V100 SXM2 32GB"]),
        ("GH200", ["GH200 96GB", "GH200 144GB"]),
    ],
)
def test_open_names_keep_every_gpu_they_may_mean(spelling, names):
    match = find_gpu(spelling)
    assert sorted(gpu.name for gpu in match.candidates) == sorted(names)
    assert match.gpu is match.candidates[0]


@pytest.mark.parametrize("spelling", ["A100", "A100-80GB", "H100", "V100", "P100", "GH200"])
def test_open_names_take_the_slowest_with_the_least_memory(spelling):
    first, *others = find_gpu(spelling).candidates
    assert first.memory_bytes_per_s == min(gpu.memory_bytes_per_s for gpu in (first, *others))
    assert first.memory_bytes == min(gpu.memory_bytes for gpu in (first, *others))
    assert all(first.peak("fp16") <= gpu.peak("fp16") for gpu in others)


def test_open_names_say_what_was_taken():
    note = find_gpu("A100-80GB").note
    assert note.startswith('"A100-80GB" leaves the form open: A100 80GB PCIe was taken')
    assert "A100 80GB SXM" in note


@for_every("name", gpus())
def test_a_name_of_the_facts_table_means_itself(name):
    assert meanings(name) == [name]


def provider_spellings():
    """Provider, spelling and every meaning."""
    match = defaultdict(set)
    for row in rows_of("gpu_spellings.csv"):
        if row["gpu"]:
            match[row["provider"], row["spelling"]].add(row["gpu"])
    return [(*key, sorted(names)) for key, names in match.items()]


@for_every("provider, spelling, names", provider_spellings())
def test_a_providers_spelling_means_what_the_table_says(provider, spelling, names):
    match = set(meanings(spelling, provider))
    allowed = {gpu for name in names for gpu in meanings(name)}
    assert match
    assert match <= allowed
    if len(names) == 1:
        assert match == allowed


@for_every("provider, spelling, names", provider_spellings())
def test_a_providers_spelling_is_found_without_the_provider(provider, spelling, names):
    assert meanings(spelling)


@pytest.mark.parametrize(
    ("provider", "spelling", "means"),
    [
        ("vast", "RTX3090", {"RTX 3090"}),
        ("vast", "RTX4090", {"RTX 4090"}),
        ("lambda", "H100", {"H100 PCIe", "H100 SXM"}),
        ("aws", "NVIDIA", {"B200", "H200"}),
    ],
)
def test_a_spelling_that_only_the_instance_tells_apart(provider, spelling, means):
    assert set(meanings(spelling, provider)) == means


def test_one_spelling_means_different_gpus_at_different_providers():
    # Lambda's RTX6000 is the Turing card, Nebius's the Blackwell one.
    assert meanings("RTX6000", "lambda") == ["Quadro RTX 6000"]
    assert meanings("RTX6000", "nebius") == ["RTX PRO 6000 Server"]


def test_a_provider_without_that_spelling_falls_back_to_the_usual_meaning():
    assert meanings("RTX 3090", "lambda") == ["RTX 3090"]
    assert meanings("RTX 3090", "nobody") == ["RTX 3090"]


separators = st.sampled_from([" ", "-", "_", "  ", " - "])
vendors = st.sampled_from(["", "NVIDIA ", "nvidia-", "AMD "])


@given(st.sampled_from(sorted(gpus())), st.data())
@settings(deadline=None, max_examples=300)
def test_case_spacing_and_dashes_do_not_matter(name, data):
    case = data.draw(st.sampled_from([str.lower, str.upper, str.title, str]))
    words = case(name).split(" ")
    spelling = data.draw(vendors) + words[0]
    for word in words[1:]:
        spelling += data.draw(separators) + word
    assert meanings(spelling) == [name]


@pytest.mark.parametrize(
    ("spelling", "suggestion"),
    [("RTX 3091", "RTX 3090"), ("H100 SXN", "H100 SXM"), ("MI300", "MI300X"), ("L45S", "L40S")],
)
def test_near_misses_are_suggested(spelling, suggestion):
    with pytest.raises(NotKnown) as caught:
        find_gpu(spelling)
    assert suggestion in caught.value.suggestions
    assert f'"{suggestion}"' in str(caught.value)
    assert repr(spelling) in str(caught.value)


@pytest.mark.parametrize(
    "spelling", ["", "   ", "nvidia", "geforce", "sxm", "80GB", "banana", "A100 60GB", "T4 SXM"]
)
def test_nonsense_is_refused(spelling):
    with pytest.raises(InputError, match="No GPU is known as") as caught:
        find_gpu(spelling)
    assert caught.value.exit_code == 2
    assert "outlay gpus" in caught.value.fix


@given(st.text(max_size=12))
@settings(deadline=None)
def test_any_text_is_a_gpu_or_an_input_error(text):
    try:
        match, message = find_gpu(text).gpu.name, ""
    except NotKnown as error:
        match, message = "", str(error)
    assert match in gpus() or repr(text) in message
