from __future__ import annotations

from dataclasses import fields
from datetime import date

import pytest
from currency_converter import CurrencyConverter
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import span

from outlay.errors import InputError, NotKnown, OutlayError
from outlay.units import DAY_S, HOUR_S
from outlay.workload.file import parse_workload, read_workload
from outlay.workload.tables import WorkloadFile
from outlay.workload.toml import keys_of, line_of, model_of_key, naming_line
from outlay.workload.workload import (
    Cadence,
    Checkpoint,
    Dataset,
    Evaluation,
    Feed,
    Length,
    Limits,
    OwnTime,
    Pause,
    Preferences,
    StoredData,
    Usage,
    WorthSwitching,
)

SMALL = """\
[step]
profile = "resnet50"
[length]
samples = 1000
"""


def refusal(text):
    """The error a text is refused with."""
    with pytest.raises(InputError) as caught:
        parse_workload(text, "w.toml")
    assert caught.value.exit_code == 2
    return caught.value


# --- what a file says ---


@pytest.mark.parametrize(
    ("length", "equal", "unequal"),
    [
        ('time = "40h"', True, False),
        ('time = "40h"\nhours_are_equal = true', True, False),
        ('time = "40h"\nhours_are_equal = false', False, True),
        ("samples = 1000", False, False),
        ("iterations = 1000", False, False),
    ],
)
def test_an_hour_is_an_hour_unless_the_file_says_otherwise(length, equal, unequal):
    read = parse_workload(SMALL.replace("samples = 1000", length)).length
    assert (read.is_equal_hours, read.is_unequal_hours) == (equal, unequal)


@pytest.mark.parametrize("value", ["true", "false"])
def test_hours_that_are_equal_need_hours(value):
    error = refusal(f"{SMALL}hours_are_equal = {value}\n")
    assert "hours_are_equal goes with time" in str(error)


def test_pauses_and_how_often_they_come():
    workload = parse_workload(
        SMALL
        + """
[evaluation]
every = "64_000 samples"
time = "5m"
times = "0.5..1.5"
[checkpoint]
interval = "1000 steps"
time = "30s"
times = 2
[[pause]]
name = "new epochs"
every = "250 steps"
time = "5s..15s"
"""
    )
    assert workload.evaluation == Evaluation(
        every=Cadence(samples=64_000), time_s=300, times=span(0.5, 1, 1.5)
    )
    assert workload.checkpoint == Checkpoint(interval=Cadence(steps=1000), time_s=30, times=2)
    time_s = span(5, 10, 15)
    assert workload.pauses == (Pause(name="new epochs", every=Cadence(steps=250), time_s=time_s),)


def test_pauses_by_the_epoch_need_its_samples():
    with pytest.raises(InputError, match="pause.every in epochs needs data.samples"):
        parse_workload(SMALL + '[[pause]]\nevery = "epoch"\ntime = "5s"\n')


@pytest.mark.parametrize(
    ("said", "mode"),
    [("true", "default"), ("false", "eager"), ('"max-autotune"', "max-autotune")],
)
def test_whether_a_step_is_compiled(said, mode):
    workload = parse_workload(SMALL.replace("[step]", f"[step]\ncompiled = {said}"))
    assert workload.step.compiled == mode


def test_the_smallest_file():
    workload = parse_workload(SMALL)
    assert workload.name == "training run"
    assert workload.step.profile == "resnet50"
    assert workload.step.batch_size is None
    assert workload.step.precision is None
    assert workload.length == Length(samples=1000)
    assert workload.data == Dataset()
    assert workload.checkpoint == Checkpoint()
    assert workload.usage == Usage()
    assert workload.limits == Limits()
    assert workload.consider.bundled
    assert workload.currency == "USD"
    assert workload.usd_per_unit == 1.0


def test_a_file_with_everything():
    workload = parse_workload("""
        name = "everything"
        [step]
        profile = "resnet50"
        batch_size = 64
        precision = "bf16"
        compiled = "reduce-overhead"
        [length]
        epochs = 90
        [data]
        samples = 1_000_000
        size = "150GB"
        preparation = "35m"
        prepared = "once"
        at = "aws"
        kept_at = "gcp"
        storage = "object"
        [checkpoint]
        size = "600MB"
        interval = "30m"
        kept = 3
        [usage]
        hours_per_day = 8
        machines = 2
        setup = "10m"
        keep_data = "14d"
        [limits]
        budget = 500
        deadline = "3d"
        [consider]
        gpus = ["H100"]
        providers = ["aws"]
        regions = ["us-east"]
        instances = ["p5*"]
        tenancies = ["spot"]
        max_gpus = 8
        bundled = false
        [leave_out]
        gpus = ["A100"]
        [[stored]]
        name = "images"
        size = "10GB"
        at = "aws"
        kind = "registry"
        pulled = "2GB"
        """)
    assert workload.name == "everything"
    assert (workload.step.batch_size, workload.step.precision) == (64, "bf16")
    assert workload.step.compiled == "reduce-overhead"
    assert workload.data == Dataset(
        samples=1_000_000,
        size_bytes=150e9,
        preparation_s=35 * 60,
        prepared_each_session=False,
        at="aws",
        kept_at="gcp",
        storage="object",
    )
    assert workload.checkpoint == Checkpoint(
        size_bytes=600e6, interval=Cadence(time_s=1800), kept=3
    )
    assert workload.usage == Usage(hours_per_day=8, machines=2, setup_s=600, storage_s=14 * DAY_S)
    assert workload.limits == Limits(budget_usd=500, deadline_s=3 * DAY_S)
    assert workload.consider.gpus == ("H100",)
    assert workload.consider.instances == ("p5*",)
    assert workload.consider.tenancies == ("spot",)
    assert workload.consider.max_gpus == 8
    assert not workload.consider.bundled
    assert workload.leave_out.gpus == ("A100",)
    assert workload.stored == (
        StoredData(name="images", size_bytes=10e9, at="aws", kind="registry", pulled_bytes=2e9),
    )
    # 90 epochs x 1,000,000
    assert workload.samples() == 90_000_000


