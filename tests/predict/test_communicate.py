from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_calibration, a_gpu, exactly, span

from outlay.predict.communicate import all_reduce_s, exposed_s, has_fast_links, link_bytes_per_s


@pytest.mark.parametrize(
    ("form", "nvlink", "fast"),
    [
        ("SXM5", 900, True),
        ("OAM", 800, True),
        ("superchip", 900, True),
        ("SXM2", None, False),
        ("PCIe", 600, False),  # a bridge joins two cards, not all
        ("PCIe", None, False),
    ],
)
def test_has_fast_links(form, nvlink, fast):
    assert has_fast_links(a_gpu(form=form, nvlink_gb_per_s=nvlink)) is fast


def test_link_over_nvlink_is_a_share_of_one_direction():
    link = link_bytes_per_s(a_gpu(form="SXM4", nvlink_gb_per_s=600), a_calibration())
    # 600 / 2 = 300 GB/s x 0.4, 0.5, 0.8
    assert link.low == pytest.approx(120e9)
    assert link.likely == pytest.approx(150e9)
    assert link.high == pytest.approx(240e9)


def test_link_over_pcie():
    link = link_bytes_per_s(a_gpu(pcie=(4, 16)), a_calibration())
    # 0.985 x 2 x 16 = 31.52 GB/s x 0.25
    assert link.likely == pytest.approx(7.88e9)


def test_link_unknown():
    link = link_bytes_per_s(a_gpu(pcie=(None, None)), a_calibration())
    # 8 GB/s x 0.25
    assert link.likely == pytest.approx(2e9)


@pytest.mark.parametrize(
    ("gpus", "moved_bytes"),
    [
        (2, 1e9),  # 2 x 1/2
        (4, 1.5e9),  # 2 x 3/4
        (8, 1.75e9),  # 2 x 7/8
        (1, 0.0),
    ],
)
def test_all_reduce_moves_twice_the_others_share(gpus, moved_bytes):
    time = all_reduce_s(1e9, gpus, span(1e9, 2e9, 4e9))
    assert time.low == pytest.approx(moved_bytes / 4e9)
    assert time.likely == pytest.approx(moved_bytes / 2e9)
    assert time.high == pytest.approx(moved_bytes / 1e9)


LINKED = a_gpu(form="SXM4", nvlink_gb_per_s=600)


def test_exposed_is_what_backward_does_not_hide():
    exposed = exposed_s(1e9, 8, LINKED, 0.01, a_calibration())
    # 1.75 GB / 150 GB/s = 11.667 ms, less 0.5 x 10 ms
    assert exposed.likely == pytest.approx(0.0116667 - 0.005, rel=1e-4)
    # 1.75 / 240 = 7.292 ms less 5 ms; and all of 1.75 / 120 = 14.583 ms
    assert exposed.low == pytest.approx(0.0022917, rel=1e-4)
    assert exposed.high == pytest.approx(0.0145833, rel=1e-4)


def test_a_tenth_of_the_exchange_is_never_hidden():
    exposed = exposed_s(1e9, 8, LINKED, 10.0, a_calibration())
    # 11.667 ms / 10
    assert exposed.likely == pytest.approx(0.00116667, rel=1e-4)
    assert exposed.low == 0.0


def test_one_gpu_has_nobody_to_talk_to():
    assert exposed_s(1e9, 1, LINKED, 0.01, a_calibration()) == exactly(0.0)


@given(st.floats(0, 1e12), st.integers(2, 16), st.floats(0, 100))
@settings(deadline=None)
def test_exposed_is_in_order_and_at_most_the_exchange(gradient_bytes, gpus, device_s):
    link = link_bytes_per_s(LINKED, a_calibration())
    exchange = all_reduce_s(gradient_bytes, gpus, link)
    exposed = exposed_s(gradient_bytes, gpus, LINKED, device_s, a_calibration())
    assert 0 <= exposed.low <= exposed.likely <= exchange.likely
    assert exposed.likely <= exposed.high == exchange.high
