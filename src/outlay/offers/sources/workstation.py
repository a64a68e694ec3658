"""A machine of one's own, or one to be bought, as an offer."""

from __future__ import annotations

from collections.abc import Iterable

from outlay.facts import assumed
from outlay.gpu_names import find_gpu
from outlay.offers.offer import Offer, Owned, refuse_twins
from outlay.workload import Workstation

PROVIDER = "own"


def workstation_offers(machines: Iterable[Workstation]) -> tuple[Offer, ...]:
    """The machines as offers. Two of one name are an error."""
    offers = tuple(map(workstation_offer, machines))
    refuse_twins(offers, "[[machine]]", "Give each its own `name`, or remove one.")
    return offers


def workstation_offer(machine: Workstation) -> Offer:
    """The machine as an offer without an hourly price."""
    host_w, kwh_usd = machine.host_w, machine.electricity_usd_per_kwh
    return Offer(
        provider=PROVIDER,
        instance=machine.name,
        gpu=find_gpu(machine.gpu).meaning,
        gpus=machine.gpus,
        region="here",
        price_usd_per_hour=None,
        vcpus=machine.vcpus,
        ram_bytes=machine.ram_bytes,
        as_of="",
        source="the workload file",
        quoted=True,
        other_gpus=tuple(find_gpu(name).meaning for name in machine.other_gpus),
        power_limit_w=machine.power_limit_w,
        network_bytes_per_s=machine.network_bytes_per_s,
        owned=Owned(
            electricity_usd_per_kwh=(
                assumed("electricity_usd_per_kwh") if kwh_usd is None else kwh_usd
            ),
            host_w=assumed("desktop_host_power_w") if host_w is None else host_w,
            purchase_usd=machine.purchase_usd,
            resale_usd=machine.resale_usd,
            lifetime_use_s=machine.lifetime_use_s,
            wear_usd_per_hour=machine.wear_usd_per_hour,
            pue=machine.pue,
        ),
    )