def test_iterations_at_a_global_batch_are_samples():
    text = SMALL.replace("samples = 1000", "iterations = 200\nglobal_batch_size = 32")
    # 200 x 32 = 6400
    assert parse_workload(text).samples() == 6400


@pytest.mark.parametrize("length", ["iterations = 200", 'time = "6h"'])
def test_samples_may_depend_on_the_machine(length):
    workload = parse_workload(SMALL.replace("samples = 1000", length))
    assert workload.samples() is None


def test_time_is_read_in_seconds():
    workload = parse_workload(SMALL.replace("samples = 1000", 'time = "1h30m"'))
    assert workload.length.training_s == 1.5 * HOUR_S


def test_the_datasets_size_from_samples_and_their_size():
    workload = parse_workload(SMALL + '[data]\nsamples = 50\nsample_size = "2KB"\n')
    # 50 x 2000 bytes
    assert workload.data.size_bytes == 100_000


def test_batch_size_max_is_the_largest_that_fits():
    text = SMALL.replace("[length]", 'batch_size = "max"\n[length]')
    step = parse_workload(text).step
    assert step.batch_size is None
    assert not step.batch_left_open


def test_a_batch_of_which_nothing_is_said_is_left_open():
    assert parse_workload(SMALL).step.batch_left_open


def test_max_batch_size_is_a_limit_and_no_batch():
    text = SMALL.replace("[length]", "max_batch_size = 8\n[length]")
    step = parse_workload(text).step
    assert (step.batch_size, step.max_batch_size) == (None, 8)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("max_batch_size = 0", "step.max_batch_size = 0"),
        ('max_batch_size = "some"', "step.max_batch_size"),
        ("batch_size = 16\nmax_batch_size = 8", "batch_size is above max_batch_size"),
    ],
)
def test_a_max_batch_size_that_cannot_be(step, said):
    with pytest.raises(InputError, match=said):
        parse_workload(SMALL.replace("[length]", f"{step}\n[length]"))


def test_paths_start_from_the_files_folder(tmp_path):
    path = tmp_path / "outlay.toml"
    path.write_text(SMALL.replace('"resnet50"', '"mine.json"'), encoding="utf-8")
    assert read_workload(path).step.profile == str(tmp_path / "mine.json")
    path.write_text(
        SMALL.replace('profile = "resnet50"', 'target = "train.py:step"'), encoding="utf-8"
    )
    assert read_workload(path).step.target == str(tmp_path / "train.py:step")


def test_a_bundled_profile_is_not_a_path(tmp_path):
    path = tmp_path / "outlay.toml"
    path.write_text(SMALL, encoding="utf-8")
    assert read_workload(path).step.profile == "resnet50"


def test_an_offer_without_an_instance_is_named_by_its_place():
    offer = '[[offer]]\nprovider = "acme"\ngpu = "T4"\nprice_per_hour = 1\n'
    first, second = parse_workload(SMALL + offer + offer).quotes
    assert "quote 1" in first.instance
    assert "quote 2" in second.instance


# --- currency ---


def test_the_rate_is_the_newest_the_package_has():
    workload = parse_workload('currency = "eur"\n' + SMALL)
    rates = CurrencyConverter()
    assert workload.currency == "EUR"
    assert workload.usd_per_unit == rates.convert(1, "EUR", "USD")
    assert workload.rate_as_of == rates.bounds["USD"].last_date.isoformat()


def test_the_rate_of_a_day():
    workload = parse_workload('currency = "KRW"\ncurrency_day = 2024-05-31\n' + SMALL)
    assert workload.usd_per_unit == CurrencyConverter().convert(
        1, "KRW", "USD", date=date(2024, 5, 31)
    )
    assert workload.rate_as_of == "2024-05-31"


def test_a_rate_of_ones_own_goes_before_the_packages():
    workload = parse_workload('currency = "doubloon"\nusd_per_unit = 400.0\n' + SMALL)
    assert (workload.currency, workload.usd_per_unit) == ("DOUBLOON", 400.0)
    assert workload.rate_as_of == ""


