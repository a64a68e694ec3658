"""Price lists of one's own: what is read of them, what is refused, where they are kept."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import an_offer

from outlay import currency
from outlay.currency import in_usd, known_rates, read_rates, usd_per_unit
from outlay.errors import InputError, NotKnown, ProviderError
from outlay.offers.offer import AgreedDiscount, Offer
from outlay.prices.list_files import parse_list
from outlay.prices.own_lists import (
    RATES_ADDRESS,
    discounted,
    import_list,
    imported_prices,
    kept_summaries,
    own_first,
    own_offers,
    refresh_rates,
    remove_list,
    unknown_own_offers,
)
from outlay.prices.sources import Reply, Validators
from outlay.units import GIB

TODAY = "2026-11-17"
OFFERS = """provider,instance,gpu,gpus,region,price_per_hour,as_of
acme,h8,H100 SXM,8,eu-1,16.0,2026-11-01
"""
EDP = """
[[discount]]
provider = "aws"
instance = "p4d*"
fraction = 0.15
until = "2027-03-31"
note = "EDP"
"""


def parsed(text, **days):
    return parse_list(text.encode(), "mine", "mine.csv", **{"today": TODAY, **days})


def one(text, **days) -> Offer:
    [offer] = parsed(text, **days).offers
    return offer


@pytest.fixture
def keep(tmp_path):
    def put(text, file="mine.csv", name=""):
        path = tmp_path / file
        path.write_text(text, encoding="utf-8")
        return import_list(path, TODAY, name)

    return put


# --- offers ---


def test_an_offer_of_a_list_is_what_it_says():
    offer = one(OFFERS)
    assert offer.identity == ("acme", "h8", "eu-1")
    assert (offer.gpu, offer.gpus, offer.price_usd_per_hour) == ("H100 SXM", 8, 16.0)
    assert (offer.as_of, offer.source) == ("2026-11-01", "your price list mine")
    assert (offer.in_own_list, offer.is_promised, offer.quoted) == (True, True, False)
    assert offer.spot_usd_per_hour is None


def test_heads_as_people_write_them():
    text = (
        "Provider;Instance type;GPU type;Number of GPUs;Location;Price/hr (€);Spot price per hour;"
        "RAM (GiB);vCPUs;Date;Source\n"
        "acme;a8;A100 80GB;2;eu-1;4.00;1.50;512;64;2026-11-01;their mail\n"
    )
    offer = one(text)
    rate, day = usd_per_unit("EUR")
    assert offer.price_usd_per_hour == pytest.approx(4 * rate)
    assert offer.spot_usd_per_hour == pytest.approx(1.5 * rate)
    assert (offer.ram_bytes, offer.vcpus, offer.region) == (512 * GIB, 64, "eu-1")
    assert offer.source == (
        f"your price list mine: their mail; 1 EUR is ${rate:.5g}, the rate of {day}"
    )


def test_a_price_of_one_gpu_is_that_times_their_number():
    # 1.25 x 8 = 10
    head = "provider,gpu,gpus,price_per_gpu_hour,as_of\n"
    assert one(head + "acme,H100,8,1.25,2026-11-01\n").price_usd_per_hour == 10.0


def test_sizes_have_their_unit_in_the_head_or_in_the_cell():
    head = "provider,gpu,price_per_hour,as_of,local_disk,ram_gib\n"
    offer = one(head + "acme,L4,1,2026-11-01,3.84TB,64\n")
    assert (offer.local_disk_bytes, offer.ram_bytes) == (3.84e12, 64 * GIB)


def test_lines_of_nothing_and_remarks_are_no_offers():
    text = "# of; the; spring\n\n" + OFFERS + "\n# and summer\n,,,,,,\n"
    assert len(parsed(text).offers) == 1


def test_toml_has_the_keys_of_a_workload_file():
    text = """
    currency = "EUR"
    as_of = "2026-11-01"
    [[offer]]
    provider = "Acme"
    gpu = "H100 SXM"
    gpus = 8
    price_per_hour = 20.0
    setup = "20m"
    network_gbit = 400
    disk_mb_per_s = "1000..2000"
    valid_until = "2026-12-31"
    """
    own = parsed(text)
    [offer] = own.offers
    assert offer.price_usd_per_hour == pytest.approx(20 * in_usd("EUR"))
    assert (offer.instance, offer.as_of, offer.setup_s) == ("8x H100 SXM", "2026-11-01", 1200)
    assert offer.network_bytes_per_s == 400e9 / 8
    assert own.offers_on("2026-12-31") == (offer,)
    assert own.offers_on("2027-01-01") == ()


def test_a_rate_of_ones_own_is_taken():
    text = 'currency = "EUR"\nusd_per_unit = 2.0\nas_of = "2026-11-01"\n'
    offer = one(text + '[[offer]]\nprovider = "a"\ngpu = "L4"\nprice_per_hour = 3\n')
    assert offer.price_usd_per_hour == 6.0
    assert offer.source.endswith("1 EUR is $2, your rate")


def test_a_gpu_nobody_knows_is_kept_and_named(keep):
    taken = keep(OFFERS + "acme,x1,RTX 9999,1,eu-1,0.5,2026-11-01\n")
    assert (taken.rows, taken.gpus, taken.unknown) == (2, ("H100 SXM",), ("RTX 9999",))
    assert [offer.instance for offer in own_offers(TODAY)] == ["h8"]
    assert [offer.gpu for offer in unknown_own_offers(TODAY)] == ["RTX 9999"]


BAD_LISTS = [
    ("", "is empty", ""),
    ("provider,gpu,price_per_hour,as_of\n", "no line below it", ""),
    ("prvider,gpu,price_per_hour\na,L4,1\n", "line 1: there is no column 'prvider'", "'provider'"),
    ("provider,gpu,pris_per_hour\na,L4,1\n", "no column 'pris_per_hour'", "'price_per_hour'"),
    ("provider,price_per_hour\na,1\n", "line 1: there is no column 'gpu'", ""),
    ("provider,gpu,price,price_per_hour\na,L4,1,1\n", "are both price_per_hour", ""),
    ("provider,gpu,memory_gb,price\na,L4,24,1\n", "there is no column 'memory_gb'", ""),
    (OFFERS + "acme,h8,H100,8,eu-1,20,2026-11-02\n", "line 3: acme / h8 / eu-1 is there", ""),
    (OFFERS + "acme,h9,H100,8\n", "line 3: 4 cells where the head has 7", ""),
    (OFFERS.replace("16.0", "0"), "line 2: price_per_hour = 0: it should be greater than 0", ""),
    (OFFERS.replace("16.0", "-3"), "line 2: price_per_hour: '-3' is no number", ""),
    (OFFERS.replace("16.0", "free"), "line 2: price_per_hour: 'free' is no number", ""),
    (OFFERS.replace("16.0", ""), "line 2: the offer has no price", ""),
    (OFFERS.replace("16.0", "nan"), "'nan' is no number", ""),
    (OFFERS.replace(",8,", ",2.5,"), "line 2: gpus = 2.5: no whole number", ""),
    (OFFERS.replace("acme", ""), "line 2: provider is empty", ""),
    (OFFERS.replace("2026-11-01", "1/11/2026"), "as_of = 1/11/2026: it is not a date", ""),
    (OFFERS.replace("2026-11-01", "2026-12-01"), "line 2: as_of is 2026-12-01, a day to come", ""),
    (OFFERS.replace("2026-11-01", ""), "line 2: it is not said of which day", ""),
    ("provider;gpu;price\na;L4;1,25\n", "'1,25' is no number", "point"),
    ("provider;gpu;price\na;L4;1,299\n", "'1,299' is no number", "point"),
    ('provider,gpu,price\na,L4,"1,25"\n', "'1,25' is no number", "point"),
    ("provider,gpu,price,ram\na,L4,1,64\n", "line 2: ram = 64 has no unit", "ram_gib"),
    ("provider,gpu,price_eur,currency\na,L4,1,USD\n", "in EUR and USD at once", ""),
    ("provider,gpu,price,currency\na,L4,1,EUX\n", "line 2: No currency is known as 'EUX'", "EUR"),
    ("provider,gpu,price,as_of,valid_until\na,L4,1,2026-11-01,2026-10-01\n", "is before as_of", ""),
    ('a,"b\n', "no CSV", ""),
    ("[[offr]]\nprovider = 'a'\n", "there is no key 'offr'", "'offer'"),
    (
        "[[offer]]\nprovider = 'a'\ngpu = 'L4'\nprice_hour = 1\n",
        "line 4: there is no",
        "Did you",
    ),
    (
        "[[offer]]\ngpu = 'L4'\nprice_per_hour = 1\n",
        "'provider' in the 1st [[offer]] is missing",
        "",
    ),
    ("[[offer]]\nprovider = 'a'\ngpu = 'L4'\nprice_per_hour = 'x'\n", "line 4: ", "number"),
    ("[[offer]]\nprovider = 1\n", "line 2: ", "a text in quotes"),
    ("currency = 'EUR'\n", "neither an [[offer]] nor a [[discount]]", ""),
    ("[[discount]]\nprovider = 'aws'\nfraction = 15\n", "line 3: ", "less than 1"),
    ("[[discount]]\nprovider = 'aws'\nfraction = 0.1\ntill = '2027-01-01'\n", "line 4", "'until'"),
    (
        "[[discount]]\nprovider = 'lamda'\nfraction = 0.1\n",
        "line 1: No provider is known as",
        "lambda",
    ),
    ("[[discount]]\nprovider = 'aws'\nfraction = 0.1\ngpu = 'H1000'\n", "No GPU is known as", ""),
    ("[[discount]\n", "is not valid TOML", ""),
    ("card,condition,price\nRTX 3090,mint,700\n", "line 2: condition = 'mint'", "new or used"),
    ("card,condition,price\nRTX 4060 Ti,used,300\n", "may be RTX 4060 Ti 8GB or", "Write which"),
    ("card,condition,price\nRTX 3090,used,0\n", "'0' is no price above zero", ""),
    ("card,condition,price\n,used,5\n", "the card has no name", ""),
    (
        "card,condition,price,as_of\nRTX 3090,used,5,2026-11-01\nRTX3090,used,6,2026-11-01\n",
        "line 3: 'RTX3090' stands there twice",
        "",
    ),
    ("card,condition,prise\nRTX 3090,used,5\n", "there is no column 'prise'", "'price'"),
    ("part,price\nRyzen 5 7600X,\n", "line 2: price: '' is no price above zero", ""),
    ("part,price,as_of\nRyzen 5 7600X,9,soon\n", "as_of = 'soon' is no day", ""),
    ("a,b,c\n1,2,3\n", "there is no column 'a'", ""),
]


@pytest.mark.parametrize(("text", "what", "hint"), BAD_LISTS)
def test_what_is_wrong_is_one_message_with_the_line(text, what, hint):
    with pytest.raises(InputError) as caught:
        parsed(text)
    assert what in caught.value.what
    assert hint in str(caught.value)


@pytest.mark.parametrize("data", [b"\xff\xfe\x00p", b"provider,gpu\n\xc3\x28,L4\n"])
def test_what_is_no_text_is_refused(data):
    with pytest.raises(InputError, match="no text in UTF-8"):
        parse_list(data, "mine", "mine.csv")


CELLS = st.sampled_from(
    ["acme", "H100", "8", "1.5", "-1", "1e400", "2026-11-01", "", "EUR", "used", "64GiB", '"', "#"]
)
HEADS = st.sampled_from(
    [
        "provider",
        "gpu",
        "gpus",
        "price",
        "as_of",
        "currency",
        "ram",
        "card",
        "condition",
        "part",
        "",
    ]
)


@given(st.lists(HEADS, max_size=6), st.lists(st.lists(CELLS, max_size=6), max_size=4))
@settings(deadline=None, max_examples=60)
def test_any_table_is_a_list_or_an_input_error(head, rows):
    text = "\n".join(",".join(row) for row in [head, *rows])
    try:
        own = parsed(text)
    except InputError:
        return
    for offer in own.offers:
        assert offer.as_of <= TODAY
        assert (offer.price_usd_per_hour or offer.spot_usd_per_hour or 0) > 0


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_list_or_an_input_error(data):
    try:
        own = parse_list(data, "mine", "mine.csv", TODAY)
    except InputError:
        return
    assert own.name == "mine"


@given(st.floats(0.001, 1e6), st.integers(1, 64))
@settings(deadline=None, max_examples=40)
def test_a_price_comes_out_as_it_went_in(price, gpus):
    text = f"provider,gpu,gpus,price_per_hour,as_of\nacme,L4,{gpus},{price!r},2026-11-01\n"
    offer = one(text)
    assert (offer.price_usd_per_hour, offer.gpus) == (price, gpus)


# --- keeping lists ---


def test_a_list_is_kept_replaced_and_removed(keep, own_folder):
    assert keep(OFFERS).name == "mine"
    assert (own_folder / "price_lists" / "mine.csv").read_text() == OFFERS
    keep(OFFERS.replace("16.0", "15.0"))
    assert [offer.price_usd_per_hour for offer in own_offers(TODAY)] == [15.0]
    keep(EDP, "mine.toml", name="mine")  # the same name in the other form
    assert own_offers(TODAY) == ()
    [summary] = kept_summaries(TODAY)
    assert (summary.name, summary.kind) == ("mine", "discounts")
    assert (summary.rows, summary.discounts) == (0, 1)
    remove_list("mine")
    assert kept_summaries(TODAY) == []
    with pytest.raises(NotKnown, match="No price list is known as 'mine'"):
        remove_list("mine")


def test_a_bad_list_leaves_the_old_one_as_it_is(keep, own_folder):
    keep(OFFERS)
    with pytest.raises(InputError, match="line 3"):
        keep(OFFERS + "acme,h9,H100,8,eu-1,zero,2026-11-01\n")
    assert (own_folder / "price_lists" / "mine.csv").read_text() == OFFERS


def test_prices_without_a_day_have_that_of_the_import(keep, own_folder):
    keep("# spring\nprovider,gpu,price\nacme,L4,1\n")
    keep('[[offer]]\nprovider = "b"\ngpu = "L4"\nprice_per_hour = 1\n', "b.toml")
    keep("card,condition,price,as_of\nRTX 3090,used,700,\n", "cards.csv")
    folder = own_folder / "price_lists"
    assert (folder / "mine.csv").read_text() == f"provider,gpu,price,as_of\nacme,L4,1,{TODAY}\n"
    assert (folder / "b.toml").read_text().startswith(f'as_of = "{TODAY}"\n')
    later = "2027-01-01"
    assert {offer.as_of for offer in own_offers(later)} == {TODAY}
    assert [card.fact.as_of for card in imported_prices(later).cards] == [TODAY]


def test_a_list_put_there_by_hand_is_read_and_a_broken_one_says_so(own_folder):
    folder = own_folder / "price_lists"
    folder.mkdir(parents=True)
    (folder / "by hand.csv").write_text(OFFERS)
    (folder / "notes.txt").write_text("no list")
    assert len(own_offers(TODAY)) == 1
    (folder / "broken.toml").write_text("[[offer]]\n")
    with pytest.raises(InputError, match="broken.toml") as caught:
        own_offers(TODAY)
    assert "--remove 'broken'" in caught.value.fix
    broken = kept_summaries(TODAY)[0]
    assert (broken.name, broken.kind) == ("broken", None)
    remove_list("broken")
    assert len(own_offers(TODAY)) == 1


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "rates", "x" * 65])
def test_names_that_are_none(keep, name):
    with pytest.raises(InputError, match="no name for a price list"):
        keep(OFFERS, name=name)


def test_of_two_lists_the_newer_price_counts(keep):
    keep(OFFERS, "a.csv")
    keep(OFFERS.replace("16.0", "14.0").replace("11-01", "10-01"), "b.csv")
    assert [offer.price_usd_per_hour for offer in own_offers(TODAY)] == [16.0]


# --- one's own in place of listed ones ---


def test_own_offers_go_first_and_take_the_place_of_listed_ones():
    mine = one(OFFERS.replace("H100 SXM", "H100"))
    listed = an_offer("acme", "h8", usd=20.0, gpus=8, gpu="H100 SXM", region="eu-1")
    other = an_offer("acme", "h9", usd=20.0, region="eu-1")
    first, rest = own_first([mine], [other, listed])
    assert (first.price_usd_per_hour, first.gpu, rest) == (16.0, "H100 SXM", other)
    assert first.vcpus == listed.vcpus
    assert "in place of $20 an hour (" in first.source


# --- discounts ---


def aws(instance="p4d.24xlarge", **changes):
    return an_offer("aws", instance, usd=30.0, spot_usd=10.0, **changes)


def test_a_discount_comes_off_what_it_is_for(keep):
    keep(EDP, "edp.toml")
    p4, p5, other = discounted(
        [aws(), aws("p5.48xlarge"), an_offer("gcp", "p4d-like", usd=30.0)], TODAY
    )
    # 30 x 0.85 = 25.5, 10 x 0.85 = 8.5
    assert (p4.price_usd_per_hour, p4.spot_usd_per_hour) == pytest.approx((25.5, 8.5))
    assert p4.source.endswith("; 15 % off as agreed (your price list edp: EDP)")
    assert (p5.price_usd_per_hour, other.price_usd_per_hour) == (30.0, 30.0)


def test_a_discount_ends_and_never_comes_off_twice(keep):
    keep(EDP, "edp.toml")
    [after] = discounted([aws()], "2027-04-01")
    assert after == aws()
    [last] = discounted([aws()], "2027-03-31")
    assert discounted([last], TODAY) == (last,)
    [mine] = discounted([one(OFFERS.replace("acme", "aws").replace("h8", "p4d.24xlarge"))], TODAY)
    assert mine.price_usd_per_hour == 16.0


@pytest.mark.parametrize(
    ("tenancy", "usd", "spot_usd", "reserved"),
    [("on-demand", 25.5, 10.0, 0.0), ("spot", 30.0, 8.5, 0.0), ("reserved", 30.0, 10.0, 0.15)],
)
def test_a_discount_of_one_tenancy(keep, tenancy, usd, spot_usd, reserved):
    keep(EDP + f'tenancy = "{tenancy}"\n', "edp.toml")
    [offer] = discounted([aws()], TODAY)
    assert (offer.price_usd_per_hour, offer.spot_usd_per_hour) == pytest.approx((usd, spot_usd))
    assert offer.discount.reserved_fraction == reserved


def test_the_first_discount_that_fits_counts(keep):
    gpu = '[[discount]]\nprovider = "AWS"\ngpu = "A100"\nfraction = 0.3\n'
    keep(gpu + '[[discount]]\nprovider = "aws"\nfraction = 0.1\n', "edp.toml")
    a100, h100 = discounted([aws(gpu="A100 40GB SXM"), aws(gpu="H100 SXM")], TODAY)
    # 30 x 0.7 = 21; 30 x 0.9 = 27
    assert (a100.price_usd_per_hour, h100.price_usd_per_hour) == pytest.approx((21.0, 27.0))


def test_a_provider_that_nobody_sells_under_yet_is_kept(keep):
    taken = keep('[[discount]]\nprovider = "zzgpu"\nfraction = 0.1\n', "new.toml")
    assert taken.discounts == 1
    [offer] = discounted([an_offer("zzgpu", "x", usd=10.0)], TODAY)
    assert offer.price_usd_per_hour == pytest.approx(9.0)


# --- cards and parts ---


def test_card_prices_are_recognised(keep):
    taken = keep(
        "Card,Condition,Price (EUR),Date,Link\n"
        "RTX3090,Used,650,2026-11-10,https://example.org/1\n"
        "Voodoo 2,used,20,2026-11-10,\n",
        "cards.csv",
    )
    assert (taken.kind, taken.rows, taken.gpus, taken.unknown) == (
        "cards",
        2,
        ("RTX 3090",),
        ("Voodoo 2",),
    )
    [card] = imported_prices(TODAY).cards
    assert (card.gpu, card.condition, card.fact.number, card.fact.unit) == (
        "RTX 3090",
        "used",
        650.0,
        "EUR",
    )
    assert card.fact.source == "your price list cards: https://example.org/1"


def test_part_prices_are_recognised(keep):
    taken = keep("part,price,currency,as_of\nRyzen 5 7600X,199,USD,2026-11-10\n", "parts.csv")
    assert (taken.kind, taken.rows, taken.as_of) == ("parts", 1, "2026-11-10")
    [part] = imported_prices(TODAY).parts
    assert (part.part, part.fact.number) == ("Ryzen 5 7600X", 199.0)


@given(st.floats(0.01, 0.99), st.floats(0.01, 1e4))
@settings(deadline=None, max_examples=30)
def test_less_and_back_again(fraction, usd):
    discount = AgreedDiscount(on_demand_fraction=fraction, spot_fraction=fraction / 2, words="x")
    offer = an_offer("aws", "p", usd=usd, spot_usd=usd / 3)
    back = offer.less(discount).at_list_price()
    assert back.price_usd_per_hour == pytest.approx(usd)
    assert back.spot_usd_per_hour == pytest.approx(usd / 3)
    assert (back.source, back.discount) == (offer.source, None)


# --- exchange rates ---


class Answers:
    """A downloader that answers from memory, and keeps what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def get(self, address, known=None, *, headers=None, largest_bytes=0):
        self.asked.append((address, known, largest_bytes))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def post(self, address, body, *, largest_bytes=0):
        raise AssertionError("rates are not posted")


