"""The whole chain as a user meets it: the real command against a server with real files.

Every source is on the server: rows of SkyPilot's real files, zips that gpuhunt's own code wrote,
recorded answers of live providers, Vast and AWS, the European Central Bank's rates. The server
then does what servers do; the last good prices stay and the reason is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.prices.market import DATA, GPUHUNT, LIVE, VERSION, Market, excerpts, rates_zip
from tests.prices.server import (
    PriceServer,
    ProxyServer,
    Served,
    corrupt_zip,
    drips,
    empty,
    endless,
    garbage,
    gpuhunt_csv,
    gzip_bomb,
    hangs,
    html,
    loops,
    redirects,
    resets,
    slow,
    status,
    too_many,
    truncated,
    typed,
    zip_bomb,
    zip_of,
)

from outlay.cli.main import main
from outlay.prices import refresh
from outlay.prices.download import HttpDownloader, Patience
from outlay.prices.skypilot import CLOUDS
from outlay.report.schemas import schema

ROOT = Path(__file__).parents[2]
TUESDAY, WEDNESDAY = "1794873600", "1794960000"  # 2026-11-17 and -18, 00:00 UTC
QUICK = Patience(
    connect_s=5.0, read_s=5.0, total_s=20.0, attempts=2, wait_s=0.01, longest_wait_s=0.05
)
HASTY = replace(QUICK, read_s=0.3, total_s=0.8)
"""For servers that hang: a person waits minutes for them, a test does not."""
LONGEST_S = 10.0
"""What any one command may take here, on a busy machine; most take a tenth of a second."""
KEYS = ("VULTR_API_KEY", "DAYTONA_API_KEY", "CRUSOE_ACCESS_KEY", "DIGITAL_OCEAN_API_KEY",
        "HOTAISLE_API_KEY", "JL_API_KEY", "SEEWEB_API_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN",
        "DIGITALOCEAN_TOKEN", "CRUSOE_ACCESS_KEY_ID")  # fmt: skip
LAMBDA_PATH, LAMBDA = "v8/lambda/vms.csv", excerpts()["lambda"]
H100_USD, RENEWED_USD = 3.19, 3.09
"""What an H100 PCIe of Lambda costs in the list that is kept, and in the one that comes after; in
the snapshot it is $3.29."""
KEPT = LAMBDA.replace(b",3.29,", b",3.19,")
RENEWED = LAMBDA.replace(b",3.29,", b",3.09,")


# --- the command, and everything it asks ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended, what it said, and how long it took."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def sources(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What became of each source and provider."""
        return {(one["source"], one["provider"]): one for one in self.document["sources"]}


Outlay = Callable[..., Ended]


@pytest.fixture(scope="module")
def one_market() -> Iterator[tuple[Market, dict[str, Served]]]:
    with PriceServer() as server:
        market = Market(server)
        market.open(excerpts() | {"lambda": KEPT})
        yield market, server.files()


