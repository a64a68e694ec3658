"""Cards to avoid, and going up in steps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from outlay.advise.cards import (
    cards,
    device_times_s,
    dominated_cards,
    fitting_profiles,
    least_ratio,
)
from outlay.advise.recommendation import upgrade_path
from outlay.facts import NOTHING_IMPORTED
from outlay.hardware.gpus import gpus

TODAY = "2026-11-15"


def test_who_beats_a_card_is_at_least_as_good_in_everything():
    found = dominated_cards(TODAY)
    assert found
    for one in found:
        assert one.better.listed_usd <= one.card.listed_usd
        assert one.better.gpu.memory_bytes >= one.card.gpu.memory_bytes
        pairs = zip(
            device_times_s(one.better.gpu.name), device_times_s(one.card.gpu.name), strict=True
        )
        assert all(fast <= slow * 1.001 for fast, slow in pairs)
        assert one.better.gpu is not one.card.gpu


def test_leftover_gtx_1080_is_beaten_and_a_cheap_card_is_not():
    names = {(one.card.gpu.name, one.card.condition) for one in dominated_cards(TODAY)}
    assert ("GTX 1080", "new") in names  # $499, with a used RTX 3080 Ti at $453
    assert ("RTX 4060", "used") not in names  # nothing costs less


def test_a_used_card_beats_a_new_one_only_where_that_is_leftover():
    for one in dominated_cards(TODAY):
        assert one.better.condition == "new" or one.card.condition == "used" or one.card.is_leftover


def test_ratio_is_the_least_over_the_profiles():
    table = gpus()
    assert least_ratio(table["H100 SXM"], table["T4"]) > 3
    assert least_ratio(table["T4"], table["T4"]) == 1


def test_profiles_that_fit():
    # 860 million parameters x (4 + 4 + 8) bytes of weights, gradients and Adam = 13.8 GB
    fits, too_big = fitting_profiles("RTX 3080")
    assert "latent-diffusion-unet" in too_big
    assert "resnet50" in fits
    assert fitting_profiles("H200")[1] == ()


def way(name, hours):
    [card] = [one for one in cards(TODAY) if one.name == name]
    return SimpleNamespace(card=card, upfront_usd=card.listed_usd, busy_hours=hours)


def asked(**changes):
    usual = {"budget_usd": None, "years": 2.0, "months": 24, "gpus": 1, "today": TODAY}
    return SimpleNamespace(**{**usual, "imported": NOTHING_IMPORTED, **changes})


def test_small_first_then_bigger():
    path = upgrade_path([way("used RTX 3080", 80), way("used RTX 3090", 60)], asked())
    # In the end either way sells a 3090 of two years: 1207 x 0.92^2 x 0.9 = 919.44432.
    # At once: 1207 - 919.44432 = 287.55568.
    assert path.at_once_usd == pytest.approx(287.55568)
    # In steps: 322 - 322 x 0.92 x 0.9, then a 3090 at 1207 x 0.92 = 1110.44, less 919.44432:
    # 322 - 266.616 + 1110.44 - 919.44432 = 246.37968; 287.55568 - 246.37968 = 41.176.
    assert path.in_steps_usd == pytest.approx(246.37968)
    assert path.saved_usd == pytest.approx(41.176)
    assert path.speed_ratio == pytest.approx(80 / 60)


@pytest.mark.parametrize(
    ("ways", "budget_usd"),
    [
        ([("used RTX 3080", 80)], None),
        ([("used RTX 3080", 80), ("used RTX 3090", 75)], None),  # hardly faster
        ([("used RTX 3080", 80), ("used RTX 3090", 60)], 1000),  # out of the purse
    ],
)
def test_no_step_up_where_nothing_is_bigger(ways, budget_usd):
    assert upgrade_path([way(*one) for one in ways], asked(budget_usd=budget_usd)) is None
