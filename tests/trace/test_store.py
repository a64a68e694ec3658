from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from outlay.errors import InputError
from outlay.trace.profile import AllocatorUse, History, Memory, Profile, ProfileOp
from outlay.trace.store import find_profile, profile_to_json, read_profile, write_profile

if TYPE_CHECKING:
    from pathlib import Path


def _memory(scale: float) -> Memory:
    return Memory(
        parameters=1024,
        gradients=1024,
        optimizer_state=2048,
        inputs=512 * scale,
        activations=4096 * scale,
        temporaries=0,
    )


def _profile(ops: int = 2) -> Profile:
    rows = [
        ProfileOp(
            name="aten.mm",
            kind="gemm",
            phase="forward",
            precision="bf16",
            count=1.5,
            flops=(0.0, 3.5, float(i)),
            moved_bytes=(7.0,),
            launches=2,
            layout="channels_last",
            shapes=(((0.0, 1.0), (64.0,)), ()),
        )
        for i in range(ops)
    ]
    return Profile(
        name="mine",
        description="Zwei Äpfel",
        sample="image 32x32",
        parameters=256,
        trainable_parameters=200,
        ops=tuple(rows),
        memory={2: _memory(2), 16: _memory(16), 4: _memory(4)},
        issued_ops=12.25,
        allocator_use={
            2: AllocatorUse(allocated_bytes=1e4, reserved_bytes=2e4, needed_bytes=1.5e4)
        },
        history=History(
            sizes=((512.0,), (0.0, 2.5)), events=(0, 1, -1, 0), optional=frozenset({1})
        ),
        period=4,
        traced_on="2026-11-15",
        versions={"torch": "2.13.0"},
        unknown_ops={"mine.op": 0.25},
        notes=("a note",),
    )


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    write_profile(_profile(), tmp_path / name)
    assert read_profile(tmp_path / name) == _profile()


def test_same_profile_same_bytes(tmp_path: Path) -> None:
    for name in ("a.json.gz", "b.json.gz"):
        write_profile(_profile(), tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_json_is_plain_and_compact() -> None:
    content = profile_to_json(_profile())
    assert content["schema"] == 1
    assert list(content["memory"]) == ["2", "4", "16"]
    assert content["ops"][0]["flops"] == [0, 3.5, 0]
    assert content["ops"][0]["moved_bytes"] == 7
    assert content["ops"][0]["shapes"] == [[[0, 1], 64], []]


def test_reading_a_thousand_operations_takes_no_time(tmp_path: Path) -> None:
    write_profile(_profile(1000), tmp_path / "p.json.gz")
    times_s = []
    for _ in range(5):  # of the processor: other work on the machine is not the reader's
        started_s = time.process_time()
        read_profile(tmp_path / "p.json.gz")
        times_s.append(time.process_time() - started_s)
    assert min(times_s) < 0.05


def test_reading_does_not_import_torch(tmp_path: Path) -> None:
    write_profile(_profile(), tmp_path / "p.json")
    code = (
        "import sys; from outlay.trace.store import read_profile; "
        f"read_profile({str(tmp_path / 'p.json')!r}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no profile .*none\.json"):
        read_profile(tmp_path / "none.json")


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_truncated_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_profile(_profile(), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be read as a profile"):
        read_profile(path)


@pytest.mark.parametrize("content", [b"", b"\x00\xff binary", b"[1, 2]", b'{"schema": 1}'])
def test_foreign_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.json").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as a profile"):
        read_profile(tmp_path / "p.json")


def test_corrupt_gzip(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b'{"schema": 1}' * 100))
    data[20] ^= 0xFF
    (tmp_path / "p.json.gz").write_bytes(bytes(data))
    with pytest.raises(InputError, match="cannot be read as a profile"):
        read_profile(tmp_path / "p.json.gz")


def test_a_later_schema_is_named(tmp_path: Path) -> None:
    content = {**profile_to_json(_profile()), "schema": 9}
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="has schema 9; this outlay reads 1"):
        read_profile(tmp_path / "p.json")


@pytest.mark.parametrize("part", ["ops", "memory", "parameters"])
def test_a_missing_part_is_named(tmp_path: Path, part: str) -> None:
    content = profile_to_json(_profile())
    del content[part]
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=part):
        read_profile(tmp_path / "p.json")


def test_a_field_of_a_later_version_is_no_reason_to_guess(tmp_path: Path) -> None:
    content = profile_to_json(_profile())
    content["ops"][0]["colour"] = "red"
    (tmp_path / "p.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="colour"):
        read_profile(tmp_path / "p.json")


def test_a_profile_without_history_is_read(tmp_path: Path) -> None:
    content = profile_to_json(_profile())
    del content["history"]
    del content["held"]["2"]["needed_bytes"]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    profile = read_profile(path)
    assert profile.history is None
    assert profile.allocator_use[2] == AllocatorUse(allocated_bytes=1e4, reserved_bytes=2e4)


@pytest.mark.parametrize("events", [[2], [0, -1, -1], [0, -2], [-1]])
def test_a_history_must_make_sense(tmp_path: Path, events: list[int]) -> None:
    content = profile_to_json(_profile())
    content["history"]["events"] = events
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="cannot be read as a profile"):
        read_profile(path)


def test_operators_of_extensions_are_told_from_pytorchs_own():
    assert find_profile("resnet50").custom_ops == ()
    assert find_profile("stylenat").custom_ops == (
        "outlay_examples.neighborhood_attention",
        "outlay_examples.neighborhood_attention_backward",
    )
