from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_gpu

from outlay.hardware.gpu_names import find_gpu
from outlay.predict.network import (
    Wiring,
    fabric_of,
    gpu_link_bytes_per_s,
    sequential_sends,
    usual_gpu_link,
)


@pytest.mark.parametrize(
    ("facts", "within"),
    [
        ({"nvlink_gb_per_s": 600, "nvlink_reach": "all"}, "nvlink"),
        ({"nvlink_gb_per_s": 300, "nvlink_reach": "mesh"}, "mesh"),
        ({"nvlink_gb_per_s": 112, "nvlink_reach": "pair", "peer_to_peer": False}, "host"),
        ({"peer_to_peer": True}, "pcie"),
        ({"peer_to_peer": None}, "pcie"),
        ({"peer_to_peer": False}, "host"),
    ],
)
def test_what_machines_usually_join_their_gpus_with(facts, within):
    assert usual_gpu_link(a_gpu(**facts), 8) == within


@pytest.mark.parametrize(
    ("name", "within"),
    [
        ("H100 SXM", "nvlink"),
        ("A100-80GB SXM", "nvlink"),
        ("V100 SXM2 16GB", "mesh"),
        ("RTX 3090", "host"),
        ("RTX 4090", "host"),
        ("RTX 6000 Ada", "pcie"),
        ("RTX A6000", "pcie"),
        ("A100 80GB PCIe", "pcie"),
    ],
)
def test_real_gpus(name, within):
    assert usual_gpu_link(find_gpu(name).gpu, 8) == within


def test_nvlink_counts_in_one_direction():
    gpu = a_gpu(nvlink_gb_per_s=600, nvlink_reach="all")
    rate = gpu_link_bytes_per_s(gpu, 8, "nvlink", a_calibration())
    assert rate.likely == pytest.approx(150e9)  # 600 GB/s / 2 x 0.5


def test_pcie_of_generation_4():
    rate = gpu_link_bytes_per_s(a_gpu(pcie=(4, 16)), 8, "pcie", a_calibration())
    assert rate.likely == pytest.approx(7.88e9)  # 16 x 1.97 GB/s x 0.25
    assert gpu_link_bytes_per_s(a_gpu(pcie=(None, None)), 2, "pcie", a_calibration()).likely == 2e9


def test_through_the_host_more_gpus_get_less_each():
    two, eight = (gpu_link_bytes_per_s(a_gpu(), n, "host", a_calibration()).likely for n in (2, 8))
    assert two == pytest.approx(3.152e9)  # 31.52 GB/s x 0.1
    assert eight == pytest.approx(two / 2)  # (8 / 2) ^ -0.5


def test_a_bridge_joins_two_and_no_more():
    gpu = a_gpu(nvlink_gb_per_s=100, nvlink_reach="pair", peer_to_peer=False)
    two = gpu_link_bytes_per_s(gpu, 2, "bridge", a_calibration())
    four = gpu_link_bytes_per_s(gpu, 4, "bridge", a_calibration())
    assert two.likely == pytest.approx(15e9)  # 100 / 2 x 0.3
    assert four == gpu_link_bytes_per_s(gpu, 4, "host", a_calibration())


def test_the_network_of_a_machine():
    known = Wiring(network_bytes_per_s=50e9, network_kind="InfiniBand")
    assert fabric_of(a_gpu(), 8, known, a_calibration()).likely.network_bytes_per_s == 40e9
    plain = Wiring(network_bytes_per_s=50e9, network_kind="TCP")
    assert fabric_of(a_gpu(), 8, plain, a_calibration()).likely.network_bytes_per_s == 20e9


def test_an_unknown_network_is_assumed_and_said_to_be():
    fabric = fabric_of(a_gpu(), 8, Wiring(), a_calibration(), nodes=2)
    assert fabric.network_is_assumed
    assert fabric.slow.network_bytes_per_s < fabric.likely.network_bytes_per_s
    assert not fabric_of(a_gpu(), 8, Wiring(), a_calibration()).network_is_assumed


def test_rounds_are_those_of_a_ring_or_a_tree():
    assert [sequential_sends(n) for n in (1, 2, 4)] == [0, 1, 3]
    assert sequential_sends(64) == 12  # a tree: up and down 6 levels
