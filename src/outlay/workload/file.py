"""Reading `outlay.toml`: text in, a `Workload` out, or one message naming the line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outlay.currency import usd_per_unit
from outlay.errors import NotKnown
from outlay.facts import assumptions, rows_of
from outlay.uncertainty import Estimate, Uncertain
from outlay.units import MB
from outlay.workload.schema import (
    DataTable,
    EvaluationTable,
    MachineTable,
    OfferTable,
    OwnTimeTable,
    PreferTable,
    ProviderTable,
    SelectionTable,
    StepTable,
    StoredTable,
    WorkloadFile,
)
from outlay.workload.toml import Kind, model_of, parse_table, read_text
from outlay.workload.workload import (
    Checkpoint,
    Dataset,
    Evaluation,
    Feed,
    Length,
    Limits,
    OwnTime,
    Pause,
    Preferences,
    Quote,
    Selection,
    Step,
    StoredData,
    TermsOverride,
    Usage,
    Workload,
    Workstation,
)

KIND = Kind(
    noun="workload file",
    absent="`outlay init` writes a commented one; or give the path of yours.",
    missing="`outlay init` shows every key.",
)


def read_workload(path: Path) -> Workload:
    """The workload in a TOML file."""
    return parse_workload(read_text(path, KIND), str(path), folder=path.parent)


def parse_workload(text: str, where: str = "workload", folder: Path | None = None) -> Workload:
    """The workload in a text; `where` names it in messages, `folder` is what paths start from."""
    return workload_of(parse_table(text, where), text, where, folder)


def workload_of(
    table: dict[str, Any], text: str, where: str = "workload", folder: Path | None = None
) -> Workload:
    """The workload that tables describe; `text` is where a wrong key is looked for."""
    return _workload(model_of(table, text, where, WorkloadFile, KIND), folder)


def _workload(file: WorkloadFile, folder: Path | None) -> Workload:
    usd, rate_day = (
        (file.usd_per_unit, "")
        if file.usd_per_unit
        else usd_per_unit(file.currency, file.currency_day)
    )
    tried = file.usage.machines
    machines = (tried,) if isinstance(tried, int) else tuple(dict.fromkeys(tried)) or (1,)
    return Workload(
        name=file.name,
        step=_step(file.step, folder),
        length=Length(
            samples=file.length.samples,
            epochs=file.length.epochs,
            iterations=file.length.iterations,
            global_batch_size=file.length.global_batch_size,
            training_s=file.length.time,
            hours_are_equal=file.length.hours_are_equal,
        ),
        data=_dataset(file.data),
        stored=tuple(_stored(item) for item in file.stored),
        checkpoint=Checkpoint(
            size_bytes=file.checkpoint.size,
            interval=file.checkpoint.interval,
            time_s=file.checkpoint.time,
            times=file.checkpoint.times,
            kept=file.checkpoint.kept,
            on_notice=file.checkpoint.on_notice,
        ),
        evaluation=_evaluation(file.evaluation),
        pauses=tuple(
            Pause(name=one.name, every=one.every, time_s=one.time, times=one.times)
            for one in file.pause
        ),
        usage=Usage(
            sessions_per_month=file.usage.sessions_per_month,
            hours_per_day=file.usage.hours_per_day,
            days_per_week=file.usage.days_per_week,
            machines=machines[0],
            machines_tried=machines if len(machines) > 1 else (),
            setup_s=file.usage.setup,
            idle_s=file.usage.idle or 0.0,
            storage_s=file.usage.keep_data,
            horizon_s=file.usage.horizon,
        ),
        limits=Limits(
            budget_usd=_money(file.limits.budget, usd),
            deadline_s=file.limits.deadline,
            gpu_memory_bytes=file.limits.gpu_memory,
            interruptions=file.limits.interruptions,
        ),
        prefer=_preferences(file.prefer, usd),
        own_time=_own_time(file.own_time, usd),
        tax_fraction=_tax_fraction(file.tax),
        consider=_selection(
            file.consider, max_gpus=file.consider.max_gpus, bundled=file.consider.bundled
        ),
        leave_out=_selection(file.leave_out),
        quotes=tuple(_quote(offer, number, usd) for number, offer in enumerate(file.offer, 1)),
        workstations=tuple(_workstation(machine, usd) for machine in file.machine),
        terms=tuple(_terms(provider, usd) for provider in file.provider),
        currency=file.currency.upper(),
        usd_per_unit=usd,
        rate_as_of=rate_day,
    )


def _gbit(amount: float | None) -> float | None:
    return None if amount is None else amount * 1e9 / 8


def _money(amount: float | None, usd: float) -> float | None:
    return None if amount is None else amount * usd


def _scaled(amount: Uncertain | None, factor: float) -> Uncertain | None:
    """An amount that may be a range, times a factor."""
    if amount is None:
        return None
    return amount.scaled(factor) if isinstance(amount, Estimate) else amount * factor


def _evaluation(table: EvaluationTable | None) -> Evaluation | None:
    if table is None:
        return None
    return Evaluation(
        every=table.every, samples=table.samples, time_s=table.time, times=table.times
    )


def _preferences(table: PreferTable, usd: float) -> Preferences:
    wanted = {
        "access": table.access,
        "quota": table.quota,
        "persistent_disk": table.persistent_disk,
        "driver_image": table.driver_image,
    }
    return Preferences(
        waiting_usd_per_hour=table.waiting_per_hour * usd,
        providers=table.providers,
        premium_fraction=table.premium,
        qualities=tuple((name, value) for name, value in wanted.items() if value is not None),
    )


def _own_time(table: OwnTimeTable | None, usd: float) -> OwnTime | None:
    if table is None:
        return None
    return OwnTime(
        usd_per_hour=table.per_hour * usd,
        session_s=table.each_session or 0.0,
        once_s=table.once or 0.0,
    )


def _tax_fraction(tax: float | str) -> float:
    """The rate itself, or that of a place."""
    if isinstance(tax, float | int):
        return float(tax)
    rates = {row["place"]: row["rate"] for row in rows_of("taxes.csv") if row["rate"]}
    if tax.upper() not in rates:
        raise NotKnown(
            "place with a tax rate", tax, sorted(rates), fix="Give the rate: tax = 0.19."
        )
    return float(rates[tax.upper()])


def _feed(table: DataTable) -> Feed | None:
    """How samples get to the GPU, where the file says anything of it."""
    said = (table.kind, table.decode_per_vcpu, table.disk, table.disk_mb_per_s, table.read_size)
    if all(one is None for one in said) and table.cached is None:
        return None
    return Feed(
        kind=table.kind,
        samples_per_s_per_vcpu=table.decode_per_vcpu,
        sample_bytes=table.read_size,
        disk=table.disk,
        disk_bytes_per_s=_scaled(table.disk_mb_per_s, MB),
        cached=table.cached,
    )


def _step(table: StepTable, folder: Path | None) -> Step:
    target = table.target
    if target is not None and folder is not None and not Path(target).is_absolute():
        target = str(folder / target)
    profile = table.profile
    if profile is not None and folder is not None and profile.endswith((".json", ".json.gz")):
        profile = str(folder / profile)
    return Step(
        profile=profile,
        target=target,
        batch_size=None if table.batch_size == "max" else table.batch_size,
        batch_as_measured=table.batch_size is None,
        measured=tuple(str(folder / one) if folder else one for one in table.measured),
        precision=None if table.precision == "as traced" else table.precision,
        global_batch_size=table.global_batch_size,
        strategy=table.strategy,
    )


def _dataset(table: DataTable) -> Dataset:
    size: float | None = table.size
    if size is None and table.samples is not None and table.sample_size is not None:
        size = table.samples * table.sample_size
    return Dataset(
        samples=table.samples,
        size_bytes=size,
        preparation_s=table.preparation or 0.0,
        prepared_each_session=table.prepared == "each session",
        at=table.at,
        kept_at=table.kept_at,
        storage=table.storage,
        results_bytes=table.results or 0.0,
        upload_bytes_per_s=_scaled(table.upload_mbit, 1e6 / 8),
        download_bytes_per_s=_scaled(table.download_mbit, 1e6 / 8),
        feed=_feed(table),
    )


def _stored(table: StoredTable) -> StoredData:
    first, *others = (table.at,) if isinstance(table.at, str) else table.at or ("run",)
    return StoredData(
        name=table.name,
        size_bytes=table.size,
        at=first,
        also_at=tuple(others),
        kind=table.kind,
        pulled_bytes=table.pulled or 0.0,
    )


def _selection(
    table: SelectionTable, *, max_gpus: int | None = None, bundled: bool = True
) -> Selection:
    return Selection(
        gpus=table.gpus,
        providers=table.providers,
        regions=table.regions,
        instances=table.instances,
        tenancies=table.tenancies,
        max_gpus=max_gpus,
        bundled=bundled,
    )


def _quote(table: OfferTable, number: int, usd: float) -> Quote:
    return Quote(
        provider=table.provider,
        instance=table.instance or f"quote {number}",
        gpu=table.gpu,
        gpus=table.gpus,
        price_usd_per_hour=_money(table.price_per_hour, usd),
        spot_usd_per_hour=_money(table.spot_per_hour, usd),
        region=table.region,
        vcpus=table.vcpus,
        ram_bytes=table.ram,
        local_disk_bytes=table.local_disk,
        network_bytes_per_s=_gbit(table.network_gbit),
        disk=table.disk,
        disk_bytes_per_s=_scaled(table.disk_mb_per_s, MB),
        setup_s=table.setup,
        interruptions_per_month=table.interruptions_per_month,
        term_s=table.term,
        as_of=table.as_of or "",
        note=table.note,
    )


def _workstation(table: MachineTable, usd: float) -> Workstation:
    first, *others = (table.gpu,) if isinstance(table.gpu, str) else table.gpu
    return Workstation(
        name=table.name,
        gpu=first,
        gpus=table.gpus if isinstance(table.gpu, str) else len(table.gpu),
        other_gpus=tuple(name for name in others if name != first),
        power_limit_w=table.power_limit_watts,
        network_bytes_per_s=_gbit(table.network_gbit),
        vcpus=table.vcpus,
        ram_bytes=table.ram,
        host_w=table.host_watts,
        idle_w=table.idle_watts,
        electricity_usd_per_kwh=_scaled(table.electricity_per_kwh, usd),
        disk=table.disk,
        disk_bytes_per_s=_scaled(table.disk_mb_per_s, MB),
        purchase_usd=_scaled(table.purchase or sum(table.parts.values()) or None, usd),
        parts=tuple((name, price * usd) for name, price in table.parts.items()),
        resale_usd=_scaled(table.resale, usd),
        resale_fraction=table.resale_fraction,
        lifetime_use_s=table.use,
        years=table.years,
        utilisation=_utilisation(table.utilisation),
        others_use_s=table.others_use or 0.0,
        maintenance_usd_per_year=table.maintenance_per_year * usd,
        interest_per_year=table.interest_per_year,
        wear_usd_per_hour=table.wear_per_hour * usd,
        pue=table.pue,
    )


def _terms(table: ProviderTable, usd: float) -> TermsOverride:
    return TermsOverride(
        provider=table.name,
        billing_step_s=table.billing_step,
        billing_minimum_s=table.billing_minimum,
        volume_usd_per_gb_month=_money(table.volume_per_gb_month, usd),
        object_usd_per_gb_month=_money(table.object_per_gb_month, usd),
        registry_usd_per_gb_month=_money(table.registry_per_gb_month, usd),
        egress_usd_per_gb=_money(table.egress_per_gb, usd),
        egress_free_gb_per_month=table.egress_free_gb_per_month,
        block_usd=_money(table.block, usd),
        fee_usd_per_month=table.fee_per_month * usd,
        discount_fraction=table.discount,
        credit_usd=table.credit * usd,
    )


def _utilisation(said: float | str | None) -> float | None:
    """A share of all hours, or that of a preset: a row `utilisation_*` of the assumptions."""
    if not isinstance(said, str):
        return said
    presets = {
        name.removeprefix("utilisation_").replace("_", " "): fact.number
        for name, fact in assumptions().items()
        if name.startswith("utilisation_")
    }
    if said.lower() not in presets:
        raise NotKnown("utilisation", said, sorted(presets), fix="Or give a share such as 0.15.")
    return presets[said.lower()]
