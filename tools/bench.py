"""Time the commands people wait for, as ratios to a bare Python start: `make bench`.

Bounds: --help within 10 times `python -c pass`; the bundled plan within 1 s, as JSON within 2 s and
3 MB; advice within 1.5 s; all offers as JSON within 1.5 s; a traced step predicted on every GPU
(time, memory, range) within 1 s; 10,000 offers ranked by the mean of two thousand simulated bills
each, with every line of the likely one, within 2 s, a million within 60 s and 1 GB; ten thousand
draws of a bill within 1 s; a refresh of all price sources over loopback within 5 s (of SkyPilot's
whole files where OUTLAY_TEST_PRICE_SOURCES names their folder, else of excerpts with as many rows);
a plan on 10,000 refreshed offers in no more time for each option than on the bundled ones, give or
take a quarter; of a million changes of prices those of one GPU, all prices of a day, a GPU's
history, or what changed since a day, within 1 s; 10,000 kept offers read within 0.3 s. Where torch
is installed: a trace of ResNet-50 within 6 s and (with transformers) of a step of a 7B Llama within
25 s, both under 1.5 GB of resident memory.
Exits with 1 if one is missed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outlay.offers.offer import Offer
    from outlay.prices.price_store import PastPrice

ROOT = Path(__file__).parent.parent
OUTLAY = [sys.executable, "-m", "outlay.cli.main"]
HELP_RATIO, PLAN_S, PLAN_JSON_S, PLAN_JSON_BYTES = 10.0, 1.0, 2.0, 3e6
ADVISE_S, OFFERS_S, EVERY_GPU_S = 1.5, 1.5, 1.0
TEN_THOUSAND_S, MILLION_S, DRAWS_S, MILLION_BYTES = 3.5, 60.0, 1.0, 1e9
HISTORY_S, KEPT_OFFERS_S, REFRESH_S, AS_FAST = 1.0, 0.3, 5.0, 1.25
RESNET_S, LLAMA_S, RESIDENT_BYTES = 6.0, 25.0, 1.5e9

LLAMA_7B = """
import torch, transformers


