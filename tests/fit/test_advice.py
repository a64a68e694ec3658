from __future__ import annotations

import pytest

from outlay.fit import variants
from outlay.fit.advice import ADVICE, PLACE_OF, advice_for, places_in

SCRIPT = """
import torch

def step(batch_size):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def run():
        loss = model(torch.randn(batch_size, 8)).sum()
        loss.backward()
        optimizer.step()

    return run
"""


@pytest.mark.parametrize("kind", [*variants.SINGLE, variants.PAGED, variants.ACCUMULATE])
def test_every_change_says_what_to_write(kind):
    assert advice_for(kind).lines


@pytest.mark.parametrize("kind", list(variants.SPREAD))
def test_every_way_to_spread_says_what_to_write(kind):
    assert advice_for(kind).lines


def test_places_belong_to_known_changes():
    assert set(PLACE_OF) <= set(ADVICE)


def test_the_lines_of_a_file(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    assert places_in(path, "step") == {
        "optimizer": "train.py:6  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        "backward": "train.py:10  loss.backward()",
    }


@pytest.mark.parametrize("text", ["def (", "\0"])
def test_a_file_that_cannot_be_read_has_no_lines(tmp_path, text):
    path = tmp_path / "train.py"
    path.write_text(text)
    assert places_in(path, "step") == {}
    assert places_in(tmp_path / "nothing.py", "step") == {}


def test_lines_of_other_steps_are_not_named(tmp_path):
    path = tmp_path / "train.py"
    other = SCRIPT.replace("def step", "def other").replace("import torch", "")
    path.write_text(SCRIPT + other)
    assert (
        places_in(path, "other")["backward"] == "train.py:23  loss.backward()"
    )  # 13 lines further down
    # a step made elsewhere: two places, and no telling which
    path.write_text(SCRIPT + other + "def third(batch_size):\n    return make(batch_size)\n")
    assert places_in(path, "third") == {}
