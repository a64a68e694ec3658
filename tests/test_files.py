"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlay.errors import InputError
from outlay.files import check_folder, free_path, read_data, write_whole


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.txt"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_in_which_one_may_not_write_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda _path, _mode: False)
    with pytest.raises(InputError, match="you may not write in"):
        check_folder(tmp_path / "a.txt")
    check_folder(Path("/dev/null"))  # written directly, not by a draft beside it


def test_a_free_name_is_one_that_nothing_has(tmp_path):
    assert free_path(tmp_path / "a.b", ".json").name == "a.b.json"
    (tmp_path / "a.b.json").touch()
    (tmp_path / "a.b-2.json").symlink_to(tmp_path / "nothing")
    assert free_path(tmp_path / "a.b", ".json").name == "a.b-3.json"


def test_what_has_no_end_is_not_read_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr("outlay.files.LARGEST_BYTES", 2**20)
    path = tmp_path / "large"
    path.write_bytes(bytes(2**20))
    assert len(read_data(path)) == 2**20
    path.write_bytes(bytes(2**20 + 1))
    with pytest.raises(ValueError, match="more than 1 MiB"):
        read_data(path)
