from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlay.predict.network import (
    BUCKET_BYTES,
    Group,
    Links,
    all_gather_s,
    all_reduce_s,
    exposed_all_reduce_s,
    send_s,
)

LINKS = Links(
    gpu_link="nvlink",
    bytes_per_s=100e9,
    latency_s=0.0,
    half_rate_bytes=0.0,
    network_bytes_per_s=10e9,
    network_latency_s=0.0,
)
LATE = (1.0,) * 16


def links(**changes):
    from dataclasses import replace

    return replace(LINKS, **changes)


def test_a_ring_moves_all_but_its_own_part():
    # 3/4 of 1 GB / 100 GB/s
    assert all_gather_s(1e9, Group(gpus_per_node=4), LINKS) == pytest.approx(7.5e-3)
    assert all_reduce_s(1e9, Group(gpus_per_node=4), LINKS) == pytest.approx(15e-3)


def test_nothing_to_exchange():
    assert all_reduce_s(1e9, Group(gpus_per_node=1), LINKS) == 0
    assert all_gather_s(0, Group(gpus_per_node=8), LINKS) == 0


def test_between_machines_the_network_counts():
    # 15/16 of 1 GB / 10 GB/s
    assert all_gather_s(1e9, Group(gpus_per_node=8, nodes=2), LINKS) == pytest.approx(93.75e-3)


def test_groups_of_one_machine_share_its_network():
    alone = all_gather_s(1e9, Group(gpus_per_node=1, nodes=4, groups_per_node=1), LINKS)
    shared = all_gather_s(1e9, Group(gpus_per_node=1, nodes=4, groups_per_node=8), LINKS)
    assert shared == pytest.approx(8 * alone)


def test_short_messages_take_longer():
    slow = links(half_rate_bytes=1e6, latency_s=1e-5)
    # a message of half_rate_bytes at half the rate, and three rounds of a ring of four
    assert all_gather_s(1e6, Group(gpus_per_node=4), slow) == pytest.approx(2 * 7.5e-6 + 3e-5)


def test_handing_on():
    assert send_s(1e9, links(latency_s=1e-3), between_nodes=False) == pytest.approx(11e-3)
    assert send_s(1e9, links(network_latency_s=1e-3), between_nodes=True) == pytest.approx(0.101)


def test_gradients_that_come_at_the_end_are_exposed():
    whole = all_reduce_s(1.6e9, Group(gpus_per_node=8), LINKS)
    assert exposed_all_reduce_s(1.6e9, 1.0, LATE, Group(gpus_per_node=8), LINKS) == pytest.approx(
        whole
    )


def test_gradients_that_come_early_are_hidden_but_for_the_last():
    early = tuple((i + 1) / 16 for i in range(16))
    last = all_reduce_s(0.1e9, Group(gpus_per_node=8), LINKS)
    # each sixteenth is sent long before the next is there: 62.5 ms against 1.75 ms
    assert exposed_all_reduce_s(1.6e9, 1.0, early, Group(gpus_per_node=8), LINKS) == pytest.approx(
        last
    )


def test_an_exchange_longer_than_backward_is_exposed_by_the_difference():
    early = tuple((i + 1) / 16 for i in range(16))
    slow = links(bytes_per_s=1e9)
    # 16 x 0.175 s one after another from 1/16 s on, less 1 s
    expected = 1 / 16 + 16 * 0.175 - 1
    assert exposed_all_reduce_s(1.6e9, 1.0, early, Group(gpus_per_node=8), slow) == pytest.approx(
        expected
    )


@given(
    st.floats(1e6, 1e11),
    st.integers(1, 64),
    st.floats(0.0, 10.0),
    st.lists(st.floats(0.0, 1.0), min_size=16, max_size=16),
)
def test_what_is_exposed_is_at_most_the_whole(size_bytes, gpus, backward_s, ready):
    group = Group(gpus_per_node=gpus)
    exposed = exposed_all_reduce_s(size_bytes, backward_s, sorted(ready), group, LINKS)
    whole = exposed_all_reduce_s(size_bytes, 0.0, sorted(ready), group, LINKS)
    assert 0 <= exposed <= whole * (1 + 1e-9) + 1e-12


def test_buckets_are_those_of_torch():
    assert BUCKET_BYTES == 25 * 2**20  # bucket_cap_mb of DistributedDataParallel