NOW = "2026-11-17T08:00:00Z"


@pytest.fixture
def ecb(monkeypatch):
    """The last ten days of the package's file, which are at hand, and one more with given rates."""
    head, *lines = currency.known_rates().text.strip().splitlines()
    few = read_rates("\n".join([head, *lines[:10]]).encode())
    monkeypatch.setattr(currency, "_bundled_rates", lambda: few)

    def csv(day="2026-11-16", **rates):
        codes = [code.strip() for code in head.split(",")[1:]]
        last = few.days[few.last] | rates
        cells = [str(last.get(code, "N/A")) if code else "" for code in codes]
        return "\n".join([head, ",".join([day, *cells]), *lines[:10]])

    return csv


def zipped(text, name="eurofxref-hist.csv"):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return packed.getvalue()


def test_rates_are_refreshed_and_then_only_asked_whether_they_changed(ecb):
    reply = Reply(data=zipped(ecb(USD=1.25)), validators=Validators(etag="abc"))
    answers = Answers(reply)
    before = usd_per_unit("EUR")[1]
    assert before < "2026-11-16"
    attempt = refresh_rates(answers, NOW)
    assert (attempt.source, attempt.state, attempt.as_of) == ("rates", "fresh", "2026-11-16")
    assert attempt.offers == len(known_rates().days["2026-11-16"])
    assert usd_per_unit("EUR") == (1.25, "2026-11-16")
    assert answers.asked[0][:2] == (RATES_ADDRESS, None)
    answers.answer = None
    assert refresh_rates(answers, NOW).state == "unchanged"
    assert answers.asked[1][1] == Validators(etag="abc")
    answers.answer = reply
    assert refresh_rates(answers, NOW).state == "unchanged"


