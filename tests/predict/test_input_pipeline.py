from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_step, exactly, span

from outlay.errors import InputError
from outlay.offers.instances import feed_rates
from outlay.predict.input_pipeline import (
    InputHost,
    InputRate,
    input_rate,
    thread_samples_per_s,
    with_input_rate,
)
from outlay.workload.workload import Dataset, Feed

RATES = {
    "jpeg_decode": span(50e6, 100e6, 200e6),
    "png_decode": exactly(50e6),
    "augment": span(20e6, 25e6, 40e6),
    "vcpu_share": span(0.25, 0.5, 1.0),
    "page_cache_35": exactly(0.85),
    "page_cache_65": exactly(0.6),
    "ram_for_cache": exactly(0.5),
}
"""Pixels a second; a busy thread does half of what a free one does; half of the RAM caches."""
MB = 1e6
GB = 1e9


def a_host(*, vcpus=9.0, gpus=1, ram_gb=None, disk_mb_per_s=100.0, disk="nvme"):
    """Eight threads beside the one that is busy with its GPU, and a disk of 100 MB/s."""
    rate = disk_mb_per_s
    return InputHost(
        vcpus=vcpus,
        gpus=gpus,
        ram_bytes=None if ram_gb is None else ram_gb * GB,
        disk_bytes_per_s=rate if not isinstance(rate, int | float) else rate * MB,
        disk=disk,
    )


def some_data(size_gb=100.0, samples=1_000_000):
    """A million samples of 100 KB."""
    return Dataset(size_bytes=size_gb * GB, samples=samples)


def likely(feed, host=None, *, data=None, epochs=1.0):
    """What is delivered, at likely rates: in the first epoch and in later ones."""
    rate = input_rate(data or some_data(), feed, host or a_host(), epochs, RATES)
    return rate.first.likely, rate.later.likely


def given_rate(rate):
    return Feed(samples_per_s_per_vcpu=rate)


# --- one thread ---


@pytest.mark.parametrize(
    ("kind", "samples_per_s"),
    [
        # 500 x 400 = 200,000 pixels / 100e6 = 2 ms; 200 x 200 / 25e6 = 1.6 ms; 0.5 / 3.6 ms
        ("jpeg 500x400 to 200", 0.5 / 3.6e-3),
        ("jpg 500x400 to 200", 0.5 / 3.6e-3),
        ("JPEG 500x400 to 200", 0.5 / 3.6e-3),
        (" jpeg 500x400 to 200 ", 0.5 / 3.6e-3),
        # 200,000 pixels decoded and all of them augmented: 2 ms + 8 ms
        ("jpeg 500x400", 0.5 / 10e-3),
        # 200 x 200 / 50e6 = 0.8 ms and 1.6 ms
        ("png 200", 0.5 / 2.4e-3),
        # not decoded: 250 x 250 / 25e6 = 2.5 ms
        ("raw 250", 0.5 / 2.5e-3),
        # A crop larger than the image keeps the image: 100 x 100 / 25e6 = 0.4 ms
        ("raw 100 to 300", 0.5 / 0.4e-3),
    ],
)
def test_a_thread_decodes_all_pixels_and_augments_those_kept(kind, samples_per_s):
    rate = thread_samples_per_s(Feed(kind=kind), RATES)
    assert rate.likely == pytest.approx(samples_per_s)


def test_the_ends_of_a_thread_s_range_take_every_rate_at_its_end():
    rate = thread_samples_per_s(Feed(kind="jpeg 500x400 to 200"), RATES)
    # low: 200,000 / 50e6 = 4 ms, 40,000 / 20e6 = 2 ms; a quarter of a free thread
    assert rate.low == pytest.approx(0.25 / 6e-3)
    # high: 200,000 / 200e6 = 1 ms, 40,000 / 40e6 = 1 ms; a whole thread
    assert rate.high == pytest.approx(1.0 / 2e-3)


@pytest.mark.parametrize("kind", ["tokens", "ready", "Tokens", None])
def test_what_is_not_decoded_costs_a_thread_nothing(kind):
    assert thread_samples_per_s(Feed(kind=kind), RATES) is None


