"""What a callback does with its result: nothing that goes wrong may cost it, or the user's run."""

from __future__ import annotations

from types import SimpleNamespace

from tests.measured import a_measurement

from outlay.inline.callback import FitProbe
from outlay.measurement.file import read_measurement


def test_a_result_that_cannot_be_written_is_saved_elsewhere(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))
    folder = tmp_path / "folder"
    folder.mkdir()
    probe = FitProbe(json=folder / "probe.json")
    folder.rmdir()
    measurement = a_measurement()
    probe._save_and_print(SimpleNamespace(measurement=measurement))
    said = capsys.readouterr()
    (kept,) = (tmp_path / "data" / "measurements").iterdir()
    assert read_measurement(kept) == measurement
    assert "probe.json cannot be written" in said.err
    assert f"was saved as {kept} instead" in said.err
    assert kept.name in said.out.replace("\n", "")
