"""A step at any length by hand: its memory, its table, its files."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from outlay.errors import InputError, NotKnown
from outlay.facts import DATA
from outlay.models.model import bundled_models
from outlay.models.recipe import find_recipe
from outlay.trace.allocator import live_peak_bytes, peak_use_and_need
from outlay.trace.length_profile import (
    LengthHistory,
    LengthOp,
    LengthProfile,
    LengthStructure,
    allocator_shares,
    nearest_range,
    polynomial_at,
)
from outlay.trace.profile import BlockGroup, History, Memory, ProfileOp
from outlay.trace.store import (
    bundled_model_profiles,
    find_profile,
    read_length_profiles,
    read_profile,
    step_name,
    write_length_profiles,
    write_profile,
)
from outlay.trace.workspace import REFERENCE, Workspace, with_attention

KIB = 1024


def _history() -> LengthHistory:
    """A parameter of 1 KiB; in each step 1 KiB a token that stays, then 2 KiB a token beside it."""
    step = [1, 2, -1, -2]
    return LengthHistory(
        sizes=(((1.0 * KIB,),), ((0.0,), (0.0, 1.0 * KIB)), ((0.0,), (0.0, 2.0 * KIB))),
        categories=("parameters", "activations", "temporaries"),
        events=(0, *step, *step, *step),
        step_start=9,
    )


def _profile(lengths: tuple[int, int] = (64, 256)) -> LengthProfile:
    mm = ProfileOp(
        name="aten.mm",
        kind="gemm",
        phase="forward",
        precision="bf16",
        count=2,
        flops=(0.0,),
        moved_bytes=(0.0,),
    )
    block = BlockGroup(name="Block", count=4, parameters=256, output_bytes=(0.0,), width=8)
    profile = LengthProfile(
        name="small.full",
        description="by hand",
        sample="sequence of {length} tokens",
        lengths=lengths,
        batch_sizes=(2, 4, 8, 32),
        parameters=256,
        trainable_parameters=256,
        ops=(
            LengthOp(
                example=mm,
                flops=((0.0,), (0.0, 10.0, 3.0)),
                moved_bytes=((7.0,),),
                shapes=((((0.0,), (0.0, 1.0)), ((64.0,),)),),
            ),
        ),
        history=_history(),
        structure=LengthStructure(
            blocks=(block,),
            outputs=(((0.0,), (0.0, 16.0)),),
            gradient_bytes=512.0,
            ready={64: (0.2,) * 16, 256: (0.4,) * 16},
        ),
        issued_ops=2.0,
        traced_on="2026-11-18",
        versions={"torch": "2.13.0"},
    )
    return replace(profile, shares=allocator_shares(profile))


def test_amounts_are_polynomials_in_batch_and_length():
    op = _profile().at(100).at(3).ops[0]
    # 3 x (10 x 100 + 3 x 100 x 100); 3 x 100 rows of 64
    assert op.flops == 3 * (1000 + 30_000)
    assert (op.moved_bytes, op.count, op.shapes) == (7, 2, ((300, 64),))
    assert polynomial_at(((5.0,), (0.0, 2.0)), 10) == (5.0, 20.0)


def test_memory_is_that_of_the_highest_moment():
    memory = _profile().at(100).memory_at(3)
    # 1 KiB, and of 300 tokens 1 and 2 KiB
    assert memory == Memory(
        parameters=KIB,
        gradients=0,
        optimizer_state=0,
        inputs=0,
        activations=300 * KIB,
        temporaries=600 * KIB,
    )


def test_structure_and_sample_follow_the_length():
    profile = _profile().at(160)
    assert profile.sample == "sequence of 160 tokens"
    assert profile.structure is not None
    assert profile.structure.blocks[0].output_bytes == (0.0, 16 * 160)
    # half the way from 64 to 256
    assert profile.structure.ready == (0.3,) * 16


def test_a_length_beyond_the_traced_is_drawn_on_and_said_so():
    assert _profile().at(100).notes == ()
    (note,) = _profile().at(1000).notes
    assert note.startswith("Traced at lengths from 64 to 256")
    with pytest.raises(InputError, match="0 is not a length"):
        _profile().at(0)


def test_live_bytes_are_those_of_blocks():
    history = History(sizes=((100.0,), (0.0, 600.0)), events=(0, 1, -1, 1, 1, -1))
    # 100 bytes take a block of 512; then two of 600 b, 1024 at one sample and 1536 at two
    assert live_peak_bytes(history, 1) == 512 + 2 * 1024
    assert live_peak_bytes(history, 2) == 512 + 2 * 1536


def test_the_table_is_of_the_allocator():
    profile = _profile().at(128)
    for batch_size in (1, 8, 40):
        told, simulated = (
            profile.allocator_use_at(batch_size),
            peak_use_and_need(profile.history, batch_size),
        )
        assert told is not None
        assert told.allocated_bytes == pytest.approx(simulated.allocated_bytes, rel=0.01)
        assert told.needed_bytes == pytest.approx(simulated.needed_bytes, rel=0.35)
    assert profile.table_suffices
    assert list(profile.allocator_use)[:3] == [1, 2, 3]
    with pytest.raises(KeyError):
        profile.allocator_use[9_999_999]


def test_a_workspace_that_is_always_taken_has_no_least_batch():
    # traced at a batch of 32, of tensors that say one row
    scores = Workspace(size_bytes=100, condition=with_attention("math", "bf16"))
    assert scores.condition_for(1, 32) == "math bf16"
    # taken from 40 rows on, of 8 at a batch of 32: from 160 samples on
    assert Workspace(size_bytes=1, from_rows=40).condition_for(8, 32) == " from 160"
    assert REFERENCE.workspace_bytes("math bf16", 100, 1) == 0


# Files


def test_round_trip_in_pieces(tmp_path: Path):
    pieces = (_profile(), _profile((257, 1000)))
    write_length_profiles(pieces, tmp_path / "p.json.gz")
    assert read_length_profiles(tmp_path / "p.json.gz") == pieces
    assert read_profile(tmp_path / "p.json.gz", 100).sample == "sequence of 100 tokens"
    # without a length the usual 1024, or the nearest that was traced
    assert read_profile(tmp_path / "p.json.gz").sample == "sequence of 1000 tokens"
    assert [nearest_range([(64, 256), (257, 1000)], n) for n in (1, 256, 257, 5000)] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("part", "value", "why"),
    [
        ("history", None, "A part is missing"),
        ("categories", ["parameters"], "without its category"),
        ("step_start", 99, "without events"),
        ("lengths", [9, 1], "no range of lengths"),
        ("ops", [], "no operations"),
        ("shares", {}, "no shares"),
    ],
)
def test_a_damaged_piece_is_refused(tmp_path: Path, part: str, value: object, why: str):
    path = tmp_path / "p.json"
    write_length_profiles((_profile(),), path)
    content = json.loads(path.read_text())
    (piece,) = content["pieces"]
    (piece["history"] if part in ("categories", "step_start") else piece)[part] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=why):
        read_profile(path, 100)


def test_no_pieces_and_no_lengths(tmp_path: Path):
    path = tmp_path / "p.json"
    write_length_profiles((), path)
    with pytest.raises(InputError, match="It has no pieces"):
        read_profile(path)
    write_profile(find_profile("resnet50"), path)
    with pytest.raises(InputError, match="no step at any length"):
        read_length_profiles(path)
    for name in (str(path), "resnet50"):
        with pytest.raises(InputError, match="has no other length than its own"):
            find_profile(name, 100)


# Those that are bundled


def test_names_say_what_was_set():
    assert step_name("gpt2", "full") == "gpt2.full"
    settings = {"lora_targets": ("q_proj", "v_proj"), "checkpointing": False}
    name = step_name("gpt2", "lora", settings)
    assert name == "gpt2.lora.checkpointing-no.lora_targets-q_proj-v_proj"
    with pytest.raises(NotKnown, match="No profile is known as 'gpt2.ful'"):
        find_profile("gpt2.ful", 512)


@pytest.mark.parametrize("name", [n for n in bundled_model_profiles() if ".qlora" in n])
def test_a_gpu_never_has_the_whole_of_a_model_that_is_packed(name: str):
    profile = find_profile(name, 512)
    use = profile.allocator_use_at(1)
    assert use is not None
    assert use.allocated_bytes <= 1.01 * profile.memory_at(1).peak_bytes


def has_length(name: str) -> bool:
    """Whether a bundled step takes texts: at any length."""
    return any(constant.name == "tokens" for constant in find_recipe(name_parts(name)[1]).constants)


def name_parts(name: str) -> tuple[str, str]:
    """The model and the method of a bundled step: points are in names of models, too."""
    model = max((m.name for m in bundled_models() if name.startswith(f"{m.name}.")), key=len)
    return model, name.removeprefix(f"{model}.").partition(".")[0]


@pytest.mark.parametrize("name", bundled_model_profiles())
def test_a_bundled_step_is_read_in_no_time(name: str):
    times_s = []
    for length in (500, 1024, 2048) if has_length(name) else (None, None, None):
        started_s = time.process_time()
        read_profile(DATA / "model_profiles" / f"{name}.json.gz", length)
        times_s.append(time.process_time() - started_s)
    assert min(times_s) < 0.3
    profile = find_profile(name, 1000 if has_length(name) else None)
    assert profile.name == name
    assert profile.history is not None
    one, two = (profile.at(batch_size) for batch_size in (1, 2))
    power = 2 if ".embedding" in name else 1  # each text is compared with all of the batch
    assert one.flops < two.flops <= 2**power * one.flops
    # of libraries, convolutions of a single image take the larger workspaces
    one_bytes, two_bytes = (each.memory.peak_bytes - each.memory.workspace for each in (one, two))
    assert one_bytes < two_bytes