def test_amounts_become_dollars():
    workload = parse_workload(f"""
        currency = "KRW"
        usd_per_unit = 0.0008
        {SMALL}
        [limits]
        budget = 1000
        [[offer]]
        provider = "acme"
        gpu = "T4"
        price_per_hour = 2
        spot_per_hour = 1
        [[machine]]
        name = "desk"
        gpu = "T4"
        electricity_per_kwh = 0.5
        purchase = 2000
        resale = 400
        use = "1000h"
        wear_per_hour = 0.25
        maintenance_per_year = 120
        [prefer]
        waiting_per_hour = 3
        [own_time]
        per_hour = 30
        [[provider]]
        name = "aws"
        volume_per_gb_month = 0.1
        object_per_gb_month = 0.2
        registry_per_gb_month = 0.3
        egress_per_gb = 0.4
        egress_free_gb_per_month = 100
        between_regions_per_gb = 0.6
        copying_machine_per_hour = 0.7
        credit = 50
        """)
    usd = 0.0008
    assert (workload.currency, workload.usd_per_unit) == ("KRW", usd)
    assert workload.limits.budget_usd == pytest.approx(1000 * usd)
    quote, machine, terms = workload.quotes[0], workload.workstations[0], workload.terms[0]
    assert quote.price_usd_per_hour == pytest.approx(2 * usd)
    assert quote.spot_usd_per_hour == pytest.approx(usd)
    assert machine.electricity_usd_per_kwh == pytest.approx(0.5 * usd)
    assert machine.purchase_usd == pytest.approx(2000 * usd)
    assert machine.resale_usd == pytest.approx(400 * usd)
    assert machine.wear_usd_per_hour == pytest.approx(0.25 * usd)
    assert machine.maintenance_usd_per_year == pytest.approx(120 * usd)
    assert workload.prefer.waiting_usd_per_hour == pytest.approx(3 * usd)
    assert workload.own_time.usd_per_hour == pytest.approx(30 * usd)
    assert terms.credit_usd == pytest.approx(50 * usd)
    assert terms.volume_usd_per_gb_month == pytest.approx(0.1 * usd)
    assert terms.object_usd_per_gb_month == pytest.approx(0.2 * usd)
    assert terms.registry_usd_per_gb_month == pytest.approx(0.3 * usd)
    assert terms.egress_usd_per_gb == pytest.approx(0.4 * usd)
    assert terms.between_regions_usd_per_gb == pytest.approx(0.6 * usd)
    assert terms.copying_machine_usd_per_hour == pytest.approx(0.7 * usd)
    # An amount of data is no money.
    assert terms.egress_free_gb_per_month == 100


# --- ranges, intervals, and the tables of costs ---


def test_durations_and_amounts_may_be_ranges():
    workload = parse_workload(
        SMALL
        + """
        [data]
        preparation = "30m..40m"
        upload_mbit = "10..30"
        [usage]
        setup = "10m .. 20m"
        idle = "5m"
        [[machine]]
        name = "desk"
        gpu = "T4"
        electricity_per_kwh = "0.20..0.40"
        purchase = "1_000..1,500"
        resale_fraction = 0.4
        use = "1000h"
        """
    )
    # the middle is the likely one
    assert workload.data.preparation_s == span(1800, 2100, 2400)
    # 20 Mbit/s are 2.5 MB/s
    assert workload.data.upload_bytes_per_s == span(1.25e6, 2.5e6, 3.75e6)
    assert workload.usage.setup_s == span(600, 900, 1200)
    assert workload.usage.idle_s == 300
    machine = workload.workstations[0]
    found = machine.electricity_usd_per_kwh
    assert (found.low, found.likely, found.high) == pytest.approx((0.2, 0.3, 0.4))
    assert machine.purchase_usd == span(1000, 1250, 1500)
    assert machine.resale_fraction == 0.4


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("epoch", Cadence(epochs=1)),
        ("every epoch", Cadence(epochs=1)),
        ("5 epochs", Cadence(epochs=5)),
        ("0.5 epochs", Cadence(epochs=0.5)),
        ("1000 steps", Cadence(steps=1000)),
        ("10_000 iterations", Cadence(steps=10_000)),
        ("Step", Cadence(steps=1)),
        ("51_200 samples", Cadence(samples=51_200)),
        ("2000000000000 samples", Cadence(samples=2e12)),
        ("30m", Cadence(time_s=1800)),
    ],
)
def test_intervals(text, every):
    added = f"""
        [data]
        samples = 10
        [checkpoint]
        interval = "{text}"
        [evaluation]
        every = "{text}"
        samples = 500
        """
    workload = parse_workload(SMALL + added)
    assert workload.checkpoint.interval == every
    assert workload.evaluation == Evaluation(every=every, samples=500)