def test_another_place_by_setting(ecb, monkeypatch):
    monkeypatch.setenv("OUTLAY_RATES", "http://127.0.0.1:9/rates.csv")
    answers = Answers(Reply(data=ecb().encode()))  # no zip
    assert refresh_rates(answers, NOW).state == "fresh"
    assert answers.asked[0][0] == "http://127.0.0.1:9/rates.csv"


def test_nobody_answers_and_the_rates_stay():
    attempt = refresh_rates(Answers(ProviderError("The ECB does not answer.")), NOW)
    assert (attempt.state, attempt.reason) == ("kept", "The ECB does not answer.")
    assert attempt.as_of == known_rates().last


def test_rates_that_are_less_or_others_are_refused(ecb, own_folder):
    text = ecb()
    cases = {
        "a day to come": ecb("2026-11-18"),
        "USD goes from": ecb(USD=3.0),
        "JPY goes from": ecb(JPY=1.6),
        "They lack GBP": text.replace("GBP", "XXX", 1),
        "They have 2 days, those at hand 10": "\n".join(text.splitlines()[:3]),
        "They end on": "\n".join([*text.splitlines()[:1], *text.splitlines()[3:]]),
        "Its first line is not": "<!DOCTYPE html><html></html>",
        "'2026-13-45' is no day of rates": text.replace("\n", "\n2026-13-45,1\n", 1),
        "A line has 2 cells": text.replace("\n", "\n2026-11-13,1\n", 1),
        "It has a day twice": text.replace("\n", "\n2026-11-16,1\n", 1),
        "A rate is no number above zero": ecb(USD=-1),
        "no rate of the dollar": ecb(USD="N/A"),
    }
    for reason, text in cases.items():
        attempt = refresh_rates(Answers(Reply(data=text.encode())), NOW)
        assert attempt.state == "refused", reason
        assert reason in attempt.reason
    assert not (own_folder / "exchange_rates.zip").exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04 no zip", "The zip is damaged"),
        (zipped("x", "../up.csv")[:-9], "The zip is damaged"),
        (zipped("x", "notes.txt"), "not one CSV alone"),
        (zipped("Date,USD\n" + "0" * (33 * 2**20)), "It has more than 32 MiB"),
        (b"Date,USD\n\xff", "no text in UTF-8"),
    ],
)
def test_bad_files_of_rates(data, reason):
    attempt = refresh_rates(Answers(Reply(data=data)), NOW)
    assert attempt.state == "refused"
    assert reason in attempt.reason


