"""`outlay guard`: the supervisor on the machine that trains."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import warn
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.run.supervisor import Told, WatchPlan


@click.command("guard", no_args_is_help=True)
@click.option("--run", "folder", metavar="FOLDER", help="A run's folder: starts its command.")
@click.option("--pid", type=click.IntRange(1), help="A process that runs already.")
@click.option("--machine", is_flag=True, help="This machine: shut down once nobody uses it.")
@click.option("--systemd", is_flag=True, help="Print a systemd unit that does --machine.")
@click.option("--loop", is_flag=True, help="Print a shell loop that does --machine.")
@click.option(
    "--idle-below",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="GPUs that do less are idle.",
)
@click.option("--for", "idle", metavar="TIME", help="... for so long (10m; --machine: 30m).")
@click.option("--stall", metavar="TIME", help="Without a step for so long, it is stalled (30m).")
@click.option("--grace", default="2m", metavar="TIME", help="From the warning to the stop (2m).")
@click.option(
    "--signal",
    "signal_name",
    default="",
    metavar="NAME",
    help="Sent so that it saves (USR1, where it handles that).",
)
@click.option("--log", metavar="FILE", help="What the process prints to, if that is not seen.")
@click.option(
    "--then",
    type=click.Choice(["stop", "shut down", "warn"]),
    default=None,
    help="What happens then (stop; --machine: shut down).",
)
@click.option(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Also send warnings there (apprise: ntfy://, slack://, mailto:// ...).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def command(
    folder: str | None,
    pid: int | None,
    machine: bool,
    systemd: bool,
    loop: bool,
    idle_below: float,
    idle: str | None,
    stall: str | None,
    grace: str,
    signal_name: str,
    log: str | None,
    then: str | None,
    notify: tuple[str, ...],
    as_json: bool,
) -> int:
    """Guard a run, a process or a whole machine, on that very machine.

    It works with your laptop closed. A run is stopped when its GPUs idle and nothing else goes on,
    when steps stop coming, when the loss is not finite, and before its budget or deadline passes:
    after a warning, and after a signal so that it saves. What cannot be read counts as activity.

    \b
    Example:
      outlay guard --run ~/.outlay/runs/stylenat-7f3a2c    (what job.sh does)
      outlay guard --pid 4242 --for 15m --then "shut down"
      sudo outlay guard --machine --for 30m
      outlay guard --systemd --for 30m | sudo tee /etc/systemd/system/outlay-guard.service
      outlay guard --loop > outlay-guard.sh && nohup sh outlay-guard.sh &

    With --run it exits with the command's own status. A machine is shut down by `shutdown -h now`,
    or by the command in OUTLAY_SHUTDOWN.
    """
    from outlay.run.guard import guard_machine, guard_process, guard_run

    _check_one(folder, pid, machine, systemd, loop)
    if folder is not None:
        return guard_run(Path(folder).expanduser())
    is_machine = machine or systemd or loop
    plan = _plan(idle_below, idle, stall, grace, signal_name, then, notify, is_machine=is_machine)
    if systemd or loop:
        return _print_service(plan, systemd=systemd)
    told = _told(as_json=as_json)
    if pid is None:
        return guard_machine(plan, told=told)
    guard_process(pid, plan, told=told, log=Path(log) if log else None)
    return 0


def _told(*, as_json: bool) -> list[Told]:
    from outlay.report.watch_report import JsonView
    from outlay.run.supervisor import Messages

    return [JsonView()] if as_json else [Messages()]


def _check_one(*given: object) -> None:
    if sum(1 for one in given if one) != 1:
        raise InputError(
            "Say what is to be guarded: one of --run, --pid, --machine, --systemd and --loop.",
            fix="For example: outlay guard --machine --for 30m",
        )


def _plan(
    idle_below: float,
    idle: str | None,
    stall: str | None,
    grace: str,
    signal_name: str,
    then: str | None,
    notify: tuple[str, ...],
    *,
    is_machine: bool,
) -> WatchPlan:
    from outlay.prices.alerts import check_addresses
    from outlay.run.supervisor import WatchPlan, signal_number
    from outlay.units import duration_s
    from outlay.workload.workload import WatchSettings

    check_addresses(notify)
    if signal_name and signal_number(signal_name) is None:
        raise InputError(f"There is no signal {signal_name!r}.", fix="Write for example USR1.")
    usual = "30m" if is_machine else "10m"
    settings = WatchSettings(
        idle_below_fraction=idle_below,
        idle_s=duration_s(idle or usual),
        stall_s=duration_s(stall or "30m"),
        grace_s=duration_s(grace),
        signal=signal_name,
        then=then or ("shut down" if is_machine else "stop"),  # type: ignore[arg-type]
        notify=notify,
    )
    return WatchPlan(settings=settings, is_machine=is_machine)


def _print_service(plan: WatchPlan, *, systemd: bool) -> int:
    """The unit or the loop, with the very outlay that prints it."""
    from outlay.run.guard import loop_script, systemd_unit

    settings = plan.settings
    if settings.notify:
        warn("The addresses of --notify are in what is printed: keep that file to yourself.")
    program = [found] if (found := shutil.which("outlay")) else [sys.executable, "-m", "outlay"]
    arguments = [
        *program,
        *("guard", "--machine", "--for", f"{settings.idle_s:.0f}s"),
        *("--idle-below", f"{settings.idle_below_fraction:g}"),
        *("--grace", f"{settings.grace_s:.0f}s"),
        *("--then", settings.then),
    ]
    for address in settings.notify:
        arguments += ["--notify", address]
    click.echo(systemd_unit(arguments) if systemd else loop_script(arguments), nl=False)
    return 0
