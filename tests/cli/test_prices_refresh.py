"""`outlay prices refresh`, and plans with what it brought."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.prices.stand_in import StandIn, folder_in_memory, rows, stand_in_for_others

from outlay.errors import MissingCredentials, ProviderError
from outlay.offers.catalog import snapshot_offers
from outlay.prices import refresh
from outlay.report.schemas import schema

NO_KEY = MissingCredentials("Vultr needs a key.", fix="Set VULTR_API_KEY.")


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_in_memory() as folder:
        monkeypatch.setenv("OUTLAY_DATA", str(folder))
        monkeypatch.delenv("OUTLAY_OFFLINE", raising=False)
        yield folder


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The only source there is: three providers, one of which wants a key."""
    stand_in_for_others(monkeypatch.setattr)
    answers: dict[str, Any] = {"lambda": rows(2.0), "brandnew": rows(1.0), "vultr": NO_KEY}
    made = StandIn(name="gpuhunt", answers=answers)
    monkeypatch.setattr(refresh, "all_sources", lambda: (made,))
    monkeypatch.setattr(refresh, "all_besides", dict)
    monkeypatch.setattr(refresh, "_network", object)
    return made


def test_a_table_of_what_became_of_each(outlay, source):
    source.answers["aws"] = ProviderError("It gave no prices.", why="No answer (500).")
    source.answers["lambda"] = [*rows(2.0), {"instance": "odd", "gpu": "H900", "price": 9.0}]
    ended = outlay("prices", "refresh")
    assert (ended.code, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].split() == ["SOURCE", "PROVIDER", "STATE", "OFFERS", "AS", "OF", "REASON"]
    assert lines[1].split() == ["gpuhunt", "lambda", "fresh", "3", "2026-11-15"]
    assert lines[2].split() == ["gpuhunt", "brandnew", "fresh", "3", "2026-11-15"]
    assert lines[3].split()[:5] == ["gpuhunt", "aws", "kept", "0", "-"]
    assert lines[3].endswith("It gave no prices. No answer (500).")
    assert lines[4:] == [
        "Refreshed: 2 of 3 lists.",
        "  kept: no answer that could be used: the last good prices stay, if there are any.",
        "New to outlay, without terms (billing, storage, transfer): brandnew.",
        "GPUs that outlay does not know, kept and in no plan: H900.",
        "Not asked, as no key is set: vultr (VULTR_API_KEY).",
    ]


def test_many_names_are_counted(outlay, source):
    odd = [{"instance": f"i{n}", "gpu": f"H9{n:03}", "price": 9.0} for n in range(2000)]
    source.answers = {"lambda": [*rows(2.0), *odd]}
    ended = outlay("prices", "refresh")
    assert "in no plan: H9000, H9001, " in ended.out
    assert " and 1,988 more." in ended.out.replace("\n", " ")
    assert len(ended.out) < 1000
    document = outlay("prices", "refresh", "--json").document
    assert len(document["sources"][0]["unknown_gpus"]) == 2000


def test_rows_that_could_not_be_read_are_said(outlay, source):
    source.answers["lambda"] = [*rows(2.0, 30), "torn"]
    ended = outlay("prices", "refresh")
    said = "lambda (gpuhunt): 1 of 31 rows could not be read: line 30: 'torn'."
    assert said in ended.out.splitlines()


def test_json_is_as_agreed(outlay, source):
    ended = outlay("prices", "refresh", "--json")
    assert (ended.code, ended.err) == (0, "")
    jsonschema.validate(ended.document, schema("prices-refresh"))
    assert ended.document["schema"] == 1
    first, second, third = ended.document["sources"]
    agreed = ("source", "provider", "state", "offers", "as_of", "reason")
    assert [first[key] for key in agreed] == ["gpuhunt", "lambda", "fresh", 3, "2026-11-15", None]
    assert second["is_new_provider"] is True
    assert (third["state"], third["offers"], third["as_of"]) == ("kept", 0, None)
    assert third["reason"] == "Vultr needs a key. Set VULTR_API_KEY."
    assert third["missing_key"] == "VULTR_API_KEY"


def test_what_is_besides_offers_has_no_providers(outlay, source, monkeypatch):
    monkeypatch.setattr(refresh, "all_besides", lambda: {"rates": None})
    ended = outlay("prices", "refresh", "--source", "rates", "--provider", "lambda")
    assert ended.code == 2
    assert "rates cannot be asked about single providers." in ended.err


def test_named_sources_and_providers(outlay, source):
    ended = outlay("prices", "refresh", "--provider", "lambda", "--source", "gpuhunt", "--json")
    assert [one["provider"] for one in ended.document["sources"]] == ["lambda"]
    wrong = outlay("prices", "refresh", "--provider", "lamda")
    assert (wrong.code, wrong.out) == (2, "")
    assert 'Did you mean "lambda"?' in wrong.err
    wrong = outlay("prices", "refresh", "--source", "gpuhnt")
    assert wrong.code == 2
    assert 'Did you mean "gpuhunt"?' in wrong.err


def test_exit_5_where_nothing_could_be_refreshed(outlay, source):
    source.answers = {"lambda": b"<html>", "vultr": NO_KEY}
    ended = outlay("prices", "refresh", "--json")
    assert ended.code == 5
    assert [one["state"] for one in ended.document["sources"]] == ["refused", "kept"]


def test_unchanged_is_refreshed(outlay, source):
    source.answers = {"lambda": rows(2.0)}
    assert outlay("prices", "refresh").code == 0
    ended = outlay("prices", "refresh", "--json")
    assert (ended.code, ended.document["sources"][0]["state"]) == (0, "unchanged")