@pytest.fixture
def opened(one_market: tuple[Market, dict[str, Served]], monkeypatch: pytest.MonkeyPatch) -> Market:
    """All sources, as they should be, for commands in this process, on 2026-11-17."""
    market, files = one_market
    market.server.clear(files)
    for name, value in market.settings.items():
        monkeypatch.setenv(name, value)
    for module, constant, address in market.live_addresses():
        monkeypatch.setattr(module, constant, address)
    for name in (*KEYS, "OUTLAY_PRICES", "OUTLAY_NOTIFY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", TUESDAY)
    monkeypatch.setattr(refresh, "_network", lambda: HttpDownloader(patience=QUICK))
    return market


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for."""
    monkeypatch.setattr(refresh, "_network", lambda: HttpDownloader(patience=HASTY))


@pytest.fixture
def outlay(
    opened: Market, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Outlay:
    """Run a command in this process; no traceback, and in bounded time."""

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["outlay", *map(str, arguments)])
        monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
        capsys.readouterr()
        started_s = time.monotonic()
        with pytest.raises(SystemExit) as ended:
            main()
        seconds = time.monotonic() - started_s
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        assert "Something went wrong inside outlay" not in said.err
        assert "inside outlay" not in said.out
        assert seconds < LONGEST_S
        return Ended(code=int(ended.value.code or 0), out=said.out, err=said.err, seconds=seconds)

    return run


@pytest.fixture(scope="module")
def kept_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept") / "data"


@pytest.fixture
def refreshed(
    opened: Market, outlay: Outlay, own_folder: Path, kept_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Market:  # fmt: skip
    """The day after a good refresh of all sources."""
    if not kept_folder.exists():
        assert outlay("prices", "refresh", "--json").code == 0
        shutil.copytree(own_folder, kept_folder)
    else:
        shutil.copytree(kept_folder, own_folder)
    opened.server.requests.clear()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", WEDNESDAY)
    return opened


def prices_of(outlay: Outlay, provider: str) -> dict[tuple[str, str], float | None]:
    """What `outlay offers` says each machine of a provider costs."""
    document = outlay("offers", "--provider", provider, "--json").document
    return {
        (one["instance"], one["region"]): one["price_usd_per_hour"] for one in document["offers"]
    }


H100 = ("gpu_1x_h100_pcie", "any")


# --- all of it ---


def test_a_refresh_of_all_sources_and_then_of_nothing_new(outlay, opened, monkeypatch):
    first = outlay("prices", "refresh", "--json")
    assert (first.code, first.err) == (0, "")
    jsonschema.validate(first.document, schema("prices-refresh"))
    published = {("gpuhunt", name) for name in (*GPUHUNT.values(), "cloudrift")}
    expected = (
        {("vast", "vast"), ("spot-advisor", "aws"), ("rates", "ecb")}
        | {("skypilot", cloud) for cloud in CLOUDS}
        | published
        | {("gpuhunt", name) for name in LIVE}
    )
    fresh = {name for name, one in first.sources.items() if one["state"] == "fresh"}
    assert fresh == expected
    others = {name: one for name, one in first.sources.items() if name not in fresh}
    assert all(one["state"] == "kept" and one["missing_key"] for one in others.values())
    assert all(first.sources[name]["reason"] is None for name in fresh)
    # Of the day that each is of: asked live, gpuhunt's version, as in the snapshot, changed today.
    days = {name: first.sources[name]["as_of"] for name in expected}
    assert days["vast", "vast"] == days["gpuhunt", "vultr"] == "2026-11-17"
    assert days["gpuhunt", "aws"] == "2026-11-17"
    assert days["skypilot", "nebius"] == "2026-07-22"
    assert days["skypilot", "lambda"] == "2026-11-17"
    assert days["rates", "ecb"] == "2026-11-16"
    assert prices_of(outlay, "lambda")[H100] == H100_USD
    monkeypatch.setenv("SOURCE_DATE_EPOCH", WEDNESDAY)
    again = outlay("prices", "refresh", "--json")
    assert {one["state"] for name, one in again.sources.items() if name in expected} == {
        "unchanged"
    }
    assert again.sources["skypilot", "lambda"]["as_of"] == "2026-11-17"
    asked = [one for one in opened.server.requests if one.path == LAMBDA_PATH]
    assert ["If-None-Match" in one.headers for one in asked] == [False, True]


def test_the_table_says_what_a_person_needs(outlay, refreshed):
    refreshed.server.misbehave(LAMBDA_PATH, status(500))
    refreshed.server.misbehave("v8/runpod/vms.csv", html())
    ended = outlay("prices", "refresh", "--source", "skypilot")
    said = " ".join(ended.out.split())
    assert "Refreshed: 22 of 24 lists." in said
    assert "skypilot lambda kept 5 2026-11-17 http" in said
    assert "It has trouble of its own (500)." in said
    assert "A web page came in place of the data." in said
    assert max(map(len, ended.out.splitlines())) <= 120


# --- what servers do ---


def put(change: Callable[[bytes], bytes]) -> Callable[[Market], None]:
    """Another file of Lambda's, made of the newer one."""
    return lambda market: market.put_skypilot("lambda", change(RENEWED))


def bad(behaviour: Any, **how: Any) -> Callable[[Market], None]:
    """The newer file, of a server that misbehaves."""

    def misbehave(market: Market) -> None:
        market.put_skypilot("lambda", RENEWED)
        market.server.misbehave(LAMBDA_PATH, behaviour, **how)

    return misbehave


def elsewhere(market: Market) -> None:
    """The file has moved to another host."""
    market.server.put("moved/vms.csv", RENEWED)
    target = f"{market.server.elsewhere}/moved/vms.csv"
    market.server.misbehave(LAMBDA_PATH, redirects(target))


def to_a_login(market: Market) -> None:
    """One is sent to a page on another host."""
    market.server.misbehave("login", html())
    market.server.misbehave(LAMBDA_PATH, redirects(f"{market.server.elsewhere}/login", 302))


def times_hundred(data: bytes) -> bytes:
    for usd in (b"15.92", b"1.99", b"3.09", b"4.29", b"2.29"):
        data = data.replace(b",%b," % usd, b",%.2f," % (100 * float(usd)))
    return data


