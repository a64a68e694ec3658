"""`outlay advise`: sums of buying and renting, figures people gave, bad input, the documents."""

from __future__ import annotations

import jsonschema
import pytest

WHOLE_STEPS = 1.8e-4
"""The last step of a session is a whole one: up to 0.7 s more of 5 h, or 2.6 s of 4 h."""
HEAD = """
[step]
profile = "resnet50"
[length]
epochs = 1
[data]
samples = 1_000
[usage]
setup = "0.001s"
[consider]
bundled = false
"""
LAB = f"""{HEAD}
[[offer]]
provider = "on demand"
gpu = "RTX 3090"
price_per_hour = 2.14
[[offer]]
provider = "spot"
gpu = "RTX 3090"
spot_per_hour = 0.90
interruptions_per_month = 0
[[machine]]
name = "desktop"
gpu = "RTX 3090"
purchase = 2200
resale = 0
use = "1000h"
electricity_per_kwh = 0.12
host_watts = 100
"""
HOBBY = f"""{HEAD}
[[offer]]
provider = "gcp"
instance = "deep-learning VM"
gpu = "T4"
spot_per_hour = 0.11
interruptions_per_month = 0
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "outlay.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def advice(outlay, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")  # 2026-11-15

    def advise(*arguments, code=0):
        ended = outlay("advise", *arguments, "--json")
        assert (ended.code, ended.err) == (code, "")
        return ended.document["advice"]

    return advise


def ways(document):
    return {way["kind"]: way for way in document["ways"]}


def even(document, buy, against):
    [found] = [
        one
        for one in document["break_even"]
        if one["buy"] == buy and one["rent"].startswith(against)
    ]
    return found


def test_the_lab_desktop_breaks_even_as_its_own_sum_says(advice, file):
    found = advice("--workload", file(LAB), "--usage", "15%", "--hours-on", "RTX 3090")
    # (350 + 100) W x $0.12/kWh = $0.054/h
    demand, spot = even(found, "desktop", "on demand"), even(found, "desktop", "spot")
    assert demand["owned_usd_per_hour"] == pytest.approx(0.054)
    # 2200 / (2.14 - 0.054) = 1054.65 h; at 0.15 x 24 h a day 293 days
    assert demand["hours"] == pytest.approx(2200 / (2.14 - 0.054))
    assert demand["months"] * 30 == pytest.approx(292.96, rel=WHOLE_STEPS)
    # 2200 / (0.90 - 0.054) = 2600.5 h: 722 days
    assert spot["months"] * 30 == pytest.approx(722.35, rel=WHOLE_STEPS)


def test_a_month_of_a_purchase_is_its_share_and_the_electricity(advice, file):
    arguments = ("--workload", file(LAB), "--usage", "15%", "--hours-on", "RTX 3090")
    found = advice(*arguments, "--months", 36, "--budget", 100_000)
    desktop = even(found, "desktop", "on demand")
    # Bought: 2200 / 36 months + 108 h x $0.054 = $66.94; rented 108 h x $2.14 = $231.12
    assert ways(found)["on demand"]["usd_per_month"]["likely"] == pytest.approx(
        231.12, rel=WHOLE_STEPS
    )
    assert ways(found)["spot"]["usd_per_month"]["likely"] == pytest.approx(97.20, rel=WHOLE_STEPS)
    assert desktop["buying_is_cheaper"]


def test_a_year_or_less_of_the_lab_is_cheaper_as_spot(advice, file):
    arguments = ("--workload", file(LAB), "--usage", "15%", "--hours-on", "RTX 3090")
    assert not even(advice(*arguments, "--months", 12), "desktop", "spot")["buying_is_cheaper"]
    assert even(advice(*arguments, "--months", 25), "desktop", "spot")["buying_is_cheaper"]


def test_four_hours_a_day_on_a_spot_t4(advice, file):
    found = advice("--workload", file(HOBBY), "--usage", "4h/day", "--hours-on", "T4")
    # 120 h x $0.11 = $13.20 a month
    assert found["chosen"]["kind"] == "spot"
    assert found["chosen"]["usd_per_month"]["likely"] == pytest.approx(13.20, rel=WHOLE_STEPS)
    assert found["chosen"]["busy_hours_per_month"] == pytest.approx(120, rel=WHOLE_STEPS)
    assert found["usage"]["busy_fraction"] == pytest.approx(4 / 24)
    rule = next(one for one in found["rules"] if one["rule"].startswith("24/7"))
    assert (rule["says"], rule["holds"]) == ("spot", True)


def test_what_does_not_load_on_the_old_card_is_not_kept_on_it(advice):
    found = advice("--purpose", "image generation", "--own", "GTX 1080", "--usage", "2h/day")
    assert "keep" not in ways(found)
    bought = ways(found)["buy used"]
    # Only the card is bought where a desktop is there.
    assert bought["upfront_usd"] == pytest.approx(bought["card"]["price_usd"])


def test_hours_on_the_card_one_has_count_on_it(advice):
    found = advice("--purpose", "first steps", "--own", "RTX 3060", "--usage", "2h/day")
    assert found["usage"]["counted_on"] == "RTX 3060"
    keep = ways(found)["keep"]
    # 60 h and a minute of warm-up in each of 30 sessions, (170 + 100) W x $0.1872/kWh
    assert keep["busy_hours_per_month"] == pytest.approx(60.5, rel=WHOLE_STEPS)
    assert keep["usd_per_month"]["likely"] == pytest.approx(60.5 * 0.27 * 0.1872, rel=WHOLE_STEPS)
    assert keep["upfront_usd"] == 0


def test_the_purse_allows_a_purchase_at_once_and_rent_by_the_month(advice):
    arguments = ("--purpose", "kaggle", "--usage", "2h/day", "--months", 24)
    found = advice(*arguments, "--budget", 1300)
    for way in found["ways"]:
        if way["why_not"] is None:
            assert way["upfront_usd"] <= 1300
            assert way["upfront_usd"] or way["usd_per_month"]["likely"] <= 1300 / 24
    assert found["chosen"]["why_not"] is None
    cheapest = [way for way in found["ways"] if way["why_not"] is None]
    assert found["chosen"] == min(cheapest, key=lambda way: way["usd_per_month"]["likely"])


def test_break_even_is_purchase_less_resale_over_rent_less_electricity(advice):
    found = advice("--purpose", "nlp", "--usage", "24/7", "--no-used")
    for one in found["break_even"]:
        gain = one["rented_usd_per_hour"] - one["owned_usd_per_hour"]
        assert one["hours"] == pytest.approx((one["purchase_usd"] - one["resale_usd"]) / gain)
        # 24/7 is 720 h a month on the reference, longer on a slower card
        assert one["hours_per_day"] == pytest.approx(24 * one["months"] / 24)
    assert "buy used" not in ways(found)


def test_nothing_within_the_purse_exits_with_3(advice, file):
    found = advice(
        "--workload", file(LAB), "--usage", "24/7", "--budget", 1, "--hours-on", "RTX 3090", code=3
    )
    assert found["chosen"] is None
    assert all(way["why_not"] for way in found["ways"])


def test_a_small_purse_is_told_what_it_does_for(outlay, file):
    path = file(HOBBY)
    asked = ("--workload", path, "--usage", "4h/day", "--hours-on", "T4", "--budget", 132)
    ended = outlay("advise", *asked, "--months", 20)
    # $13.20 a month where the budget has 132 / 20 = $6.60: half of the 4 h a day
    assert ended.code == 3
    said = " ".join(ended.out.split())
    assert "for a budget of $264.0" in said  # 20 x $13.20, and a whole last step each session
    assert "your budget buys 2.0 h a day there instead of 4.0" in said


def test_won_are_dollars_at_a_dated_rate(outlay, advice):
    found = advice("--purpose", "startup", "--budget", 7_500_000, "--currency", "KRW", "--gpus", 2)
    assert 3_000 < found["budget_usd"] < 9_000
    assert all(way["option"]["gpus"] <= 2 for way in found["ways"])


def test_a_cluster_is_rented_and_says_why_nothing_is_bought(advice):
    found = advice("--purpose", "cluster", "--usage", "60%")
    assert found["gpus"] == 8
    assert not {"buy new", "buy used"} & set(ways(found))
    assert any("server" in caveat for caveat in found["caveats"])


def test_documents_validate(outlay, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")
    schema = outlay("schema", "advise").document
    asked = ("advise", "--purpose", "kaggle", "--usage", "2h/day", "--json")
    jsonschema.validate(outlay(*asked).document, schema)
    jsonschema.validate(outlay("advise", "--ask", "share", "--json").document, schema)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--purpose", "kagle"), "kaggle"),
        (("--purpose", "kaggle", "--usage", "often"), "2h/day"),
        (("--purpose", "kaggle", "--usage", "30h/day"), "720 h"),
        (("--purpose", "kaggle", "--own", "RTX 3091"), "RTX 3090"),
        (("--purpose", "kaggle", "--hours-on", "T5"), "T5"),
        (("--purpose", "kaggle", "--country", "atlantis"), "us"),
        (("--purpose", "kaggle", "--currency", "WON"), "currency"),
        (("--purpose", "kaggle", "--region", "moon"), "region"),
        (("--purpose", "kaggle", "--profile", "resnet50"), "one of"),
        (("--usage", "2h/day"), "--purpose"),
        (("--profile", "resnet5"), "resnet50"),
        (("--workload", "nowhere.toml"), "nowhere.toml"),
        (("--purpose", "kaggle", "--budget", "-5"), "budget"),
        (("--purpose", "kaggle", "--months", "0"), "months"),
        (("--ask", "tflop"), "tflops"),
        (("--ask", "colab"), "docs/faq.md#how-long-do-colabs-units-last"),
        (("--ask", "upload", "--size", "900"), "900"),
    ],
)
def test_bad_input_says_what_and_exits_with_2(outlay, arguments, said):
    ended = outlay("advise", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err


def test_the_answer_comes_first(outlay, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")
    ended = outlay("advise", "--purpose", "kaggle", "--usage", "2h/day", "--budget", 2000)
    lines = ended.out.splitlines()
    assert lines[0].startswith(("Rent", "Buy", "Keep", "Use"))
    assert "a month" in lines[1]
    assert max(map(len, lines)) <= 120
    for head in ("Ways to get", "When the other way", "Before you take it", "Cards to avoid"):
        assert head in ended.out


def test_asked_without_words_it_shows_its_help(outlay):
    assert "--purpose" in outlay("advise").err


def test_cards_are_within_the_purse_cheapest_month_first(advice):
    found = advice("--purpose", "nlp", "--usage", "24/7", "--budget", 4000)
    months = [way["expected_usd_per_month"] for way in found["cards"]]
    assert months == sorted(months)
    for way in found["cards"]:
        assert way["upfront_usd"] <= 4000
        assert way["why_not"] is None or way["why_not"].startswith("too slow")
    # The reference is busy all month, so that a slower card cannot do all of its work.
    slow = [way for way in found["cards"] if way["busy_hours_per_month"] > 1.05 * 720]
    assert slow
    assert all(way["why_not"] for way in slow)


@pytest.mark.parametrize("width", [80, 120])
def test_no_figure_is_cut(width, monkeypatch, outlay):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1794700800")
    monkeypatch.setenv("COLUMNS", str(width))
    asked = ("advise", "--purpose", "nlp", "--usage", "24/7", "--budget", 4000)
    text, found = outlay(*asked).out, outlay(*asked, "--json").document["advice"]
    assert max(map(len, text.splitlines())) <= width
    for way in found["ways"]:
        assert f"{way['kind']} " in text
        if way["usd_per_month"]["likely"] < 1000:
            assert f"${way['usd_per_month']['likely']:,.2f}" in text