def training_step(batch_size):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig()).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(32000, (batch_size, 2048))

    def step():
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
"""


def seconds(command: list[str], runs: int = 7) -> float:
    """The median wall time of a command."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def plan_as_json() -> tuple[float, float]:
    """The median time of the bundled plan as JSON, and its bound: too long is too slow."""
    command = [*OUTLAY, "plan", "examples/stylenat.toml", "--json"]
    length = len(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    print(f"{'the bundled plan as JSON':36} {length / 1e6:.2f} MB")
    return seconds(command, 5), PLAN_JSON_S if length <= PLAN_JSON_BYTES else 0.0


def traced(target: str, batch_size: int) -> tuple[float, int]:
    """Wall time and most resident bytes of a trace, started cold."""
    command = [*OUTLAY, "trace", target, "--batch-size", str(batch_size)]
    started = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return time.perf_counter() - started, used.ru_maxrss * 1024


def traces() -> list[tuple[str, float, float]]:
    """Traces with their times and bounds; too much memory counts as too slow."""
    if importlib.util.find_spec("torch") is None:
        return []
    wanted = [("trace of ResNet-50, batch 64", "examples/resnet50.py:training_step", 64, RESNET_S)]
    with tempfile.TemporaryDirectory() as folder:
        if importlib.util.find_spec("transformers") is not None:
            path = Path(folder) / "llama.py"
            path.write_text(LLAMA_7B)
            for batch_size in (1, 64):
                name = f"trace of a 7B Llama, batch {batch_size}"
                wanted.append((name, f"{path}:training_step", batch_size, LLAMA_S))
        rows = []
        for name, target, batch_size, bound_s in wanted:
            taken_s, resident_bytes = traced(target, batch_size)
            print(f"{name:36} {resident_bytes / 1e9:.2f} GB resident")
            rows.append((name, taken_s, bound_s if resident_bytes <= RESIDENT_BYTES else 0.0))
    return rows


def predictions() -> list[tuple[str, float, float]]:
    """Bundled steps predicted on every GPU at one batch size, in this process."""
    from outlay.hardware.gpus import gpus
    from outlay.plan.placement import calibration
    from outlay.predict.step import Placement, predict_step
    from outlay.trace.store import find_profile

    rows = []
    numbers, every = calibration(), list(gpus().values())
    for name in ("resnet50", "llama-1b", "stylenat"):
        profile = find_profile(name)
        started = time.perf_counter()
        for gpu in every:
            predict_step(profile, Placement(gpu=gpu), 8, numbers, largest=8)
        taken_s = time.perf_counter() - started
        rows.append((f"{name} on {len(every)} GPUs", taken_s, EVERY_GPU_S))
    return rows


def synthetic(count: int) -> Iterator[Offer]:
    """Offers like the bundled ones, in other places at other prices."""
    from outlay.offers.catalog import bundled_offers

    known = [offer for offer in bundled_offers() if offer.price_usd_per_hour]
    luck = random.Random(1)
    for number in range(count):
        offer = known[number % len(known)]
        yield replace(
            offer,
            region=f"place {number}",
            price_usd_per_hour=(offer.price_usd_per_hour or 0.0) * luck.uniform(0.8, 1.5),
        )


def rankings() -> list[tuple[str, float, float]]:
    """Many offers ranked, in this process; the steps are predicted beforehand."""
    import outlay
    from outlay.plan.from_measurement import profile_for
    from outlay.plan.pipeline import best_offers, rank_offers
    from outlay.uncertainty import Draws

    workload = outlay.read_workload(ROOT / "examples" / "stylenat.toml")
    profile = profile_for(workload.step)
    plan = best_offers(workload, synthetic(3_000), profile)
    rows = []
    ten_thousand = list(synthetic(10_000))
    started = time.perf_counter()
    ranked = rank_offers(workload, ten_thousand, profile)
    lines = sum(len(one.cost.breakdown.lines) for one in ranked.options if one.cost)
    rows.append((f"10,000 offers, {lines:,} lines", time.perf_counter() - started, TEN_THOUSAND_S))
    started = time.perf_counter()
    assert plan.chosen is not None
    plan.chosen.drawn(Draws(10_000, seed=1))
    rows.append(("10,000 draws of a bill", time.perf_counter() - started, DRAWS_S))
    started = time.perf_counter()
    best_offers(workload, synthetic(1_000_000), profile)
    taken_s = time.perf_counter() - started
    resident_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{'a million offers':36} {resident_bytes / 1e9:.2f} GB resident")
    bound_s = MILLION_S if resident_bytes <= MILLION_BYTES else 0.0
    rows.append(("a million offers", taken_s, bound_s))
    return rows


REFRESH = """
import importlib, json, sys
from outlay.cli.main import main

for module, constant, address in json.loads(sys.argv[1]):
    setattr(importlib.import_module(module), constant, address)
sys.argv = ["outlay", "prices", "refresh", "--json"]
main()
"""
"""`outlay prices refresh`, with live providers asked at other addresses."""


def refreshes(runs: int = 3) -> list[tuple[str, float, float]]:
    """All sources refreshed over loopback into an empty folder, and again with nothing new."""
    from tests.prices.market import Market, enlarged, excerpts, whole_files
    from tests.prices.server import PriceServer

    real = os.environ.get("OUTLAY_TEST_PRICE_SOURCES")
    files = whole_files(Path(real), "2026-08-22") if real else enlarged(excerpts())
    first: list[float] = []
    again: list[float] = []
    with PriceServer() as server:
        market = Market(server)
        market.open(files)
        addresses = [(module.__name__, *where) for module, *where in market.live_addresses()]
        command = [sys.executable, "-c", REFRESH, json.dumps(addresses)]
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as folder:
                environment = {**os.environ, **market.settings, "OUTLAY_DATA": folder}
                for times, wanted in ((first, "fresh"), (again, "unchanged")):
                    started = time.perf_counter()
                    done = subprocess.run(command, env=environment, check=True, capture_output=True)
                    times.append(time.perf_counter() - started)
                    states = [one["state"] for one in json.loads(done.stdout)["sources"]]
                    assert states.count(wanted) >= 35, states
    what = "whole files" if real else "as large as real"
    return [
        (f"all prices refreshed, {what}", statistics.median(first), REFRESH_S),
        ("all prices asked for, none new", statistics.median(again), REFRESH_S),
    ]


def plans() -> list[tuple[str, float, float]]:
    """A plan on 10,000 refreshed offers beside one on the bundled ones."""
    import outlay
    from outlay.offers.catalog import snapshot_date
    from outlay.offers.price_book import PriceBook, bundled_book
    from outlay.plan.pipeline import plan_workload
    from outlay.prices.books import current_prices

    workload, today = outlay.read_workload(ROOT / "examples" / "stylenat.toml"), snapshot_date()

    def planned(book: PriceBook) -> tuple[int, float]:
        started = time.perf_counter()
        plan = plan_workload(workload, prices=book, today=today)
        return len(plan.options), time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        os.environ["OUTLAY_DATA"] = folder
        _keep_offers(today)
        started = time.perf_counter()
        refreshed = current_prices(today)
        reading_s = time.perf_counter() - started
        planned(bundled_book())  # steps are predicted once for both
        bundled_options, bundled_s = planned(bundled_book())
        options, taken_s = planned(refreshed)
    bound_s = AS_FAST * bundled_s * options / bundled_options
    return [
        ("10,000 refreshed offers at hand", reading_s, KEPT_OFFERS_S),
        (f"plan of them, {options:,} options", taken_s, bound_s),
    ]


def _keep_offers(day: str) -> None:
    """Keep 10,000 offers as a refresh does."""
    from outlay.prices.books import keep_book
    from outlay.prices.price_store import PriceStore
    from outlay.prices.sources import ProviderPrices, Validators

    by_provider: dict[str, list[Offer]] = {}
    for offer in synthetic(10_000):
        by_provider.setdefault(offer.provider, []).append(replace(offer, as_of=day))
    with PriceStore() as store:
        for provider, offers in by_provider.items():
            kept = ProviderPrices(
                source="skypilot",
                provider=provider,
                as_of=day,
                fetched_at=f"{day}T08:00:00Z",
                offers=tuple(offers),
            )
            store.replace(kept, Validators())
        keep_book(store)


MILLION_KEYS, MILLION_DAYS, MILLION_GPUS, MILLION_PROVIDERS = 20_000, 50, 60, 25


def past_prices() -> Iterator[PastPrice]:
    """A million changes of prices: 20,000 machines on 50 days, 60 GPUs among them."""
    from outlay.hardware.gpus import gpus
    from outlay.prices.price_store import PastPrice

    luck, names = random.Random(1), sorted(gpus())[:MILLION_GPUS]
    for day in range(MILLION_DAYS):
        for number in range(MILLION_KEYS):
            price_usd = luck.uniform(0.2, 40.0)
            yield PastPrice(
                at=f"2026-{9 + day // 28:02}-{1 + day % 28:02}T06:00:00Z",
                source="skypilot",
                provider=f"provider {number % MILLION_PROVIDERS}",
                instance=f"machine {number}",
                region=f"region {number % 20}",
                zone="",
                gpu=names[number % MILLION_GPUS],
                gpus=1.0 + number % 8,
                price_usd_per_hour=price_usd,
                spot_usd_per_hour=price_usd / 2,
            )


def kept_prices() -> list[tuple[str, float, float]]:
    """Prices read from the file they are kept in: a million changes, and 10,000 offers."""
    from outlay.hardware.gpus import gpus
    from outlay.prices.history import price_history
    from outlay.prices.price_changes import price_changes
    from outlay.prices.price_store import PriceStore
    from outlay.prices.sources import ProviderPrices, Validators

    def timed(what: str, bound_s: float, work: Callable[[], int], expected: int) -> None:
        started = time.perf_counter()
        found = work()
        rows.append((what, time.perf_counter() - started, bound_s))
        assert found == expected, (what, found)

    rows: list[tuple[str, float, float]] = []
    offers = tuple(replace(offer, provider="aws") for offer in synthetic(10_000))
    with tempfile.TemporaryDirectory() as folder, PriceStore(Path(folder) / "one.sqlite") as store:
        store.add_past(past_prices())
        gpu = sorted(gpus())[7]
        of_one = MILLION_DAYS * len(range(7, MILLION_KEYS, MILLION_GPUS))
        timed(
            "a million changes: one GPU's",
            HISTORY_S,
            lambda: sum(1 for _ in store.past([gpu])),
            of_one,
        )
        timed(
            "a million changes: prices of a day",
            HISTORY_S,
            lambda: len(store.prices_at("2026-09-20")),
            MILLION_KEYS,
        )
        timed(
            "a million changes: a GPU's history",
            HISTORY_S,
            lambda: max(len(one.points) for one in price_history(gpu, store=store).series),
            MILLION_DAYS,
        )
        timed(
            "a million changes: what changed",
            HISTORY_S,
            lambda: len(price_changes("2026-10-01", gpu=gpu, store=store).totals),
            MILLION_PROVIDERS,
        )
        fetched_at = "2026-11-17T08:00:00Z"
        kept = ProviderPrices(
            source="skypilot",
            provider="aws",
            as_of=fetched_at[:10],
            fetched_at=fetched_at,
            offers=offers,
        )
        store.replace(kept, Validators())
        timed(
            "10,000 kept offers read",
            KEPT_OFFERS_S,
            lambda: len(store.current()[0].offers),
            len(offers),
        )
    return rows


def main() -> int:
    """Print the table; 1 if a bound is missed."""
    sys.path.insert(0, str(ROOT))  # a server with everything is among the tests
    os.environ["OUTLAY_PRICES"] = "bundled"
    bare_s = seconds([sys.executable, "-c", "pass"], runs=15)
    rows = [
        ("outlay --help", seconds([*OUTLAY, "--help"]), HELP_RATIO * bare_s),
        ("outlay plan examples/stylenat.toml",
         seconds([*OUTLAY, "plan", "examples/stylenat.toml"], 5), PLAN_S),
        ("the same with --json", *plan_as_json()),
        ("outlay advise",
         seconds([*OUTLAY, "advise", "--purpose", "kaggle", "--usage", "2h/day"], 5), ADVISE_S),
        ("outlay offers --json", seconds([*OUTLAY, "offers", "--json"], 3), OFFERS_S),
        *predictions(),
        *rankings(),
        *refreshes(),
        *plans(),
        *kept_prices(),
        *traces(),
    ]  # fmt: skip
    print(f"{'python -c pass':36} {bare_s:6.3f} s")
    for name, taken_s, bound_s in rows:
        verdict = "ok" if taken_s <= bound_s else "TOO SLOW"
        print(f"{name:36} {taken_s:6.3f} s  {taken_s / bare_s:5.1f}x bare  "
              f"bound {bound_s:.3f} s  {verdict}")  # fmt: skip
    return int(any(taken_s > bound_s for _, taken_s, bound_s in rows))


if __name__ == "__main__":
    sys.exit(main())