def test_a_rate_the_user_measured_is_taken_as_it_is():
    assert thread_samples_per_s(given_rate(70), RATES) == exactly(70)
    assert thread_samples_per_s(given_rate(span(50, 70, 80)), RATES) == span(50, 70, 80)
    both = Feed(kind="jpeg 500x400 to 200", samples_per_s_per_vcpu=70)
    assert thread_samples_per_s(both, RATES) == exactly(70)


@pytest.mark.parametrize(
    "kind",
    ["jpeg", "jpeg 256 x 256", "jpeg 256 to", "webp 256", "jpeg -5", "256", "video 720", "token"],
)
def test_an_unknown_kind_is_refused_with_those_known(kind):
    with pytest.raises(InputError, match="is no kind of sample") as caught:
        thread_samples_per_s(Feed(kind=kind), RATES)
    assert repr(kind) in caught.value.what
    assert '"jpeg 500x375 to 224"' in caught.value.why
    assert "data.decode_per_vcpu" in caught.value.fix


def test_imagenet_as_documented():
    # 500 x 375 / 82.05e6 = 2.285 ms, 224 x 224 / 25.7e6 = 1.952 ms; 0.6 / 4.237 ms = 142
    # low: 187,500 / 65.2e6 + 50,176 / 18.6e6 = 5.573 ms; 0.4 / 5.573 ms = 72
    # high: 187,500 / 90.2e6 + 50,176 / 44.7e6 = 3.201 ms; 0.9 / 3.201 ms = 281
    rate = thread_samples_per_s(Feed(kind="jpeg 500x375 to 224"), feed_rates())
    assert (round(rate.low), round(rate.likely), round(rate.high)) == (72, 142, 282)


# --- decoding ---


def test_threads_that_are_not_busy_with_a_gpu_decode():
    # (10 - 2) x 5 = 40 samples a second; the disk would give 1000
    assert likely(given_rate(5), a_host(vcpus=10, gpus=2)) == (40, 40)


def test_one_thread_is_always_left_to_decode():
    assert likely(given_rate(5), a_host(vcpus=2, gpus=4)) == (5, 5)


def test_without_the_number_of_threads_reading_alone_limits():
    # 100 MB/s / 100 KB
    assert likely(given_rate(5), a_host(vcpus=None)) == pytest.approx((1000, 1000))


def test_what_limits_is_said_with_its_figures():
    decoding = input_rate(some_data(), given_rate(5), a_host(), 1, RATES)
    assert decoding.limited_by == "decoding, 8 CPU threads x 5 samples/s"
    reading = input_rate(some_data(), Feed(kind="tokens"), a_host(disk="sata"), 1, RATES)
    assert reading.limited_by == "reading, sata at 100 MB/s, 100 KB a sample"


def test_where_nothing_is_known_that_could_limit_it_there_is_no_limit():
    assert input_rate(Dataset(), Feed(kind="tokens"), a_host(), 1, RATES) is None


# --- reading ---


def test_a_disk_reads_its_bandwidth_by_the_bytes_of_a_sample():
    # 100 MB/s / 100 KB = 1000; 250 MB/s = 2500
    assert likely(Feed(kind="ready")) == pytest.approx((1000, 1000))
    assert likely(Feed(kind="ready"), a_host(disk_mb_per_s=250.0)) == pytest.approx((2500, 2500))


def test_bytes_read_for_a_sample_may_be_stated():
    # 100 MB/s / 20 KB
    assert likely(Feed(kind="ready", sample_bytes=20e3)) == pytest.approx((5000, 5000))
    assert likely(Feed(kind="ready", sample_bytes=20e3), data=Dataset()) == pytest.approx(
        (5000, 5000)
    )


def test_an_uncertain_disk_gives_an_uncertain_rate():
    host = a_host(disk_mb_per_s=span(50e6, 100e6, 400e6))
    rate = input_rate(some_data(), Feed(kind="ready"), host, 1, RATES)
    first = rate.first
    assert (first.low, first.likely, first.high) == pytest.approx((500, 1000, 4000))


