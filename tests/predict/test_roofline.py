from __future__ import annotations

import math

import pytest
from tests.builders import a_calibration, a_fact, a_gpu
from tests.rows import for_every

from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.roofline import REFERENCE_CACHE_BYTES, roofline_of

ALL_PEAKS = {"fp64": 5e12, "fp32": 10e12, "tf32": 50e12, "fp16": 100e12, "bf16": 100e12}


def a_machine(name="Card", calibration=None, **gpu):
    return roofline_of(a_gpu(name, **gpu), calibration or a_calibration())


def test_a_machine_has_the_figures_of_its_gpu():
    machine = a_machine()
    assert machine.multiprocessors == 100
    assert machine.clock_hz == 1e9
    assert machine.bytes_per_s == 1000e9
    assert machine.peak_flops_per_s == {"fp32": 10e12, "fp16": 100e12}
    # 100 multiprocessors x 1 GHz
    assert machine.cycles_per_s == 100e9
    assert machine.cache_bytes == 4 * 2**20


def test_a_cache_nobody_knows_is_the_smallest():
    assert a_machine(facts={"l2_size": a_fact()}).cache_bytes == REFERENCE_CACHE_BYTES


@pytest.mark.parametrize("architecture", ["Kepler", "Maxwell", "Pascal", "GCN5"])
def test_before_tensor_cores_everything_is_fp32(architecture):
    machine = a_machine(architecture=architecture, peaks=ALL_PEAKS)
    assert set(machine.peak_flops_per_s) == {"fp64", "fp32"}
    for precision in ("fp32", "tf32", "fp16", "bf16", "int"):
        assert machine.arithmetic(precision) == "fp32"
    assert machine.arithmetic("fp64") == "fp64"


@pytest.mark.parametrize(
    ("precision", "used"),
    [("fp16", "fp16"), ("fp32", "fp32"), ("bf16", "fp32"), ("tf32", "fp32"), ("int", "fp32")],
)
def test_arithmetic_falls_back_to_fp32_where_there_is_no_other(precision, used):
    assert a_machine().arithmetic(precision) == used


@pytest.mark.parametrize("precision", ["fp64", "tf32", "fp16", "bf16"])
def test_arithmetic_is_what_is_asked_for_where_there_is_such(precision):
    assert a_machine(peaks=ALL_PEAKS).arithmetic(precision) == precision


@pytest.mark.parametrize("name", ["RTX 3090", "RTX 2080 Ti", "RTX 5090", "TITAN V"])
def test_geforce_boards_run_faster_than_their_boost_clock(name):
    machine = a_machine(name, a_calibration(clock_geforce=1.25))
    assert machine.clock_hz == 1.25e9
    assert machine.peak_flops_per_s["fp16"] == 125e12
    # no heavier for it: both its rate and its clock are faster
    assert machine.flops_per_cycle_ratio["fp16"] == 1


@pytest.mark.parametrize(
    "name", ["RTX A6000", "RTX 6000 Ada", "RTX 4000 Ada", "L40S", "H100 SXM", "Quadro RTX 8000"]
)
def test_other_boards_are_held_to_their_boost_clock(name):
    assert a_machine(name, a_calibration(clock_geforce=1.25)).clock_hz == 1e9


def test_laptops_are_held_to_their_boost_clock():
    calibration = a_calibration(clock_geforce=1.25)
    assert a_machine("RTX 4090 Laptop", calibration, form="laptop").clock_hz == 1e9


def test_the_gtx_boards_of_turing_have_no_tensor_cores():
    assert a_machine("GTX 1660 SUPER", architecture="Turing").tensor_types == frozenset()
    assert a_machine("RTX 2060", architecture="Turing").tensor_types == {"fp16"}


def test_power_sustains_so_many_flops():
    calibration = a_calibration(power_at_rest=100, power_tensor=2e11, power_fp32=1e10)
    sustained = a_machine(
        calibration=calibration, peaks=ALL_PEAKS, board_tdp_w=300
    ).sustained_flops_per_s
    # (300 - 100) W x 10 GFLOP/s for each
    assert sustained["fp32"] == 2e12
    # at the peak of 100 TFLOP/s it would take 100e12 / 200e9 = 500 W; with 200 W the clock is
    # (200 / 500)^(1/2) of its highest
    assert sustained["fp16"] == pytest.approx(100e12 * math.sqrt(200 / 500))
    assert sustained["bf16"] == pytest.approx(
        ALL_PEAKS["bf16"] * math.sqrt(200e12 * 0.2 / ALL_PEAKS["bf16"])
    )
    # an operation of twice the width takes twice the energy
    assert sustained["tf32"] == pytest.approx(math.sqrt(ALL_PEAKS["tf32"] * 1e11 * 200))


def test_geforce_boards_have_power_to_spare_for_tensor_cores():
    assert (
        a_machine("RTX 4090", a_calibration(power_tensor=1)).sustained_flops_per_s["fp16"]
        == math.inf
    )