def without_column(name: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data.replace(name, b"Cost", 1)


def with_column(data: bytes) -> bytes:
    head, *rows = data.splitlines()
    return b"\n".join([b"Colour," + head, *(b"red," + row for row in rows)]) + b"\n"


def lines_of(data: bytes, *numbers: int) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join(lines[number] for number in numbers)


MISBEHAVIOURS: dict[str, tuple[Callable[[Market], None], str, str]] = {
    # What the server does; the state; words of the reason, or of a note where it is taken.
    "well": (put(lambda data: data), "fresh", ""),
    "slow": (bad(slow(0.2)), "fresh", ""),
    "hangs": (bad(hangs()), "kept", "Nothing came from 127.0.0.1 for 0.3 s."),
    "drips": (bad(drips(0.1)), "kept", "It had not answered in full after 0.8 s"),
    "resets": (bad(resets()), "kept", "The connection to 127.0.0.1 broke."),
    "resets once": (bad(resets(), times=1), "fresh", ""),
    "no http": (bad(garbage()), "kept", "The connection to 127.0.0.1 broke."),
    "301 to elsewhere": (elsewhere, "fresh", ""),
    "302 to a login": (to_a_login, "refused", "A web page came in place of the data."),
    "301 to itself": (bad(loops(301)), "kept", "It sends one on more than 5 times"),
    "301 to a file": (
        bad(redirects("file:///etc/passwd")), "kept", "It sends one on to file:///etc/passwd"
    ),
    "403": (bad(status(403)), "kept", "It refuses to answer (403)."),
    "404": (bad(status(404)), "kept", "There is nothing at this address (404)."),
    "429": (bad(too_many("0"), times=1), "fresh", ""),
    "429 for an hour": (
        bad(too_many("3600")),
        "kept",
        "It was asked too often (429), and asks to be left alone for 3,600 s.",
    ),
    "500": (bad(status(500)), "kept", "It has trouble of its own (500)."),
    "500 once": (bad(status(500), times=1), "fresh", ""),
    "truncated": (bad(truncated()), "refused", "The answer ended before all of it had come."),
    "cut off": (
        put(lambda data: data[:-40]), "refused", "it ends in the middle of a line: it was cut off"
    ),
    "wrong type": (bad(typed("image/png")), "refused", "It is of the type image/png"),
    "another type": (bad(typed("application/octet-stream")), "fresh", ""),
    "html": (bad(html()), "refused", "A web page came in place of the data."),
    "html as csv": (bad(html("text/csv")), "refused", "A web page came in place of the data."),
    "empty": (bad(empty()), "refused", "The answer is empty."),
    "head alone": (put(lambda data: lines_of(data, 0)), "refused", "it has a head and no rows"),
    "endless": (bad(endless()), "refused", "It goes on beyond the 64 MiB that are read of it"),
    "gzip bomb": (bad(gzip_bomb(2**27)), "refused", "It goes on beyond the 64 MiB"),
    "binary": (put(lambda data: data[:99] + b"\0" + data), "refused", "it is binary, no CSV file"),
    "zero price": (
        put(lambda data: data.replace(b",4.29,", b",0.0,", 1)),
        "fresh",
        "1 of 10 rows could not be read: line 9: '0.0' is no price",
    ),
    "one price times 100": (put(lambda data: data.replace(b",4.29,", b",429.0,")), "fresh", ""),
    "all prices times 100": (
        put(times_hundred),
        "refused",
        "5 of 5 prices are more than 4 times or less than a quarter of the last good ones",
    ),
    "a column gone": (put(without_column(b"Price")), "refused", "it has no column Price"),
    "a column new": (
        put(with_column),
        "fresh",
        "Columns that outlay does not know and left aside: 'Colour'.",
    ),
    "half of the rows gone": (
        put(lambda data: lines_of(data, 0, 1, 2, 3, 4, 5)),
        "refused",
        "3 of 5 machine types of lambda are gone, a third or more",
    ),
    "a GPU called otherwise": (
        put(lambda data: data.replace(b",H100,", b",Hopper One,").replace(b",GH200,", b",Grace,")),
        "refused",
        "with a GPU that nobody knows",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_whatever_a_server_does_the_last_good_prices_stay(
    outlay, refreshed, workload, name, request
):
    misbehave, state, words = MISBEHAVIOURS[name]
    if name in ("hangs", "drips"):
        request.getfixturevalue("hasty")
    misbehave(refreshed)
    refreshed.put_skypilot("nebius", excerpts()["nebius"].replace(b",3.85,", b",3.65,"))
    ended = outlay(
        "prices", "refresh", "--source", "skypilot", "--provider", "lambda", "--provider", "nebius",
        "--json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    found = ended.sources["skypilot", "lambda"]
    said = found["reason"] or " ".join(found["notes"])
    assert (found["state"], words in said) == (state, True), found
    assert found["as_of"] == ("2026-11-18" if state == "fresh" else "2026-11-17")
    assert found["offers"] >= 3
    # A reason is a sentence that a person can read on one line.
    assert said.isprintable()
    assert len(said) < 400
    # Nobody else is hurt.
    assert ended.sources["skypilot", "nebius"]["state"] == "fresh"
    assert prices_of(outlay, "nebius")["gpu-h100-sxm_1gpu-16vcpu-200gb", "eu-north1"] == 3.65
    # The last good prices are those that commands work with.
    usd = RENEWED_USD if state == "fresh" else H100_USD
    assert prices_of(outlay, "lambda")[H100] == usd
    plan = outlay("plan", workload, "--json").document
    [option] = [one for one in plan["options"] if one["instance"] == H100[0]]
    assert option["price_usd_per_hour"] == usd
    assert option["price_as_of"] == found["as_of"]


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Two hours of ResNet-50 at Lambda."""
    path = tmp_path / "work.toml"
    path.write_text(
        '[step]\nprofile = "resnet50"\nbatch_size = 32\n[length]\ntime = "2h"\n'
        '[consider]\nproviders = ["lambda"]\n'
    )
    return path


def test_nothing_refreshed_is_exit_5_and_the_plan_goes_on(outlay, refreshed, workload):
    refreshed.server.misbehave(LAMBDA_PATH, status(503))
    asked = ("--source", "skypilot", "--provider", "lambda")
    ended = outlay("prices", "refresh", *asked)
    assert ended.code == 5
    assert "Refreshed: 0 of 1 list." in ended.out
    assert "(503)" in ended.out
    assert outlay("plan", workload, "--json").code == 0


def test_a_price_times_hundred_is_doubted_and_not_planned_with(outlay, refreshed, workload):
    dear = RENEWED.replace(b",4.29,", b",429.0,")
    refreshed.put_skypilot("lambda", dear)
    outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    document = outlay("offers", "--provider", "lambda", "--json").document
    [offer] = [one for one in document["offers"] if one["instance"] == "gpu_1x_h100_sxm5"]
    assert (offer["price_usd_per_hour"], "outlier" in offer["doubts"]) == (429.0, True)
    options = outlay("plan", workload, "--json").document["options"]
    ranks = {one["instance"]: one["rank"] for one in options if one["tenancy"] == "on-demand"}
    assert max(ranks, key=lambda name: ranks[name]) == "gpu_1x_h100_sxm5"
    refreshed.put_skypilot("lambda", RENEWED)
    outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    document = outlay("offers", "--provider", "lambda", "--json").document
    assert all("outlier" not in one["doubts"] for one in document["offers"])


def test_what_really_shrank_is_taken_on_request(outlay, refreshed):
    refreshed.put_skypilot("lambda", lines_of(RENEWED, 0, 1, 2, 3, 6, 7))
    asked = ("prices", "refresh", "--source", "skypilot", "--provider", "lambda", "--json")
    refused = outlay(*asked)
    assert refused.code == 5
    command = "`outlay prices refresh --provider lambda --accept`"
    assert command in refused.sources["skypilot", "lambda"]["reason"]
    taken = outlay(*asked, "--accept")
    assert (taken.code, taken.sources["skypilot", "lambda"]["offers"]) == (0, 2)
    prices = prices_of(outlay, "lambda")
    assert {name for name in prices if name[0].startswith("gpu_")} == {("gpu_8x_a100", "any"), H100}


# --- gpuhunt's zips, live providers, Vast, AWS's advisor, exchange rates ---

LAMBDALABS = f"v3/lambdalabs/{VERSION}9/catalog.zip"


def zipped(data: bytes) -> Callable[[Market], None]:
    return lambda market: market.server.put_gpuhunt_zip("lambdalabs", data, f"{VERSION}9")


def at(path: str, behaviour: Any) -> Callable[[Market], None]:
    return lambda market: market.server.misbehave(path, behaviour)


def data_at(path: str, data: bytes) -> Callable[[Market], None]:
    return lambda market: market.put_json(path, data)


GOOD_ZIP = zip_of({"lambdalabs.csv": gpuhunt_csv([])})
VAST = json.loads((DATA / "vast_bundles.json").read_text())
ADVISOR = (DATA / "spot_advisor.json").read_bytes()
OTHERS: list[tuple[str, str, str, Callable[[Market], None], str, str]] = [
    ("bomb", "gpuhunt", "lambda", zipped(zip_bomb("lambdalabs.csv", 2**28)), "refused",
     "lambdalabs.csv would have 268,435,456 bytes: no list is that long"),
    ("bomb that lies", "gpuhunt", "lambda",
     zipped(zip_bomb("lambdalabs.csv", 2**28, stated_bytes=99)), "refused", "archive is damaged"),
    ("path traversal", "gpuhunt", "lambda",
     zipped(zip_of({"../../evil.csv": b"x", "/etc/evil": b"x"})), "refused",
     "the archive has no lambdalabs.csv, but '../../evil.csv', '/etc/evil'"),
    ("corrupt", "gpuhunt", "lambda", zipped(corrupt_zip(zip_of({"lambdalabs.csv": LAMBDA}))),
     "refused", "the archive is damaged"),
    ("zip cut off", "gpuhunt", "lambda", zipped(GOOD_ZIP[:-30]), "refused", "its end is missing"),
    ("no machines", "gpuhunt", "lambda", zipped(GOOD_ZIP), "refused", "no machine with a GPU"),
    ("version is a page", "gpuhunt", "lambda", at("v3/lambdalabs/version", html()), "refused",
     "A web page came in place of the data."),
    ("version goes up", "gpuhunt", "lambda",
     lambda market: market.server.put("v3/lambdalabs/version", b"../../../etc\n"), "kept",
     "It says '../../../etc', which is no version."),
    ("zip gone", "gpuhunt", "lambda",
     lambda market: market.server.put("v3/lambdalabs/version", b"20261118-1\n"), "kept",
     "There is nothing at this address (404)."),
    ("live 500", "gpuhunt", "vultr", at("vultr/plans-metal", status(500)), "kept",
     "It has trouble of its own (500)."),
    ("live page", "gpuhunt", "vultr", at("vultr/plans-metal", html()), "refused", "A web page"),
    ("live otherwise", "gpuhunt", "vultr", data_at("vultr/plans-metal", b'{"plans_metal": 7}'),
     "kept", "vultr answered what gpuhunt"),
    ("vast 429", "vast", "vast", at("vast", too_many("600")), "kept",
     "asks to be left alone for 600 s"),
    ("vast says no", "vast", "vast", data_at("vast", b'{"success": false, "msg": "down"}'),
     "refused", 'Vast\'s answer has no list of offers: it says "down"'),
    ("vast in half", "vast", "vast", data_at("vast", json.dumps(VAST).encode()[:500]), "refused",
     "Vast's answer is not JSON"),
    ("vast sold out", "vast", "vast", data_at("vast", b'{"offers": []}'), "refused",
     "no machine with a GPU"),
    ("advisor 403", "spot-advisor", "aws", at("spot-advisor.json", status(403)), "kept",
     "It refuses to answer (403)."),
    ("advisor page", "spot-advisor", "aws", at("spot-advisor.json", html()), "refused",
     "A web page"),
    ("advisor in half", "spot-advisor", "aws", data_at("spot-advisor.json", ADVISOR[:300]),
     "refused", "AWS's Spot Instance Advisor: not JSON"),
    ("rates hang", "rates", "ecb", at("eurofxref-hist.zip", hangs()), "kept", "Nothing came from"),
    ("rates jump", "rates", "ecb",
     lambda market: market.server.put("eurofxref-hist.zip", rates_zip("2026-11-17", USD=111.72)),
     "refused", "USD goes from 1.1172 to 111.72 a euro"),
    ("rates page", "rates", "ecb", at("eurofxref-hist.zip", html()), "refused", "A web page"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "provider", "misbehave", "state", "words"),
    [row[1:] for row in OTHERS],
    ids=[row[0] for row in OTHERS],
)
def test_other_sources_likewise(
    outlay, refreshed, own_folder, source, provider, misbehave, state, words, request
):
    if "Nothing came" in words:
        request.getfixturevalue("hasty")
    before = {path: path.read_bytes() for path in own_folder.iterdir() if path.suffix != ".sqlite"}
    misbehave(refreshed)
    # The exchange rates are asked for by name; so are providers of all others.
    more = () if provider in ("ecb", "aws") else ("--provider", provider)
    ended = outlay("prices", "refresh", "--source", source, *more, "--json")
    found = ended.sources[source, provider]
    assert (found["state"], ended.code) == (state, 5), found
    assert words in found["reason"]
    assert found["reason"].isprintable()
    after = {path: path.read_bytes() for path in own_folder.iterdir() if path.suffix != ".sqlite"}
    assert after == before  # rates and interruptions are as they were; nothing new lies about
    if source in ("gpuhunt", "vast"):
        assert prices_of(outlay, provider)
        assert found["offers"] > 0


# --- killed, twice at once, interrupted: the real program ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The real `outlay` as a process of its own."""

    market: Market
    folder: Path

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        keep = {k: v for k, v in os.environ.items() if k not in (*KEYS, "OUTLAY_PRICES")}
        environment = {
            **keep,
            **self.market.settings,
            "OUTLAY_DATA": str(self.folder),
            "PYTHONPATH": str(ROOT / "src"),
            "SOURCE_DATE_EPOCH": WEDNESDAY,
            **more,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "outlay.cli.main", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **more: str) -> Ended:
        started_s = time.monotonic()
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=60)
        seconds = time.monotonic() - started_s
        assert "Traceback" not in err
        return Ended(code=process.returncode, out=out, err=err, seconds=seconds)


ALL_LISTS = ("prices", "refresh", "--source", "skypilot", "--source", "vast", "--json")


@pytest.fixture
def program(refreshed: Market, own_folder: Path) -> Program:
    return Program(market=refreshed, folder=own_folder)


def wait_until(happened: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def kept_lists(folder: Path) -> dict[tuple[str, str], tuple[str, float]]:
    """Of every list that is kept when it was fetched and what its offers cost in all."""
    from outlay.prices.price_store import PriceStore

    with contextlib.closing(sqlite3.connect(folder / "prices.sqlite")) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with PriceStore(folder / "prices.sqlite") as store:
        return {
            (one.source, one.provider): (
                one.fetched_at,
                sum(offer.price_usd_per_hour or 0.0 for offer in one.offers),
            )
            for one in store.current()
        }


def test_a_refresh_that_is_killed_leaves_every_list_whole(program, refreshed, outlay):
    before = kept_lists(program.folder)
    refreshed.put_skypilot("lambda", RENEWED)
    refreshed.server.misbehave("v8/yotta/vms.csv", hangs())
    process = program.start(*ALL_LISTS)
    # It has read Lambda's list, is writing, and waits for Yotta's.
    name = ("skypilot", "lambda")
    wait_until(lambda: kept_lists(program.folder)[name] != before[name])
    process.kill()
    process.communicate()
    after = kept_lists(program.folder)
    assert after.keys() == before.keys()
    assert after["skypilot", "yotta"] == before["skypilot", "yotta"]
    assert prices_of(outlay, "lambda")[H100] == RENEWED_USD
    refreshed.server.behave()
    ended = program.run(*ALL_LISTS)
    assert ended.code == 0
    assert {one["state"] for one in ended.document["sources"]} == {"unchanged"}


def test_two_refreshes_at_once_do_no_harm(program, refreshed, outlay):
    refreshed.put_skypilot("lambda", RENEWED)
    both = [program.start(*ALL_LISTS), program.start(*ALL_LISTS)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        states = {one["provider"]: one["state"] for one in json.loads(out)["sources"]}
        assert states["lambda"] in ("fresh", "unchanged")
        assert set(states.values()) <= {"fresh", "unchanged"}
    assert {at for (source, _), (at, _) in kept_lists(program.folder).items()
            if source == "skypilot"} == {"2026-11-18T00:00:00Z"}  # fmt: skip
    assert prices_of(outlay, "lambda")[H100] == RENEWED_USD


def test_ctrl_c_keeps_what_was_done_and_says_so(program, refreshed):
    refreshed.server.misbehave("v8/yotta/vms.csv", hangs())
    process = program.start(*ALL_LISTS)
    wait_until(lambda: refreshed.server.count("v8/yotta/vms.csv") > 0)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out) == (130, "")
    done, interrupted = filter(None, err.splitlines())
    assert done.endswith(" of 25 lists were refreshed and are kept.")
    assert interrupted == "outlay: Interrupted."


# --- proxies and mirrors ---


def test_behind_a_proxy(outlay, refreshed, monkeypatch):
    refreshed.put_skypilot("lambda", RENEWED)
    with ProxyServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base)
        ended = outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
        assert ended.code == 0
        assert {one.path for one in proxy.requests} == {refreshed.server.url(LAMBDA_PATH)}
    assert prices_of(outlay, "lambda")[H100] == RENEWED_USD
    ended = outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda", "--json")
    assert ended.code == 5
    reason = ended.sources["skypilot", "lambda"]["reason"]
    assert "The proxy in between could not be used." in reason


def test_a_folder_is_a_mirror(outlay, refreshed, tmp_path, monkeypatch):
    mirror = tmp_path / "mirror" / "v8" / "lambda"
    mirror.mkdir(parents=True)
    (mirror / "vms.csv").write_bytes(RENEWED)
    monkeypatch.setenv("OUTLAY_SKYPILOT_CATALOG", str(tmp_path / "mirror"))
    asked = ("prices", "refresh", "--source", "skypilot", "--json")
    ended = outlay(*asked)
    states = {name: one["state"] for name, one in ended.sources.items()}
    assert states.pop(("skypilot", "lambda")) == "fresh"
    assert set(states.values()) == {"kept"}
    assert "There is no such file." in ended.sources["skypilot", "aws"]["reason"]
    assert refreshed.server.requests == []
    assert prices_of(outlay, "lambda")[H100] == RENEWED_USD
    again = outlay(*asked, "--provider", "lambda")
    assert again.sources["skypilot", "lambda"]["state"] == "unchanged"


# --- what nobody knew before ---


def test_a_cloud_that_the_catalogue_names_and_outlay_does_not_know(outlay, refreshed):
    known = excerpts()["common_accelerators"]
    refreshed.server.put(
        "v8/common/accelerators.csv", known + b"L4,\"['AWS', 'JarvisLabs', 'Nowhere']\"\n"
    )
    jarvislabs = (DATA / "skypilot" / "jarvislabs.csv").read_bytes()
    refreshed.put_skypilot("jarvislabs", jarvislabs)
    ended = outlay("prices", "refresh", "--source", "skypilot")
    assert "jarvislabs" in ended.out
    assert "nowhere" not in ended.out  # named, and not there
    assert "New to outlay, without terms (billing, storage, transfer): jarvislabs." in " ".join(
        ended.out.split()
    )
    assert prices_of(outlay, "jarvislabs")


def test_a_provider_that_nobody_knows_by_name(outlay, refreshed):
    refreshed.put_skypilot("newcloud", KEPT)
    asked = ("prices", "refresh", "--provider", "newcloud", "--json")
    ended = outlay(*asked)
    found = ended.sources["skypilot", "newcloud"]
    assert (ended.code, found["state"], found["is_new_provider"]) == (0, "fresh", True)
    assert prices_of(outlay, "newcloud")
    refreshed.server.remove("v8/newcloud/vms.csv")
    again = outlay(*asked)
    assert again.sources["skypilot", "newcloud"]["state"] == "kept"
    unknown = outlay("prices", "refresh", "--provider", "nocloud")
    assert (unknown.code, unknown.out) == (2, "")
    assert "No provider is known as 'nocloud'." in unknown.err


def test_a_gpu_that_nobody_knows_is_named_and_in_no_plan(outlay, refreshed, workload):
    line = lines_of(RENEWED, 6).replace(b"gpu_1x_h100_pcie,H100", b"gpu_1x_r100,R100")
    refreshed.put_skypilot("lambda", RENEWED + line)
    ended = outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    assert "GPUs that outlay does not know, kept and in no plan: R100." in ended.out
    plan = outlay("plan", workload, "--full")
    assert "Not planned: 1 offer of GPUs that outlay knows nothing of (R100)." in plan.out
    changes = outlay("prices", "changes", "--since", "2026-11-17", "--provider", "lambda", "--json")
    assert "gpu_1x_r100" in {one["instance"] for one in changes.document["changes"]}


# --- commands that work with it ---


def test_plan_refresh(outlay, refreshed, workload):
    refreshed.put_skypilot("lambda", RENEWED)
    refreshed.server.misbehave("v8/runpod/vms.csv", status(500))
    refreshed.server.misbehave("v3/runpod/version", html())
    ended = outlay("plan", workload, "--refresh", "--json")
    assert ended.code == 0
    assert ended.err == (
        "outlay: not refreshed, so that the last good prices are used: "
        "runpod (skypilot), runpod (gpuhunt)\n"
    )
    [option] = [one for one in ended.document["options"] if one["instance"] == H100[0]]
    assert (option["price_usd_per_hour"], option["price_as_of"]) == (RENEWED_USD, "2026-11-18")
    assert ended.document["prices"] == ended.document["prices"] | {
        "as_of": "2026-11-18", "age_days": 0, "kind": "refreshed",
    }  # fmt: skip


def test_plan_bundled_and_plan_of_trust(outlay, refreshed, workload):
    bundled = outlay("plan", workload, "--prices", "bundled", "--json").document
    [option] = [one for one in bundled["options"] if one["instance"] == H100[0]]
    assert option["price_usd_per_hour"] == 3.29
    refreshed.put_skypilot("lambda", RENEWED.replace(b",1.99,", b",0.39,"))
    outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    usual = outlay("plan", workload, "--json").document
    trusting = outlay("plan", workload, "--trust", "all", "--json").document
    # $0.39 in the place of $1.99 is an outlier, which is never chosen unless one says so.
    assert usual["chosen"]["instance"] != "gpu_1x_a100_sxm4"
    assert trusting["chosen"]["instance"] == "gpu_1x_a100_sxm4"


def test_compare(outlay, refreshed):
    refreshed.put_skypilot("lambda", RENEWED)
    outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    document = outlay("prices", "compare", "H100", "--provider", "lambda", "--json").document
    [machine] = [one for one in document["machines"] if one["instance"] == H100[0]]
    found = {one["source"]: (one["price_usd_per_hour"], one["used"]) for one in machine["prices"]}
    assert found == {
        "skypilot": (RENEWED_USD, True),
        "gpuhunt": (H100_USD, False),
        "bundled": (3.29, False),
    }
    # $3.29 / $3.09 = 1.065
    assert machine["apart_fraction"] == pytest.approx(3.29 / 3.09 - 1)
    assert "H100 by source, the farthest apart first" in outlay("prices", "compare", "H100").out


def test_history_and_changes(outlay, refreshed, tmp_path):
    refreshed.put_skypilot("lambda", RENEWED)
    outlay("prices", "refresh", "--source", "skypilot", "--provider", "lambda")
    plot = tmp_path / "h100.html"
    document = outlay(
        "prices", "history", "H100 PCIe", "--provider", "lambda", "--plot", plot, "--json"
    ).document
    [series] = [
        one
        for one in document["series"]
        if (one["provider"], one["tenancy"]) == ("lambda", "on-demand")
    ]
    assert series["points"][-1]["cheapest_usd_per_gpu_hour"] == RENEWED_USD
    assert "<svg" in plot.read_text()
    changes = outlay("prices", "changes", "--since", "2026-11-17", "--provider", "lambda", "--json")
    [change] = changes.document["changes"]
    assert (change["source"], change["instance"], change["kind"]) == (
        "skypilot", H100[0], "cheaper",
    )  # fmt: skip
    assert change["before_usd_per_hour"] == H100_USD
    assert change["after_usd_per_hour"] == RENEWED_USD
    table = outlay("prices", "changes", "--since", "2026-11-17", "--provider", "lambda").out
    assert "$3.19" in table
    assert "-3 %" in table  # 3.09 / 3.19 - 1 = -3.1 %


def test_watch_really_refreshes(outlay, refreshed):
    asked = ("prices", "watch", "--gpu", "H100 PCIe", "--below", "3.10", "--provider", "lambda")
    assert outlay(*asked).code == 3
    refreshed.put_skypilot("lambda", RENEWED)
    ended = outlay(*asked)
    assert ended.code == 0
    assert "$3.09" in ended.out
    refreshed.server.misbehave(LAMBDA_PATH, status(500))
    refreshed.server.misbehave("v3/lambdalabs/version", status(500))
    failed = outlay(*asked)
    assert (failed.code, failed.out) == (5, "")
    assert "No price could be refreshed." in failed.err


def test_rates_and_interruptions_by_name(outlay, refreshed):
    refreshed.server.put("eurofxref-hist.zip", rates_zip("2026-11-17", USD=1.25))
    ended = outlay("prices", "refresh", "--source", "rates", "--json")
    assert (ended.code, list(ended.sources)) == (0, [("rates", "ecb")])
    assert ended.sources["rates", "ecb"]["as_of"] == "2026-11-17"
    # Seeweb's list is as it was, and its euros are dollars at the new rate: 1.89 x 1.25.
    before = prices_of(outlay, "seeweb")["ECS1GPU8", "unknown"]
    assert before == pytest.approx(1.89 * 1.1172, rel=1e-4)
    seeweb = outlay("prices", "refresh", "--provider", "seeweb", "--json")
    assert seeweb.sources["skypilot", "seeweb"]["as_of"] == "2026-07-31"  # the snapshot's euros
    assert prices_of(outlay, "seeweb")["ECS1GPU8", "unknown"] == pytest.approx(2.3625, rel=1e-4)
    more = json.loads(ADVISOR)
    more["spot_advisor"]["eu-west-1"]["Linux"]["g5.xlarge"]["r"] = 3
    refreshed.put_json("spot-advisor.json", json.dumps(more).encode())
    ended = outlay("prices", "refresh", "--source", "spot-advisor", "--json")
    assert (ended.code, ended.sources["spot-advisor", "aws"]["state"]) == (0, "fresh")


def test_a_list_of_ones_own_and_a_discount(outlay, refreshed, workload, tmp_path):
    own = tmp_path / "acme.csv"
    own.write_text("provider,instance,gpu,gpus,region,price_per_hour\nlambda,gpu_1x_h100_pcie,"
                   "H100 PCIe,1,any,2.50\n")  # fmt: skip
    assert outlay("prices", "import", own).code == 0
    plan = outlay("plan", workload, "--json").document
    [option] = [one for one in plan["options"] if one["instance"] == H100[0]]
    assert option["quoted_usd_per_hour"] == 2.50
    agreed = tmp_path / "agreed.toml"
    agreed.write_text('[[discount]]\nprovider = "lambda"\nfraction = 0.1\nuntil = "2027-03-31"\n')
    assert outlay("prices", "import", agreed).code == 0
    # 10 % off Lambda's own prices ($4.29), and nothing off what was agreed ($2.50).
    prices = prices_of(outlay, "lambda")
    assert prices["gpu_1x_h100_sxm5", "any"] == pytest.approx(0.9 * 4.29)
    assert prices[H100] == 2.50


def test_offline_nobody_is_asked_and_everything_works(outlay, refreshed, workload, monkeypatch):
    monkeypatch.setenv("OUTLAY_OFFLINE", "1")
    assert outlay("prices", "refresh").code == 5
    assert outlay("plan", workload, "--refresh", "--json").code == 0
    assert prices_of(outlay, "lambda")[H100] == H100_USD
    assert refreshed.server.requests == []
