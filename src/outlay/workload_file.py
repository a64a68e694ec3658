"""Reading `outlay.toml`: text in, a `Workload` out, or one message naming the line and the key."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from outlay.errors import InputError, NotKnown
from outlay.facts import assumptions
from outlay.workload import (
    Checkpoint,
    Dataset,
    Length,
    Limits,
    Quote,
    Selection,
    Step,
    Stored,
    TermsOverride,
    Usage,
    Workload,
    Workstation,
)
from outlay.workload_schema import (
    DataTable,
    MachineTable,
    OfferTable,
    ProviderTable,
    SelectionTable,
    StepTable,
    StoredTable,
    WorkloadFile,
)


def read_workload(path: Path) -> Workload:
    """The workload in a TOML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(
            f"There is no workload file {path}.",
            fix="`outlay init` writes a commented one; or give the path of yours.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The workload file {path} cannot be read: {error}.") from error
    return parse_workload(text, str(path), folder=path.parent)


def parse_workload(text: str, where: str = "workload", folder: Path | None = None) -> Workload:
    """The workload in a text; `where` names it in messages, `folder` is what paths start from."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(
            f"{where} is not valid TOML: {error}.",
            fix="Texts need quotes, tables look like [limits], lists like [1, 2].",
        ) from error
    try:
        return _workload(WorkloadFile.model_validate(table), folder)
    except ValidationError as error:
        raise _input_error(error, text, where) from error


def _workload(file: WorkloadFile, folder: Path | None) -> Workload:
    usd = _usd_per_unit(file.currency)
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
        ),
        data=_dataset(file.data),
        stored=tuple(_stored(item) for item in file.stored),
        checkpoint=Checkpoint(
            size_bytes=file.checkpoint.size,
            interval_s=file.checkpoint.interval,
            kept=file.checkpoint.kept,
        ),
        usage=Usage(
            sessions_per_month=file.usage.sessions_per_month,
            hours_per_day=file.usage.hours_per_day,
            machines=machines[0],
            machines_tried=machines if len(machines) > 1 else (),
            setup_s=file.usage.setup,
            storage_s=file.usage.keep_data,
        ),
        limits=Limits(budget_usd=_money(file.limits.budget, usd), deadline_s=file.limits.deadline),
        consider=_selection(
            file.consider, max_gpus=file.consider.max_gpus, bundled=file.consider.bundled
        ),
        leave_out=_selection(file.leave_out),
        quotes=tuple(_quote(offer, number, usd) for number, offer in enumerate(file.offer, 1)),
        workstations=tuple(_workstation(machine, usd) for machine in file.machine),
        terms=tuple(_terms(provider, usd) for provider in file.provider),
        currency=file.currency.upper(),
        usd_per_unit=usd,
    )


def _usd_per_unit(currency: str) -> float:
    if currency.upper() == "USD":
        return 1.0
    fact = assumptions().get(f"usd_per_{currency.lower()}")
    if fact is None or fact.number is None:
        known = ["USD"] + [
            name.removeprefix("usd_per_").upper()
            for name, row in assumptions().items()
            if name.startswith("usd_per_") and row.unit.startswith("USD/")
        ]
        raise NotKnown("currency", currency, known, fix=f"Known: {', '.join(known)}.")
    return fact.number


def _gbit(amount: float | None) -> float | None:
    return None if amount is None else amount * 1e9 / 8


def _money(amount: float | None, usd: float) -> float | None:
    return None if amount is None else amount * usd


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
    )


def _stored(table: StoredTable) -> Stored:
    return Stored(
        name=table.name,
        size_bytes=table.size,
        at=table.at,
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
        electricity_usd_per_kwh=_money(table.electricity_per_kwh, usd),
        purchase_usd=_money(table.purchase, usd),
        resale_usd=table.resale * usd,
        lifetime_use_s=table.use,
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
    )


def _input_error(error: ValidationError, text: str, where: str) -> InputError:
    """The first problem in words: which line and key, what is wrong, which key was meant.

    A key nobody knows goes before what is missing: it may be the missing one, misspelt.
    """
    problems = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    first = problems[0]
    path = _written(first["loc"])
    line = line_of(text, path)
    place = f"{where}, line {line}" if line else where
    more = f" ({len(problems) - 1} more after this one)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        return InputError(f"{place}: there is no key {_key(path)!r}{more}.", why=_meant(path))
    if first["type"] == "missing":
        return InputError(
            f"{place}: {_key(path)!r} is missing{more}.", fix="`outlay init` shows every key."
        )
    said = _said(first["type"], first["msg"], str(path[0]) if path else "")
    value = "" if isinstance(first["input"], dict | list) else f" = {first['input']!r}"
    return InputError(f"{place}: {_key(path)}{value}: {said}{more}.")


def _written(location: Sequence[str | int]) -> list[str | int]:
    """The keys of a location that stand in the file; pydantic adds names of type branches."""
    path: list[str | int] = []
    model: type[BaseModel] | None = WorkloadFile
    for part in location:
        if isinstance(part, int):
            path.append(part)
        elif model is not None:
            path.append(part)
            model = _model_of(model, part) if part in model.model_fields else None
    return path


def _said(kind: str, message: str, table: str) -> str:
    """What is wrong, in the words of the file rather than of the reader."""
    if kind == "tuple_type":
        return f"it may stand there more than once: write [[{table}]], or a list in brackets"
    if kind in ("model_type", "model_attributes_type"):
        return f"it is a table: write [{table}] on a line of its own, and its keys below"
    said = message.removeprefix("Value error, ").removeprefix("Input ").rstrip(".")
    said = said.replace("should be a valid", "should be a").replace("should be", "it should be")
    return said[0].lower() + said[1:]


def _key(path: Sequence[str | int]) -> str:
    """`length.samples`, or `the 2nd [[offer]], price_per_hour`."""
    if len(path) > 1 and isinstance(path[1], int):
        rest = ".".join(str(part) for part in path[2:])
        nth = f"{path[1] + 1}{ {0: 'st', 1: 'nd', 2: 'rd'}.get(path[1], 'th') }"
        return f"the {nth} [[{path[0]}]], {rest}" if rest else f"the {nth} {path[0]}"
    return ".".join(str(part) for part in path) or "the file"


def _meant(path: Sequence[str | int]) -> str:
    """The known key nearest to a wrong one, searched in the table it stands in."""
    model: type[BaseModel] = WorkloadFile
    for part in path[:-1]:
        if isinstance(part, str):
            model = _model_of(model, part) or model
    known = list(model.model_fields)
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else f"Known here: {', '.join(known)}."


def _model_of(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """The table a key opens, or None where it holds a value."""
    annotation: Any = model.model_fields[field].annotation
    inner = getattr(annotation, "__args__", (annotation,))[0]
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


_HEADER = re.compile(r"\s*\[+\s*([A-Za-z0-9_.\-\"]+)\s*\]+")


def line_of(text: str, path: Sequence[str | int]) -> int | None:
    """The line of a key in TOML text, of its table where the key is missing."""
    repeated = len(path) > 1 and isinstance(path[1], int)  # a table of an array: [[offer]]
    index = int(path[1]) if repeated else 0
    names = [str(part) for part in path if isinstance(part, str)]
    if not names:
        return None
    header = names[0] if repeated else ".".join(names[:-1])
    key = names[-1] if len(names) > 1 or not repeated else None
    is_key = re.compile(rf"\s*\"?{re.escape(key or '')}\"?\s*=")
    seen, current, table_line = -1, "", None
    for number, line in enumerate(text.splitlines(), 1):
        match = _HEADER.match(line)
        if match:
            current = match[1].strip('"')
            if current == ".".join(names) and not repeated:
                return number
            if current == header:
                seen += 1
                table_line = number if seen == index else table_line
        elif key and current == header and (seen == index or not header) and is_key.match(line):
            return number
    return table_line