@pytest.mark.parametrize(
    ("ram_gb", "share"),
    [
        # Half of the RAM holds data of 100 GB: 0, 35, 65 and 100 % of it, and shares between.
        (1e-9, 1.0),
        (35, 1 + (0.85 - 1) / 2),
        (60, 1 + (0.85 - 1) * 30 / 35),
        (70, 0.85),
        (100, (0.85 + 0.6) / 2),
        (130, 0.6),
        (165, 0.3),
        (190, 0.6 * 5 / 35),
    ],
)
def test_a_page_cache_helps_less_than_its_share(ram_gb, share):
    first, later = likely(Feed(kind="ready"), a_host(ram_gb=ram_gb))
    assert first == pytest.approx(1000)
    assert later == pytest.approx(1000 / share)


@pytest.mark.parametrize("ram_gb", [200, 1000])
def test_data_that_fits_into_ram_is_read_once(ram_gb):
    # Later epochs are so fast that eight threads at 500 samples a second limit them.
    feed = given_rate(500)
    first, later = likely(feed, a_host(ram_gb=ram_gb))
    assert (first, later) == pytest.approx((1000, 4000))


def test_whether_it_is_cached_may_be_stated():
    assert likely(Feed(kind="ready", cached=False), a_host(ram_gb=1000)) == pytest.approx(
        (1000, 1000)
    )
    feed = Feed(samples_per_s_per_vcpu=500, cached=True)
    assert likely(feed, a_host(ram_gb=1)) == pytest.approx((1000, 4000))


def test_a_cache_of_unknown_size_is_none():
    assert likely(Feed(kind="ready"), a_host(ram_gb=None)) == pytest.approx((1000, 1000))


def test_what_limits_later_epochs_is_said_where_there_are_some():
    host = a_host(ram_gb=70)
    many = input_rate(some_data(), Feed(kind="ready"), host, 10, RATES)
    assert many.limited_by.endswith("100 KB a sample, 85% of it from there and the rest from RAM")
    once = input_rate(some_data(), Feed(kind="ready"), host, 1, RATES)
    assert once.limited_by.endswith("100 KB a sample")


# --- the step ---


def some_delivered(first, later=None, *, epochs=1.0, limited_by="reading"):
    later = first if later is None else later
    return InputRate(
        first=exactly(first), later=exactly(later), epochs=epochs, limited_by=limited_by
    )


def test_a_step_that_its_input_keeps_up_with_is_as_it_was():
    step = with_input_rate(a_step(), some_delivered(50))
    assert step.step_time_s == exactly(1.0)
    assert step.bound == "arithmetic"
    # 10 samples at 50 a second
    assert step.input_s == pytest.approx(0.2)
    assert step.notes[-1] == "input keeps up: reading: 50 samples/s, the GPUs take 10"


def test_a_step_waits_for_its_input():
    step = with_input_rate(a_step(), some_delivered(4))
    # 10 samples at 4 a second
    assert step.step_time_s == exactly(2.5)
    assert step.input_s == pytest.approx(2.5)
    assert step.bound == "input"
    assert step.notes[-1] == "waits for its input: reading: 4 samples/s, the GPUs take 10"


def test_the_first_epoch_and_the_others_are_averaged():
    # 10 samples at 5 a second take 2 s, at 20 a second less than the step's own second:
    # a quarter of four epochs at 2 s, three quarters at 1 s
    assert with_input_rate(a_step(), some_delivered(5, 20, epochs=4)).step_time_s == exactly(1.25)
    # and with 5 and 8 a second: 2 / 4 + 1.25 x 3 / 4
    assert with_input_rate(a_step(), some_delivered(5, 8, epochs=4)).step_time_s == exactly(1.4375)


def test_what_many_epochs_wait_for_is_their_later_input():
    step = with_input_rate(a_step(), some_delivered(5, 20, epochs=4, limited_by="decoding"))
    # 10 samples at 20 a second
    assert step.input_s == pytest.approx(0.5)
    assert step.bound == "arithmetic"
    assert step.notes[-1] == "input keeps up: decoding: 20 samples/s, the GPUs take 10"