def test_rates_are_imported_listed_and_removed(ecb, tmp_path):
    path = tmp_path / "eurofxref-hist.zip"
    path.write_bytes(zipped(ecb(USD=1.2)))
    taken = import_list(path, TODAY)
    assert (taken.name, taken.kind, taken.as_of) == ("rates", "rates", "2026-11-16")
    assert taken.notes == ("1 EUR is $1.2, the rate of 2026-11-16.",)
    assert [kept.name for kept in kept_summaries(TODAY)] == ["rates"]
    assert usd_per_unit("EUR")[0] == 1.2
    remove_list("rates")
    assert usd_per_unit("EUR")[0] != 1.2


def test_damaged_rates_say_what_to_do(own_folder):
    own_folder.mkdir()
    (own_folder / "exchange_rates.zip").write_bytes(b"PK garbage")
    with pytest.raises(InputError, match="exchange_rates.zip are damaged") as caught:
        usd_per_unit("EUR")
    assert "prices refresh --source rates" in caught.value.fix


@given(st.binary(max_size=120))
@settings(deadline=None, max_examples=80)
def test_any_bytes_are_rates_or_an_input_error(data):
    try:
        rates = read_rates(b"Date,USD\n" + data)
    except InputError:
        return
    assert all(rate["USD"] > 0 for rate in rates.days.values() if rate)


def test_the_whole_file_of_the_package_is_read_as_the_package_reads_it():
    rates = known_rates()
    newest, usd = rates.last, rates.days[rates.last]["USD"]
    assert usd_per_unit("EUR") == (usd, newest)
    assert rates.days["2023-12-29"]["USD"] == 1.1050  # as the European Central Bank published it
    assert len(rates.days) > 7000