def test_what_costs_besides():
    workload = parse_workload(
        """
        tax = "de"
        [step]
        profile = "resnet50"
        [length]
        samples = 1000
        [data]
        results = "5GB"
        storage = "disk"
        [checkpoint]
        on_notice = true
        [evaluation]
        every = "1h"
        time = "5m"
        [usage]
        sessions_per_month = 4
        horizon = "2 years"
        [own_time]
        per_hour = 40
        each_session = "15m"
        once = "2h"
        [prefer]
        waiting_per_hour = 3
        providers = ["aws"]
        premium = 0.1
        [[offer]]
        provider = "acme"
        gpu = "T4"
        price_per_hour = 1
        term = "1 year"
        interruptions_per_month = "1..5"
        [[machine]]
        name = "desk"
        gpu = "T4"
        years = 4
        utilisation = "student desktop"
        parts = { gpu = 900, rest = 600.5 }
        idle_watts = 50
        maintenance_per_year = 100
        interest_per_year = 0.05
        others_use = "100h"
        [[provider]]
        name = "aws"
        discount = 0.1
        credit = 300
        """
    )
    # Germany's value added tax
    assert workload.tax_fraction == 0.19
    assert (workload.data.results_bytes, workload.data.storage) == (5e9, "disk")
    assert workload.checkpoint.on_notice
    assert workload.evaluation == Evaluation(every=Cadence(time_s=HOUR_S), time_s=300)
    assert workload.usage.horizon_s == 2 * 365 * DAY_S
    assert workload.own_time == OwnTime(usd_per_hour=40, session_s=900, once_s=2 * HOUR_S)
    assert workload.prefer == Preferences(
        waiting_usd_per_hour=3, providers=("aws",), premium_fraction=0.1
    )
    quote, machine, terms = workload.quotes[0], workload.workstations[0], workload.terms[0]
    assert quote.term_s == 365 * DAY_S
    assert quote.interruptions_per_month == span(1, 3, 5)
    # 900 + 600.50; 15 % of four years
    assert machine.purchase_usd == 1500.5
    assert (machine.years, machine.utilisation) == (4, 0.15)
    assert (machine.idle_w, machine.maintenance_usd_per_year) == (50, 100)
    assert (machine.interest_per_year, machine.others_use_s) == (0.05, 100 * HOUR_S)
    assert (terms.discount_fraction, terms.credit_usd) == (0.1, 300)


def test_the_keys_of_cash():
    workload = parse_workload(
        "currency = 'KRW'\nusd_per_unit = 0.001\n"
        + SMALL
        + """
        [usage]
        interest_per_year = 0.06
        [limits]
        cash_upfront = 3_000_000
        [[offer]]
        provider = "acme"
        gpu = "T4"
        price_per_hour = 1000
        setup_cost = "40_000..60_000"
        term = "1 year"
        upfront = 500_000
        """
    )
    assert workload.usage.interest_per_year == 0.06
    # a thousandth of a dollar each
    assert workload.limits.cash_upfront_usd == pytest.approx(3000)
    (quote,) = workload.quotes
    fee = quote.setup_cost_usd
    assert (fee.low, fee.likely, fee.high) == pytest.approx((40, 50, 60))
    assert quote.upfront_usd == pytest.approx(500)


def test_an_upfront_payment_goes_with_a_term():
    with pytest.raises(InputError, match="upfront goes with term"):
        parse_workload(
            SMALL + "[[offer]]\nprovider = 'acme'\ngpu = 'T4'\nprice_per_hour = 1\nupfront = 5"
        )


def test_a_tax_rate_is_taken_as_it_is():
    assert parse_workload("tax = 0.085\n" + SMALL).tax_fraction == 0.085


@pytest.mark.parametrize(
    ("added", "what"),
    [
        ('tax = "atlantis"', "No place with a tax rate is known as 'atlantis'"),
        ("currency_day = 1990-01-01\ncurrency = 'EUR'", "no exchange rate of EUR on 1990-01-01"),
    ],
)
def test_refused_taxes_and_days(added, what):
    assert what in str(refusal(f"{added}\n{SMALL}"))


def test_an_unknown_currency_is_refused():
    error = refusal('currency = "doubloon"\n' + SMALL)
    assert isinstance(error, NotKnown)
    assert "'doubloon'" in str(error)
    assert "usd_per_unit" in error.fix


# --- what is refused, and what the message names ---


