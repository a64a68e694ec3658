"""A machine of one's own, or one to be bought, as an offer."""

from __future__ import annotations

from collections.abc import Iterable

from outlay.facts import assumed
from outlay.gpu_names import find_gpu
from outlay.offers.offer import Offer, Owned, refuse_twins
from outlay.units import YEAR_S
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
        disk=machine.disk,
        disk_bytes_per_s=machine.disk_bytes_per_s,
        owned=Owned(
            electricity_usd_per_kwh=(
                assumed("electricity_usd_per_kwh") if kwh_usd is None else kwh_usd
            ),
            host_w=assumed("desktop_host_power_w") if host_w is None else host_w,
            purchase_usd=machine.purchase_usd,
            resale_usd=0.0 if machine.resale_usd is None else machine.resale_usd,
            resale_fraction=machine.resale_fraction,
            lifetime_use_s=_lifetime_use_s(machine),
            life_s=None if machine.years is None else machine.years * YEAR_S,
            idle_w=machine.idle_w,
            maintenance_usd_per_year=machine.maintenance_usd_per_year,
            interest_per_year=machine.interest_per_year,
            wear_usd_per_hour=machine.wear_usd_per_hour,
            pue=machine.pue,
        ),
    )


def _lifetime_use_s(machine: Workstation) -> float | None:
    """Hours of use in a machine's life, by everybody: as stated, or years times utilisation."""
    own_s = machine.lifetime_use_s
    if own_s is None and machine.years is not None and machine.utilisation is not None:
        own_s = machine.years * YEAR_S * machine.utilisation
    return None if own_s is None else own_s + machine.others_use_s