def test_accept(outlay, source):
    source.answers = {"lambda": rows(2.0)}
    outlay("prices", "refresh")
    source.answers = {"lambda": rows(2.0, 1)}
    assert outlay("prices", "refresh").code == 5
    assert outlay("prices", "refresh", "--accept").code == 0


@pytest.mark.parametrize("how", ["--offline", "OUTLAY_OFFLINE"])
def test_offline_nobody_is_asked(outlay, source, monkeypatch, how):
    arguments = [how] if how.startswith("--") else []
    if not arguments:
        monkeypatch.setenv(how, "1")
    ended = outlay("prices", "refresh", *arguments)
    assert (ended.code, ended.out) == (5, "")
    first, fix = ended.err.splitlines()
    assert first == "outlay: Prices were not refreshed: outlay is offline and asks nobody."
    assert "OUTLAY_OFFLINE" in fix
    assert source.asked == []


def test_offline_set_to_zero_is_online(outlay, source, monkeypatch):
    monkeypatch.setenv("OUTLAY_OFFLINE", "0")
    assert outlay("prices", "refresh").code == 0


def test_progress_where_a_person_is_watching(outlay, source, monkeypatch):
    source.answers = {"lambda": rows(2.0)}
    assert outlay("prices", "refresh", "--json").err == ""
    ended = outlay("prices", "refresh", "--json", "--progress")
    said = ["gpuhunt lambda: unchanged, 3 offers (1 of 1)", "Asking for prices ..."]
    assert ended.err.splitlines() == said
    assert ended.document["sources"][0]["state"] == "unchanged"


def test_a_damaged_file_is_said_and_put_aside(outlay, source, own_folder):
    own_folder.mkdir()
    (own_folder / "prices.sqlite").write_bytes(b"noise" * 1000)
    ended = outlay("prices", "refresh")
    assert ended.code == 0
    assert "prices.sqlite is damaged: it is now" in ended.err
    assert (own_folder / "prices-damaged.sqlite").exists()


def test_a_folder_that_cannot_be_written_is_one_message(outlay, source, own_folder):
    own_folder.write_text("a file")
    ended = outlay("prices", "refresh")
    assert (ended.code, ended.out) == (5, "")
    assert "OUTLAY_DATA" in ended.err


def test_interrupted_it_says_what_was_done(outlay, source):
    def interrupts() -> None:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

    source.answers = {"lambda": rows(2.0), "aws": interrupts}
    ended = outlay("prices", "refresh")
    assert (ended.code, ended.out) == (130, "")
    assert "1 of 2 lists were refreshed and are kept." in ended.err
    source.answers = {"lambda": rows(2.0)}
    again = outlay("prices", "refresh", "--provider", "lambda", "--json")
    assert again.document["sources"][0]["state"] == "unchanged"


# --- plans with it ---

LAMBDA = '[consider]\nproviders = ["lambda"]'


def planned(outlay: Any, workload: Any, *arguments: str) -> Any:
    return outlay("plan", workload(LAMBDA), "--json", "--prices", "newest", *arguments)


def test_a_plan_uses_what_was_refreshed_and_says_its_day(outlay, source, workload):
    assert outlay("prices", "refresh").code == 0
    document = planned(outlay, workload).document
    snapshot = {one.instance for one in snapshot_offers() if one.provider == "lambda"}
    assert not snapshot & {one["instance"] for one in document["options"]}
    boxes = [one for one in document["options"] if one["instance"].startswith("box")]
    assert {one["instance"] for one in boxes} == {"box-0", "box-1", "box-2"}
    assert {one["price_as_of"] for one in boxes} == {"2026-11-15"}
    assert document["prices"]["as_of"] == "2026-11-15"
    assert document["prices"]["age_days"] == 0
    assert document["prices"]["kind"] == "refreshed"


def test_plan_refresh_refreshes_first_and_says_what_failed_on_one_line(outlay, source, workload):
    source.answers["aws"] = b"<html>"
    ended = planned(outlay, workload, "--refresh")
    assert ended.code == 0
    assert ended.err.splitlines() == [
        "outlay: not refreshed, so that the last good prices are used: aws (gpuhunt)"
    ]
    assert {one["price_as_of"] for one in ended.document["options"]} >= {"2026-11-15"}


def test_plan_refresh_never_fails_the_plan(outlay, source, workload, monkeypatch):
    monkeypatch.setenv("OUTLAY_OFFLINE", "1")
    ended = planned(outlay, workload, "--refresh")
    assert ended.code == 0
    assert len(ended.err.splitlines()) == 1
    assert "offline" in ended.err
    assert json.loads(ended.out)["prices"]["kind"] == "bundled"


def test_old_prices_are_said_first_with_the_command_that_renews_them(
    outlay, source, workload, monkeypatch
):
    outlay("prices", "refresh")
    file = workload(LAMBDA)
    head = outlay("plan", file, "--prices", "newest").out.splitlines()[:4]
    assert not any("Old prices" in line for line in head)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(1794700800 + 15 * 86400))
    head = outlay("plan", file, "--prices", "newest").out.splitlines()[:4]
    assert sum("Old prices" in line for line in head) == 1
    assert "`outlay prices refresh` renews them" in " ".join(head)


def test_damaged_prices_are_one_warning_and_the_plan_is_made(outlay, source, workload, own_folder):
    own_folder.mkdir()
    (own_folder / "prices.sqlite").write_bytes(b"noise" * 1000)
    ended = planned(outlay, workload)
    assert ended.code == 0
    assert len(ended.err.splitlines()) == 1
    assert "the bundled prices are used" in ended.err