def test_one_epoch_is_the_first():
    assert with_input_rate(a_step(), some_delivered(5, 20, epochs=1)).step_time_s == exactly(2.0)


def test_less_than_an_epoch_is_a_first_one():
    rate = input_rate(some_data(), Feed(kind="ready"), a_host(ram_gb=1000), 0.1, RATES)
    assert rate.epochs == 1


def test_every_machine_feeds_its_own_gpus():
    # 2 machines with 4 GPUs and 10 samples each: 40 samples at 10 a second on each machine
    step = a_step(gpus=4, nodes=2)
    assert with_input_rate(step, some_delivered(10)).step_time_s == exactly(4.0)


def test_the_range_of_a_step_takes_in_that_of_its_input():
    rate = InputRate(first=span(2, 5, 20), later=span(2, 5, 20), epochs=1, limited_by="reading")
    # 10 samples at 20, 5 and 2 a second, but never less than the step alone
    assert with_input_rate(a_step(step_time_s=span(0.8, 1, 1.5)), rate).step_time_s == span(
        0.8, 2, 5
    )


def test_half_the_disk_s_bandwidth_doubles_a_step_bound_by_reading():
    times_s = []
    for rate in (0.5, 0.25):
        # 0.5 MB/s / 100 KB = 5 samples a second; 10 of them take 2 s, and 4 s at half of it
        host = a_host(disk_mb_per_s=rate)
        times_s.append(
            with_input_rate(a_step(), input_rate(some_data(), Feed(kind="ready"), host, 1, RATES))
        )
    assert [step.step_time_s.likely for step in times_s] == pytest.approx([2.0, 4.0])


RATES_PER_S = st.floats(0.01, 1e6)
TIMES_S = st.tuples(*(st.floats(0.01, 100) for _ in range(3))).map(lambda ends: span(*sorted(ends)))


@given(
    time_s=TIMES_S,
    first=st.tuples(RATES_PER_S, RATES_PER_S, RATES_PER_S).map(lambda ends: span(*sorted(ends))),
    later=st.tuples(RATES_PER_S, RATES_PER_S, RATES_PER_S).map(lambda ends: span(*sorted(ends))),
    epochs=st.floats(1, 1000),
)
@settings(max_examples=100, deadline=None)
def test_no_input_speeds_a_step_up(time_s, first, later, epochs):
    rate = with_input_rate(
        a_step(step_time_s=time_s),
        InputRate(first=first, later=later, epochs=epochs, limited_by=""),
    )
    # up to the rounding of a weighted mean
    assert rate.step_time_s.low >= time_s.low * (1 - 1e-12)
    assert rate.step_time_s.likely >= time_s.likely * (1 - 1e-12)
    assert rate.step_time_s.high >= time_s.high * (1 - 1e-12)


def a_fed_step_s(vcpus, disk_mb_per_s, ram_gb, epochs, rate):
    host = a_host(vcpus=vcpus, disk_mb_per_s=disk_mb_per_s, ram_gb=ram_gb)
    delivered = input_rate(some_data(), given_rate(rate), host, epochs, RATES)
    return with_input_rate(a_step(), delivered).step_time_s.likely


@given(
    vcpus=st.tuples(st.integers(1, 256), st.integers(1, 256)).map(sorted),
    disks=st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)).map(sorted),
    ram_gb=st.floats(1, 1000),
    epochs=st.floats(0.1, 100),
    rate=st.floats(0.01, 1000),
)
@settings(max_examples=100, deadline=None)
def test_more_threads_or_a_faster_disk_never_make_a_step_slower(vcpus, disks, ram_gb, epochs, rate):
    few, many = vcpus
    slow, fast = disks
    base = a_fed_step_s(few, slow, ram_gb, epochs, rate)
    # up to the rounding of a weighted mean
    assert a_fed_step_s(many, slow, ram_gb, epochs, rate) <= base * (1 + 1e-12)
    assert a_fed_step_s(few, fast, ram_gb, epochs, rate) <= base * (1 + 1e-12)