@pytest.mark.parametrize(
    ("added", "line", "said"),
    [
        # unknown keys, with the one that was meant
        ("[limits]\nbudgt = 3\n", 6, "there is no key 'limits.budgt'. Did you mean 'budget'?"),
        ("[limit]\nbudget = 3\n", 5, "there is no key 'limit'. Did you mean 'limits'?"),
        (
            '[[offer]]\ngpu = "T4"\nprovider = "a"\n[[offer]]\ngpu="T4"\nnot=1\nprovider = "b"\n',
            10,
            "there is no key 'not' in the 2nd [[offer]]. Did you mean 'note'?",
        ),
        ("[usage]\nzzzzzz = 3\n", 6, "Known here: sessions_per_month, hours_per_day"),
        # negative, zero, absurd
        ("[limits]\nbudget = -5\n", 6, "limits.budget = -5: it should be greater than 0"),
        ("[limits]\nbudget = 1e12\n", 6, "limits.budget"),
        ("[limits]\nbudget = nan\n", 6, "limits.budget = nan"),
        ("[limits]\nbudget = inf\n", 6, "limits.budget = inf"),
        ('[limits]\ndeadline = "-3d"\n', 6, "limits.deadline = '-3d'"),
        ('[limits]\ndeadline = "0s"\n', 6, "it must be above zero"),
        ('[limits]\ndeadline = "200 years"\n', 6, "at most a hundred years"),
        ('[data]\nsize = "5000000TB"\n', 6, "at most an exabyte"),
        ("[usage]\nhours_per_day = 25\n", 6, "usage.hours_per_day = 25"),
        ("[usage]\nmachines = 0\n", 6, "usage.machines = 0"),
        ("[checkpoint]\nkept = -1\n", 6, "checkpoint.kept = -1"),
        ('[[offer]]\nprovider = "a"\ngpu = "T4"\nprice_per_hour = 0\n', 8, "greater than 0"),
        ('[[offer]]\nprovider = "a"\ngpu = "T4"\nprice_per_hour = -1\n', 8, "greater than 0"),
        (
            '[[offer]]\nprovider = "a"\ngpu = "T4"\ngpus = 999999\n',
            8,
            "the 1st [[offer]], gpus = 999999",
        ),
        ('[[machine]]\nname = "a"\ngpu = "T4"\npue = 0.5\n', 8, "the 1st [[machine]], pue = 0.5"),
        # wrong type
        ("[limits]\ndeadline = 3\n", 6, "a duration needs a unit in quotes"),
        ("[data]\nsize = 100\n", 6, "a size needs a unit in quotes"),
        ('[limits]\ndeadline = "soon"\n', 6, "a duration is a number with a unit"),
        ('[data]\nsize = "big"\n', 6, "a size is a number with a unit"),
        ('[limits]\nbudget = "much"\n', 6, "limits.budget = 'much'"),
        ("[usage]\nmachines = 1.5\n", 6, "usage.machines = 1.5"),
        (
            '[consider]\ngpus = "H100"\n',
            6,
            "'H100': it should be a list: gpus = [...]",
        ),
        ('[consider]\ntenancies = ["spott"]\n', 6, "'on-demand', 'spot', 'reserved' or 'owned'"),
        ('[offer]\nprovider = "a"\ngpu = "T4"\n', 5, "offer"),
        ('[[offer]]\nprovider = "a"\ngpu = "T4"\nas_of = "soon"\n', 8, "it is not a date"),
        ('[data]\nprepared = "twice"\n', 6, "'each session' or 'once'"),
        # missing
        ('[[offer]]\nprovider = "a"\n', 5, "'gpu' in the 1st [[offer]] is missing"),
        ('[[machine]]\ngpu = "T4"\n', 5, "'name' in the 1st [[machine]] is missing"),
        ('[[stored]]\nname = "x"\n', 5, "'size' in the 1st [[stored]] is missing"),
        # contradictions
        ("[usage]\nsessions_per_month = 2\nhours_per_day = 3\n", 5, "not both"),
        ('[evaluation]\nevery = "1h"\n', 5, "give exactly one of samples and time"),
        (
            '[[machine]]\nname = "a"\ngpu = "T4"\npurchase = 9\nparts = { a = 1 }\nuse = "1h"\n',
            5,
            "give purchase or parts, not both",
        ),
        # ranges and intervals
        ('[usage]\nsetup = "20m..10m"\n', 6, "a range goes from the smaller to the larger"),
        ('[usage]\nsetup = "10..20"\n', 6, "a duration is a number with a unit"),
        ('[checkpoint]\ninterval = "0 steps"\n', 6, "an interval must be above zero"),
        ("[checkpoint]\ninterval = 30\n", 6, "an interval is"),
        ('[data]\nupload_mbit = "-5..5"\n', 6, "is not an amount from 0 to 1e9"),
        ('[[machine]]\nname = "a"\ngpu = "T4"\npurchase = 9\n', 5, "a machine to be bought needs"),
        (
            '[[machine]]\nname = "a"\ngpu = "T4"\npurchase = 9\nresale = 10\nuse = "1h"\n',
            5,
            "resale is above purchase",
        ),
    ],
)
def test_refused_with_line_and_key(added, line, said):
    message = str(refusal(SMALL + added))
    assert message.startswith(f"w.toml, line {line}: ")
    assert said in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[length]\nsamples = 1\n", "w.toml: 'step' is missing"),
        ('[step]\nprofile = "x"\n', "w.toml: 'length' is missing"),
        (
            "[step]\n[length]\nsamples = 1\n",
            "line 1: step: give exactly one of profile, target and model",
        ),
        (
            '[step]\nprofile = "x"\nmethod = "lora"\n[length]\nsamples = 1\n',
            "line 1: step: method, tokens, settings and trust_remote_code go with model",
        ),
        (
            '[step]\nprofile = "x"\ntarget = "y:z"\n[length]\nsamples = 1\n',
            "line 1: step: give exactly one of profile, target and model",
        ),
        ('[step]\nprofile = "x"\n[length]\n', "line 3: length: give exactly one of samples"),
        (
            '[step]\nprofile = "x"\n[length]\nsamples = 1\nepochs = 2\n',
            "line 3: length: give exactly one of samples",
        ),
        (
            '[step]\nprofile = "x"\n[length]\nsamples = 1\nglobal_batch_size = 2\n',
            "line 3: length: global_batch_size goes with iterations",
        ),
        (
            '[step]\nprofile = "x"\n[length]\nepochs = 2\n',
            "length.epochs needs data.samples",
        ),
        (
            '[step]\nprofile = "x"\nbatch_size = 0\n[length]\nsamples = 1\n',
            "line 3: step.batch_size = 0",
        ),
        (
            '[step]\nprofile = "x"\nprecision = "fp4"\n[length]\nsamples = 1\n',
            "line 3: step.precision = 'fp4'",
        ),
        ('[step]\nprofile = ""\n[length]\nsamples = 1\n', "line 2: step.profile = ''"),
        ('[step]\nprofile = "x"\n[length]\nsamples = -1\n', "line 4: length.samples = -1"),
        ('[step]\nprofile = "x"\n[length]\nsamples = 1e20\n', "line 4: length.samples = 1e+20"),
        ("", "'step' is missing (1 more after this one)"),
    ],
)
def test_refused_step_or_length(text, said):
    assert said in str(refusal(text))