def test_power_of_a_kind_of_gpu_goes_before_the_general():
    calibration = a_calibration(power_tensor=1e11, power_tensor_Ada=3e11, power_tensor_Ada_HBM=5e11)
    # the root of 100e12 x (FLOPs a watt) x 300 W
    ada = a_machine(
        calibration=calibration, architecture="Ada", facts={"memory_type": a_fact("GDDR6")}
    )
    assert ada.sustained_flops_per_s["fp16"] == pytest.approx(math.sqrt(100e12 * 3e11 * 300))
    stacked = a_machine(calibration=calibration, architecture="Ada")
    assert stacked.sustained_flops_per_s["fp16"] == pytest.approx(math.sqrt(100e12 * 5e11 * 300))
    assert a_machine(calibration=calibration).sustained_flops_per_s["fp16"] == pytest.approx(
        math.sqrt(100e12 * 1e11 * 300)
    )


def test_two_devices_share_the_power_of_their_board():
    calibration = a_calibration(power_tensor=1e11)
    gpu = a_machine(calibration=calibration, devices_per_board=2, board_tdp_w=300)
    # 150 W: the root of 100e12 x 100e9 x 150
    assert gpu.sustained_flops_per_s["fp16"] == pytest.approx(math.sqrt(100e12 * 1e11 * 150))


def test_weight_is_what_one_unit_does_in_a_cycle_over_the_reference():
    calibration = a_calibration(reference_fp16=4000, reference_fp32=100)
    # 100e12 / (100 x 1e9) = 1000 FLOPs a cycle in fp16, 100 in fp32
    assert a_machine(calibration=calibration).flops_per_cycle_ratio == {"fp16": 0.25, "fp32": 1}
    # twice the units do half as much each
    assert a_machine(calibration=calibration, sm_count=200).flops_per_cycle_ratio["fp16"] == 0.125


@pytest.mark.parametrize(
    ("architecture", "memory", "share"),
    [
        ("Hopper", "HBM3", 1.0),
        ("Ada", "GDDR6X", 0.8),
        ("Pascal", "GDDR5", 0.5),
        ("Pascal", "HBM2", 0.5),
    ],
)
def test_memory_delivers_a_share_by_its_kind(architecture, memory, share):
    calibration = a_calibration(memory_share_gddr=0.8, memory_share_old=0.5)
    facts = {"memory_type": a_fact(memory)}
    machine = a_machine(calibration=calibration, architecture=architecture, facts=facts)
    assert machine.bytes_per_s == share * 1000e9


def test_memory_is_reached_more_easily_where_a_multiprocessor_is_brought_less():
    calibration = a_calibration(reference_bytes=40, lightness_memory=0.5)
    # 1000e9 B / (100 x 1e9) = 10 a cycle, a quarter of the reference's
    assert a_machine(calibration=calibration).memory_lightness == 0.5
    # more than the reference's is no harder than there: nothing was measured beyond it
    assert a_machine(calibration=calibration, sm_count=10).memory_lightness == 1


def test_matrix_units_of_amd_take_plain_fp32():
    calibration = a_calibration(matrix_fp32_CDNA1=2)
    peaks = {
        name: a_machine(calibration=calibration, architecture=name).peak_flops_per_s["fp32"]
        for name in ("CDNA1", "CDNA3")
    }
    assert peaks["CDNA1"] == 2 * peaks["CDNA3"]


def test_libraries_of_old_gpus_split_nothing_and_of_new_ones_have_more_tiles():
    by_architecture = {
        name: a_machine(architecture=name) for name in ("Pascal", "Volta", "Ampere", "Hopper")
    }
    assert [gpu.is_before_volta for gpu in by_architecture.values()] == [True, False, False, False]
    assert [gpu.has_few_batched_tiles for gpu in by_architecture.values()] == [
        True,
        True,
        True,
        False,
    ]


def test_the_reference_is_the_gpu_that_the_kernels_were_measured_on():
    machine = roofline_of(gpus()["H200"], bundled())
    assert machine.flops_per_cycle_ratio == pytest.approx(
        dict.fromkeys(machine.flops_per_cycle_ratio, 1.0), rel=1e-4
    )


@for_every("name", gpus())
def test_every_gpu_of_the_table_is_a_machine(name):
    machine = roofline_of(gpus()[name], bundled())
    assert machine.multiprocessors > 0
    assert machine.bytes_per_s > 0
    assert machine.cache_bytes > 0
    assert (
        set(machine.peak_flops_per_s)
        == set(machine.sustained_flops_per_s)
        == set(machine.flops_per_cycle_ratio)
        >= {"fp32"}
    )
    assert all(rate > 0 for rate in machine.sustained_flops_per_s.values())


def test_tensor_types_are_those_it_has_a_rate_for():
    assert a_machine(peaks=ALL_PEAKS).tensor_types == {"fp16", "bf16", "tf32"}
    assert a_machine().tensor_types == {"fp16"}
    assert a_machine(architecture="Pascal").tensor_types == frozenset()
