"""`outlay prices history` and `outlay prices changes`: what they print, write and refuse."""

from __future__ import annotations

from contextlib import nullcontext

import jsonschema
import pytest
from tests.prices.past_prices import KeptPrices, price

from outlay.cli import prices
from outlay.prices.history import good_time, price_history
from outlay.prices.price_changes import price_changes
from outlay.report.documents import dumps
from outlay.report.price_report import changes_document, history_document
from outlay.report.schemas import schema

DAY = "2026-11-15"  # of `that_day`


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Nothing was ever refreshed."""
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path))


@pytest.fixture
def kept(monkeypatch):
    """Put changes of prices in the place of the store."""

    def keep(*changes):
        store = KeptPrices(changes)
        monkeypatch.setattr(prices, "kept_prices", lambda: nullcontext(store))
        return store

    return keep


# --- history ---


def test_history_shows_charts_a_table_and_whether_now_is_a_good_time(outlay):
    ended = outlay("prices", "history", "A100 80GB")
    assert (ended.code, ended.err) == (0, "")
    for words in (
        "A100 80GB: dollars for a GPU-hour, 2022-10 to 2026-08",
        "On demand",
        "Spot",
        "Is now a good time?",
        "Waiting 3 months: cheaper in",
        "that is no forecast",
        '"A100 80GB" leaves the form open: A100 80GB PCIe and A100 80GB SXM count',
        'Not counted, as "suspiciously cheap": gcp on-demand 2025-02 to 2026-07',
        "`outlay prices refresh` renews it",
    ):
        assert words in ended.out
    assert max(map(len, ended.out.splitlines())) <= 120
    assert any("⠉" <= letter <= "⣿" for letter in ended.out)


def test_history_in_ascii_where_the_terminal_cannot(outlay, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    ended = outlay("prices", "history", "A100 80GB", "--on-demand")
    assert ended.code == 0
    assert ended.out.isascii()
    assert "***" in ended.out
    assert "Spot" not in ended.out


def test_history_as_json_is_what_the_library_gives(outlay):
    ended = outlay("prices", "history", "l4", "--provider", "GCP", "--since", "2026-01", "--json")
    assert (ended.code, ended.err) == (0, "")
    jsonschema.validate(ended.document, schema("prices-history"))
    history = price_history("L4", provider="gcp")
    times = [good_time(history, tenancy, DAY) for tenancy in ("on-demand", "spot")]
    shown = price_history("L4", provider="gcp", since="2026-01")
    assert ended.out == dumps(history_document(shown, times, "2026-01", "")) + "\n"
    assert {series["provider"] for series in ended.document["series"]} == {"", "gcp"}


def test_history_of_one_count_and_tenancy(outlay):
    document = outlay(
        "prices", "history", "A100 40GB SXM", "--gpus", 16, "--on-demand", "--json"
    ).document
    assert document["machine_gpus"] == 16
    assert {series["tenancy"] for series in document["series"]} == {"on-demand"}
    assert {time["tenancy"] for time in document["good_time"]} == {"on-demand"}


def test_history_up_to_a_day_is_judged_on_it(outlay):
    ended = outlay("prices", "history", "H100 SXM", "--until", "2025-06")
    assert "2023-07 to 2025-06" in ended.out
    assert "2025-06-30) is" in ended.out
    assert "renews it" not in ended.out


def test_history_has_what_was_refreshed(outlay, kept):
    kept(price("2026-11-14", 1.5, provider="verda"))
    ended = outlay("prices", "history", "H100 SXM", "--provider", "verda", "--on-demand")
    assert "On demand: $1.50 (verda, 2026-11-14)" in ended.out
    assert "renews it" not in ended.out


def test_history_that_is_thin_says_so(outlay, kept):
    kept(price("2026-11-14", 1.5, gpu="B300", provider="nebius"))
    ended = outlay("prices", "history", "B300", "--provider", "nebius", "--on-demand")
    assert "Too little history to say whether that is low" in ended.out
    assert "Waiting 6 months: too little history to say" in ended.out


def test_a_price_that_is_not_of_today_is_said_to_be_old(outlay):
    ended = outlay("prices", "history", "RTX 4090", "--spot")
    assert "Spot: the newest price known is $0.50 (runpod, 2026-04-30)" in ended.out
    assert "none is known to stand today" in " ".join(ended.out.split())


def test_a_gpu_without_history_is_said_and_is_no_error(outlay):
    ended = outlay("prices", "history", "GTX 1070 Ti")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("No past price of GTX 1070 Ti is known")
    document = outlay("prices", "history", "GTX 1070 Ti", "--json").document
    assert (document["series"], document["good_time"]) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["H900"], "No GPU is known as 'H900'"),
        (["H100", "--provider", "lamda"], "No provider is known as 'lamda'"),
        (["H100", "--since", "2025-13"], "--since '2025-13' is no day or month of the past"),
        (["H100", "--since", "2026-12-01"], "is no day or month of the past"),
        (["H100", "--until", "June"], "--until 'June' is no day or month"),
        (["H100", "--gpus", "0"], "--gpus"),
        (["H100", "--plot", "a.gif"], "a.gif is no .html, .svg or .png file"),
        (["H100", "--plot", "nowhere/a.html"], "there is no folder nowhere"),
    ],
)
def test_bad_input_ends_with_2_and_a_message(outlay, arguments, said):
    ended = outlay("prices", "history", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert ended.out == ""


@pytest.mark.parametrize(
    ("ending", "begins"), [("html", b"<!DOCTYPE html>"), ("svg", b"<svg "), ("png", b"\x89PNG")]
)
def test_a_picture_is_written_in_the_form_of_its_ending(outlay, tmp_path, ending, begins):
    path = tmp_path / f"h100.{ending}"
    ended = outlay("prices", "history", "H100 SXM", "--plot", path)
    assert ended.code == 0
    assert path.read_bytes().startswith(begins)


def test_a_png_without_matplotlib_ends_with_4_and_the_command(outlay, tmp_path, monkeypatch):
    from outlay.report import svg

    monkeypatch.setattr(svg.importlib.util, "find_spec", lambda _: None)
    ended = outlay("prices", "history", "H100 SXM", "--plot", tmp_path / "h100.png")
    assert ended.code == 4
    assert "pip install matplotlib" in ended.err
    assert ended.out == ""


# --- changes ---


def some_changes():
    return (
        price("2026-10-01", 2.0, 1.0, provider="verda", instance="a"),
        price("2026-10-01", 5.0, provider="verda", instance="b"),
        price("2026-11-01", 2.5, 1.001, provider="verda", instance="a"),
        price("2026-11-01", provider="verda", instance="b"),
        price("2026-11-01", 1.0, provider="vultr", source="gpuhunt"),
    )


def test_changes_show_each_price_and_totals(outlay, kept):
    kept(*some_changes())
    ended = outlay("prices", "changes", "--since", "2026-10-15")
    assert (ended.code, ended.err) == (0, "")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "verda a 1x H100 SXM us-1 on-demand $2.00 $2.50 +25 % skypilot" in lines
    assert "verda b 1x H100 SXM us-1 on-demand $5.00 - gone skypilot" in lines
    assert "verda skypilot 2026-10-01 2026-11-01 1 - - 1 1" in lines
    assert "Shown 2 of 2 changes." in lines
    text = " ".join(lines)
    assert "verda (skypilot): compared with 2026-10-01, the last prices kept before." in text
    assert "vultr (gpuhunt): read once only, on 2026-11-01: nothing to compare." in text


def test_changes_as_json_are_what_the_library_gives(outlay, kept):
    store = kept(*some_changes())
    ended = outlay("prices", "changes", "--since", "2026-10-01", "--min-change", "0", "--json")
    jsonschema.validate(ended.document, schema("prices-changes"))
    changes = price_changes("2026-10-01", min_change=0.0, store=store)
    assert ended.out == dumps(changes_document(changes)) + "\n"
    assert [one["change_fraction"] for one in ended.document["changes"]] == [
        pytest.approx(0.25),
        pytest.approx(0.001),
        None,
    ]


def test_changes_of_a_gpu_a_provider_and_a_size(outlay, kept):
    kept(*some_changes())
    changes = ["prices", "changes", "--since", "2026-10-01", "--json"]
    assert outlay(*changes, "--gpu", "T4").document["changes"] == []
    assert len(outlay(*changes, "--provider", "verda").document["changes"]) == 2
    (gone,) = outlay(*changes, "--min-change", "30%").document["changes"]
    assert gone["kind"] == "gone"
    assert "Shown 1 of 2" in outlay(*changes[:-1], "--max-changes", 1).out


def test_a_time_tells_two_refreshes_of_a_day_apart(outlay, kept):
    kept(price("2026-11-01T08:00:00Z", 2.0), price("2026-11-01T20:00:00Z", 3.0))
    noon = outlay("prices", "changes", "--since", "2026-11-01T13:00:00+01:00", "--json").document
    assert noon["since"] == "2026-11-01T12:00:00Z"
    assert [one["before_usd_per_hour"] for one in noon["changes"]] == [2.0]


def test_changes_without_any_refresh_are_said(outlay):
    ended = outlay("prices", "changes", "--since", "2026-06-01")
    assert ended.code == 0
    assert ended.out.startswith("No prices were refreshed here yet")
    assert outlay("prices", "changes", "--since", "2026-06-01", "--json").document["totals"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--since"),
        (["--since", "yesterday"], "is no day or month of the past"),
        (["--since", ""], "is no day or month of the past"),
        (["--since", "2026-10-01T99"], "is no time"),
        (["--since", "2027-01-01"], "is no day or month of the past"),
        (["--since", "2026-10-01", "--min-change", "much"], "is no share"),
        (["--since", "2026-10-01", "--min-change", "-1%"], "is no share"),
        (["--since", "2026-10-01", "--min-change", "nan"], "is no share"),
        (["--since", "2026-10-01", "--gpu", "H900"], "No GPU is known as 'H900'"),
    ],
)
def test_bad_input_of_changes_ends_with_2_and_a_message(outlay, kept, arguments, said):
    kept(price("2026-10-01", 2.0))
    ended = outlay("prices", "changes", *arguments)
    assert ended.code == 2
    assert said in ended.err