@pytest.mark.parametrize("text", ["[step", "samples = ", "budget = 5 euros", "{json: 1}", "a\x00"])
def test_not_toml(text):
    error = refusal(text)
    assert error.what.startswith("w.toml is not valid TOML")
    assert "quotes" in error.fix


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="There is no workload file .*nowhere.toml") as caught:
        read_workload(tmp_path / "nowhere.toml")
    assert caught.value.exit_code == 2
    assert "outlay init" in caught.value.fix


@pytest.mark.parametrize("content", [b"\xff\xfe\x00\x01", b"\x89PNG\r\n\x1a\n\x00"])
def test_a_binary_file(tmp_path, content):
    path = tmp_path / "picture.png"
    path.write_bytes(content)
    with pytest.raises(InputError, match="picture.png") as caught:
        read_workload(path)
    assert caught.value.exit_code == 2


def test_a_folder_is_no_workload_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_workload(tmp_path)


def test_a_message_from_a_file_names_its_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL + "[limits]\nbudget = -1\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_workload(path)
    assert str(caught.value).startswith(f"{path}, line 6: limits.budget = -1")


@given(st.text(max_size=60))
@settings(deadline=None)
def test_any_text_is_read_or_refused_in_words(text):
    said = None
    try:
        parse_workload(text)
    except OutlayError as error:
        said = error
    assert said is None or said.exit_code == 2


# --- lines ---

