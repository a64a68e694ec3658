"""The tables of links: complete, sourced, and matching what they are about."""

from __future__ import annotations

import re
from datetime import date
from fnmatch import fnmatchcase

import pytest
from tests.rows import for_every
from tests.tables import REFERENCE, rows_in

from outlay.facts import rows_of
from outlay.hardware.gpus import gpus
from outlay.offers.catalog import bundled_offers
from outlay.offers.instances import links_of
from outlay.predict.network import usual_gpu_link

GPU_LINKS = rows_of("gpu_links.csv")
INSTANCE_LINKS = rows_of("instance_links.csv")
MEASURED = rows_in(REFERENCE / "measured_links.csv")
VALUES = {
    "peer_to_peer": {"yes", "no"},
    "nvlink_reach": {"all", "2", "4"},
    "nvlink_topology": {"nvswitch", "hybrid cube mesh", "mesh", "direct"},
    "gpu_link": {"nvswitch", "nvlink mesh", "nvlink bridge", "pcie"},
}


@for_every("row", [*GPU_LINKS, *INSTANCE_LINKS, *MEASURED])
def test_every_row_has_a_source_and_a_date(row):
    assert row["source"].startswith("https://") or row["source"] == "guess"
    assert (row["source"] == "guess") == row["note"].startswith("guess:")
    date.fromisoformat(row["as_of"])


@for_every("row", [*GPU_LINKS, *INSTANCE_LINKS])
def test_values_are_known_words_or_numbers(row):
    if row["parameter"] == "network":
        assert 0.1 <= float(row["value"]) <= 10_000
        assert row["unit"] == "Gbit/s"
    elif row["parameter"] in VALUES:
        assert row["value"] in VALUES[row["parameter"]]
    else:
        assert row["parameter"] == "network_kind"
        assert row["value"]


def test_no_key_comes_twice():
    for rows, names in (
        (GPU_LINKS, ("gpu_pattern", "parameter")),
        (INSTANCE_LINKS, ("provider", "instance_pattern", "parameter")),
    ):
        keys = [tuple(row[name] for name in names) for row in rows]
        assert len(keys) == len(set(keys))


@for_every("pattern", sorted({row["gpu_pattern"] for row in GPU_LINKS}))
def test_patterns_of_gpus_fit_some(pattern):
    assert any(fnmatchcase(name, pattern) for name in gpus())


@for_every(
    "provider, pattern",
    sorted({(row["provider"], row["instance_pattern"]) for row in INSTANCE_LINKS}),
)
def test_patterns_of_instances_fit_some(provider, pattern):
    assert any(
        offer.provider == provider and fnmatchcase(offer.instance, pattern)
        for offer in bundled_offers()
    )


def test_gpus_with_nvlink_by_module_reach_all():
    for gpu in gpus().values():
        if gpu.form.startswith("SXM") and gpu.nvlink_bytes_per_s is not None:
            assert gpu.nvlink_reach in ("all", "mesh"), gpu.name


def test_geforce_from_turing_on_go_through_the_host():
    for name, gpu in gpus().items():
        if re.match(r"RTX [2-5]0[5-9]0", name):
            assert usual_gpu_link(gpu, 8) == "host", name


def test_large_machines_of_the_clouds_have_a_network():
    known = {
        (offer.provider, offer.instance): links_of(offer).network_bytes_per_s
        for offer in bundled_offers()
    }
    # 400 Gbit/s of a p4d, 3200 of a p5, as AWS sells them
    assert known["aws", "p4d.24xlarge"] == pytest.approx(50e9)
    assert known["aws", "p5.48xlarge"] == pytest.approx(400e9)


@for_every("row", MEASURED)
def test_measurements_are_plausible(row):
    assert row["bus_bytes_per_s"] or row["latency_s"]
    if row["bus_bytes_per_s"]:
        assert 1e3 < float(row["bus_bytes_per_s"]) < 1.2e12
    if row["latency_s"]:
        assert 1e-7 < float(row["latency_s"]) < 10
    assert int(row["gpus"]) >= 2
    assert 1 <= int(row["nodes"]) <= int(row["gpus"])