TEXT = """\
name = "x"
[limits]
budget = 5

[[offer]]
gpu = "T4"
[[offer]]
gpu = "L4"
price = 3
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (["name"], 1),
        (["limits"], 2),
        (["limits", "budget"], 3),
        (["limits", "deadline"], 2),
        (["offer", 0, "gpu"], 6),
        (["offer", 1, "gpu"], 8),
        (["offer", 1, "price"], 9),
        (["offer", 0, "price"], 5),
        (["offer", 1, "region"], 7),
        (["step"], None),
        ([], None),
    ],
)
def test_line_of(path, line):
    assert line_of(TEXT, path) == line


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('[data]\ndownload_mbit = "0..100"', "above zero"),
        ("[data]\nupload_mbit = 0", "above zero"),
        (
            '[[machine]]\nname = "m"\ngpu = "T4"\npurchase = 1000\nresale_fraction = 3\nuse = "9h"',
            "from 0 to 1",
        ),
    ],
)
def test_rates_and_shares_have_bounds(more, why):
    with pytest.raises(InputError, match=why):
        parse_workload(f'[step]\nprofile = "resnet50"\n[length]\nsamples = 1e7\n{more}')


def test_the_usual_desktop_is_a_preset():
    machine = '[[machine]]\nname = "m"\ngpu = "T4"\nyears = 3\nutilisation = "usual desktop"'
    workload = parse_workload(
        f'[step]\nprofile = "resnet50"\n[length]\nsamples = 1e7\n{machine}\npurchase = 1000'
    )
    assert workload.workstations[0].utilisation == 0.075


# --- tables and the dataclasses they become ---

TABLES = dict.fromkeys(
    filter(None, (model_of_key(WorkloadFile, key) for key in keys_of(WorkloadFile)))
)
FOLDED = {
    "DataTable": {"sample_size", "prepared", *(field.name for field in fields(Feed))},
    "PreferTable": {"access", "quota", "persistent_disk", "driver_image"},
}
"""Keys that go into a field of another name."""


@pytest.mark.parametrize("table", [WorkloadFile, *TABLES], ids=lambda table: table.__name__)
def test_every_field_of_a_table_is_one_of_its_dataclass(table):
    others = set(table.model_fields) - {field.name for field in fields(table.dataclass())}
    assert others == FOLDED.get(table.__name__, set())


# --- risk, ties and chances ---


def preferred(text):
    return parse_workload(SMALL + text).prefer


def test_what_of_an_uncertain_cost_counts():
    assert preferred("").risk == "expected"
    assert preferred("[prefer]\nrisk = 'p90'\n").risk == "p90"
    with pytest.raises(InputError, match="risk"):
        preferred("[prefer]\nrisk = 'best'\n")


@pytest.mark.parametrize(
    ("written", "worth"),
    [
        ("{}", WorthSwitching(usd=5.0, fraction=0.05, wins=0.6)),
        ("{amount = 20, fraction = 0.1}", WorthSwitching(usd=20.0, fraction=0.1)),
        ("{wins = 0.7}", WorthSwitching(wins=0.7)),
        ("20", WorthSwitching(usd=20.0, fraction=1.0)),
        ("0", WorthSwitching(usd=0.0, fraction=0.0, wins=0.0)),
    ],
)
def test_what_is_worth_switching(written, worth):
    assert preferred(f"[prefer]\nworth_switching = {written}\n").worth_switching == worth


def test_amounts_worth_switching_are_in_the_files_currency_and_defaults_in_dollars():
    text = "currency = 'EUR'\nusd_per_unit = 2\n" + SMALL
    prefer = parse_workload(text + "[prefer]\nworth_switching = 3\nper_start = 4\n").prefer
    assert (prefer.worth_switching.usd, prefer.usd_per_start) == (6, 8)
    assert parse_workload(text).prefer.worth_switching.usd == 5


def test_what_spot_asks_of_a_person_may_be_nothing():
    prefer = preferred("[prefer]\nper_interruption = 0\nper_start = 2.5\n")
    assert (prefer.usd_per_interruption, prefer.usd_per_start) == (0, 2.5)
    assert preferred("").usd_per_interruption is None


def test_limits_are_kept_with_a_chance():
    assert parse_workload(SMALL).limits.confidence == 0.8
    limits = parse_workload(SMALL + "[limits]\nconfidence = 0.95\n").limits
    assert limits.confidence == 0.95
    with pytest.raises(InputError, match="confidence"):
        parse_workload(SMALL + "[limits]\nconfidence = 1.5\n")


# --- every key, wrong in every way: one message in plain words, with the value and the line ---

ODD = {
    "empty": '""',
    "text": '"abc"',
    "not a number": "nan",
    "endless": "inf",
    "negative": "-1",
    "huge": "1e300",
    "huge count": "9" * 40,
    "truth": "true",
    "list": "[true]",
    "table": "{abc = 1}",
    "day": "2026-11-01",
    "endless duration": '"1e999h"',
    "backwards": '"5h..2h"',
}
NEEDED = {
    "step": 'profile = "resnet50"',
    "length": "samples = 1000",
    "evaluation": 'every = "1000 steps"\nsamples = 5',
    "own_time": "per_hour = 1",
    "run": 'command = "x"',
    "offer": 'provider = "a"\ngpu = "T4"',
    "machine": 'name = "m"\ngpu = "T4"',
    "provider": 'name = "aws"',
    "stored": 'name = "x"\nsize = "1GB"',
    "pause": 'every = "1000 steps"\ntime = "1s"',
    "host": 'address = "a"',
}
REPEATED = {"offer", "machine", "provider", "stored", "pause", "host"}


def keys_below(table, path=()):
    """Every key of a table and the tables in it: (`run`, `watch`, `idle`)."""
    for key in keys_of(table):
        inner = model_of_key(table, key)
        if inner is None:
            yield (*path, key)
        else:
            yield from keys_below(inner, (*path, key))


def with_odd(path, value):
    """A small file with one odd value, and its line."""
    *tables, key = path
    lines = [] if tables else [f"{key} = {value}"]
    for name in dict.fromkeys(("step", "length", *tables[:1])):
        inner = [tables[: n + 1] for n in range(len(tables))] if tables[:1] == [name] else [[name]]
        for place in inner:
            dotted = ".".join(place)
            lines.append(f"[[{dotted}]]" if place[-1] in REPEATED else f"[{dotted}]")
            needed = NEEDED.get(place[-1], "").splitlines()
            is_its = place == tables
            lines += [one for one in needed if not (is_its and one.split(" =")[0] == key)]
            lines += [f"{key} = {value}"] * is_its
    return "\n".join(lines) + "\n", lines.index(f"{key} = {value}") + 1


PYDANTIC = ("valid", "a integer", "Input", "string", "type=", "match pattern", "datetime", "True")


def said_of(text):
    """What is said of a text; nothing where it is taken."""
    try:
        parse_workload(text, "w.toml")
    except OutlayError as error:
        return error
    return None


@pytest.mark.parametrize("kind", ODD)
def test_every_key_says_what_is_wrong_with_an_odd_value(kind):
    errors = []
    for path in keys_below(WorkloadFile):
        text, line = with_odd(path, ODD[kind])
        errors.append((f"{path[-1]} = ", line, said_of(text)))
    refused = [(key, line, error) for key, line, error in errors if error is not None]
    assert len(refused) > 10
    for key, line, error in refused:
        # of two keys that do not agree, the line is their table's
        place = f"w.toml, line {line}: " if key in error.what else "w.toml, line "
        assert error.exit_code == 2
        assert error.what.startswith(place), str(error)
        assert not error.what.endswith(".."), str(error)
        assert not [word for word in PYDANTIC if word in str(error)], str(error)


@pytest.mark.parametrize("kind", ["not a number", "endless", "huge"])
def test_no_key_takes_a_number_that_is_none(kind):
    for path in keys_below(WorkloadFile):
        text, _ = with_odd(path, ODD[kind])
        with pytest.raises(InputError):
            parse_workload(text, "w.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("step.batch_size = 1.5", "step.batch_size = 1.5: it should be a whole number, or 'max'."),
        ("tax = true", "tax = true: it should be a number, or a text in quotes."),
        ("limits.budget = nan", "limits.budget = nan: it should be a number, which nan is not."),
        ("length.iterations = 1e3", "length.iterations = 1000.0: it should be a whole number"),
        ("name = 2026-11-01", "name = 2026-11-01: it should be a text in quotes."),
        ("name = [1, {a = true}]", "name = [1, {a = true}]: it should be a text in quotes."),
        ("usage.hours_per_day = 25", "usage.hours_per_day = 25: it should be at most 24."),
        ("run.slurm.account = 'a b'", "it should be a word of letters, digits and _ . : , -."),
        ("prefer.worth_switching = 'x'", "write [prefer.worth_switching] on a line of its own"),
        ("pause = ['x']", "it is a table: write [[pause]] on a line of its own"),
        ("tax = 'XY'", "No place with a tax rate is known as 'XY'."),
        ("currency = 'EUX'", "No currency is known as 'EUX'."),
        ("machine = [{name = 'a', gpu = 'T4', utilisation = 'lazy'}]", "No utilisation is known"),
    ],
)
def test_a_message_is_in_the_words_of_the_file(text, words):
    needed = "" if text.startswith("step") else "step.profile = 'resnet50'\n"
    needed += "" if text.startswith("length") else "length.samples = 1000\n"
    more = "run.command = 'x'\n" if text.startswith("run") else ""
    profile = "step.profile = 'resnet50'\n" if text.startswith("step") else ""
    error = refusal(f"{needed}{more}{profile}{text}\n")
    assert words in str(error)
    assert error.what.startswith("w.toml, line ")


def test_the_21st_and_the_12th_are_named_so():
    offers = '[[offer]]\nprovider = "a"\ngpu = "T4"\n'
    for number, name in ((12, "12th"), (21, "21st"), (3, "3rd")):
        error = refusal(SMALL + offers * (number - 1) + "[[offer]]\nnot = 1\n" + offers)
        assert f"there is no key 'not' in the {name} [[offer]]" in error.what


# --- names that nobody knows, whoever finds out ---


@pytest.mark.parametrize("line", ["gpus = ['T4', 'RTX 3099']", 'gpus = ["RTX 3099"]  # two'])
def test_an_error_about_a_name_has_its_line(line):
    text = f"# RTX 3099\n[consider]\n{line}\n"
    with pytest.raises(NotKnown) as caught, naming_line(text, "w.toml"):
        raise NotKnown("GPU", "RTX 3099", ["RTX 3090"])
    assert str(caught.value).startswith("w.toml, line 3: No GPU is known as 'RTX 3099'.")


def test_an_error_about_a_key_of_an_inline_table_has_its_line():
    text = "[step]\nsettings = {tokens = 5, rank = 3}\n"
    with pytest.raises(NotKnown) as caught, naming_line(text, "w.toml"):
        raise NotKnown("setting", "rank", ["lora_rank"])
    assert caught.value.what.startswith("w.toml, line 2: ")


def test_an_error_about_what_the_file_has_not_stays_as_it_is():
    with pytest.raises(NotKnown) as caught, naming_line("[consider]\ngpus = ['T4']\n", "w.toml"):
        raise NotKnown("GPU", "RTX 3099", ["RTX 3090"])
    assert caught.value.what == "No GPU is known as 'RTX 3099'."


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("hf:./tiny", "hf:{folder}/tiny"),
        ("hf:../tiny", "hf:{folder}/../tiny"),
        ("hf:/models/tiny", "hf:/models/tiny"),
        ("hf:owner/tiny", "hf:owner/tiny"),
        ("llama-3.2-1b", "llama-3.2-1b"),
    ],
)
def test_a_models_folder_is_looked_for_from_the_file(written, read, tmp_path):
    text = f'[step]\nmodel = "{written}"\ntokens = 64\n[length]\nsamples = 1\n'
    step = parse_workload(text, folder=tmp_path).step
    assert (step.model, step.tokens) == (read.format(folder=tmp_path), 64)
