"""`outlay watch`: look at a run, and stop it where it only costs money."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from outlay.cli.options import tell
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.report.watch_report import JsonView, LineView, LiveView
    from outlay.run.supervisor import Timing, WatchPlan

    View = JsonView | LineView | LiveView

_IS_COMMAND = "outlay.watch.is_command"
REMOTE_S = 15.0
"""How often another machine is asked."""


class _Watch(click.Command):
    """Knows whether its words came after two dashes: then they are a command, not a run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_IS_COMMAND] = "--" in args
        return super().parse_args(ctx, args)


@click.command("watch", cls=_Watch, no_args_is_help=True)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[RUN] | -- COMMAND...")
@click.option("--pid", type=click.IntRange(1), help="A process, and all it started.")
@click.option("--host", metavar="USER@HOST", help="Where that is; of --slurm, the login host.")
@click.option("--slurm", metavar="JOBID", help="A Slurm job.")
@click.option("--sky", metavar="NAME", help="The machine of a SkyPilot cluster.")
@click.option(
    "--idle-below",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="GPUs that do less, with nothing else going on, are idle ...",
)
@click.option(
    "--for",
    "idle",
    default="10m",
    metavar="TIME",
    show_default=True,
    help="... and are stopped after so long; 0 for never.",
)
@click.option(
    "--stall",
    default="30m",
    metavar="TIME",
    show_default=True,
    help="Without a step for so long, while nothing moves; 0 for never.",
)
@click.option("--price", type=click.FloatRange(0), metavar="USD/H", help="What an hour costs.")
@click.option(
    "--billing-step",
    default="1s",
    metavar="TIME",
    show_default=True,
    help="Time is billed in steps of this; a started one is used up.",
)
@click.option("--budget", type=click.FloatRange(0), metavar="USD", help="What it may cost.")
@click.option("--deadline", metavar="TIME", help="It must have ended by then: 8h from now.")
@click.option("--steps", type=click.IntRange(1), help="Training steps in all, for a forecast.")
@click.option("--log", metavar="FILE", help="What it prints to, where that is not seen.")
@click.option(
    "--step-pattern",
    default="",
    metavar="REGEX",
    help="Steps in its log: 'step ([0-9]+)', or 'step ([0-9]+)/([0-9]+)'.",
)
@click.option("--loss-pattern", default="", metavar="REGEX", help="The loss: 'loss: (\\S+)'.")
@click.option(
    "--grace", default="2m", metavar="TIME", show_default=True, help="From the warning to the stop."
)
@click.option(
    "--signal",
    "signal_name",
    default="",
    metavar="NAME",
    help="Sent before the stop, so that it saves (USR1, where it handles that).",
)
@click.option(
    "--then",
    type=click.Choice(["stop", "shut down", "warn"]),
    default="stop",
    show_default=True,
    help="What happens then: also to its machine, or nothing.",
)
@click.option(
    "--delete-after",
    metavar="TIME",
    help="A machine that was stopped is deleted after so long, disk and all.",
)
@click.option(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Also send warnings there (apprise: ntfy://, slack://, mailto:// ...).",
)
@click.option("--no-agent", is_flag=True, help="Of a COMMAND: do not count steps in its processes.")
@click.option("--every", metavar="TIME", help="How often it is looked at (2s; elsewhere 15s).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.pass_context
def command(context: click.Context, /, words: tuple[str, ...], **given: Any) -> int:
    """Look at a run: progress, cost, when it ends; stop it when it only costs money.

    RUN is one that outlay started; its own guard watches it, here it is shown. Anything else is
    watched from here: a process, a command that is started now, a Slurm job, a SkyPilot cluster.
    It is warned of first. Work that goes on takes the warning back; else it gets a signal to save,
    and is ended. What cannot be read counts as activity: a busy run is never stopped for idling.

    \b
    Example:
      outlay watch stylenat-7f3a2c
      outlay watch --price 2.49 --budget 20 -- python train.py
      outlay watch --pid 4242 --for 15m --notify ntfy://my-topic
      outlay watch --host me@gpu-box --pid 4242 --step-pattern 'step ([0-9]+)/([0-9]+)'
      outlay watch --slurm 18234 --then warn
      outlay watch --sky my-cluster --then "shut down" --delete-after 1d

    With a COMMAND it exits with the command's own status; of a RUN with 0 where it is done and 1
    where it failed or was stopped. Ctrl-C ends the looking, not the run (but ends a COMMAND).
    """
    is_command = bool(context.meta.get(_IS_COMMAND)) and bool(words)
    _check_target(words, given, is_command=is_command)
    if words and not is_command:
        return _follow(words[0], given, _typed(context))
    plan = _plan(given)
    if is_command:
        return _command(words, plan, given)
    return _look(plan, given)


def _check_target(words: tuple[str, ...], given: dict[str, Any], *, is_command: bool) -> None:
    targets = [bool(words), given["pid"], given["slurm"], given["sky"]]
    if sum(1 for one in targets if one) != 1 or (len(words) > 1 and not is_command):
        raise InputError(
            "Say what to look at: a RUN, or one of --pid, --slurm, --sky and -- COMMAND.",
            fix="For example: outlay watch --pid 4242, or: outlay watch -- python train.py",
        )
    if given["host"] and not (given["pid"] or given["slurm"]):
        raise InputError("--host goes with --pid or --slurm.", fix="Give one of them, too.")


def _plan(given: dict[str, Any]) -> WatchPlan:
    """What is watched for, as the options say."""
    from outlay.prices.alerts import check_addresses
    from outlay.run.rules import HourlyBilling
    from outlay.run.supervisor import WatchPlan, signal_number
    from outlay.workload.workload import WatchSettings

    check_addresses(given["notify"])
    for name in ("step_pattern", "loss_pattern"):
        _check_pattern(name, given[name])
    if given["signal_name"] and signal_number(given["signal_name"]) is None:
        raise InputError(
            f"There is no signal {given['signal_name']!r}.", fix="Write for example --signal USR1."
        )
    if given["budget"] is not None and given["price"] is None:
        raise InputError(
            "--budget needs the price of an hour.", fix="Give --price, in US dollars an hour."
        )
    settings = WatchSettings(
        idle_below_fraction=given["idle_below"],
        idle_s=_seconds(given["idle"]),
        stall_s=_seconds(given["stall"]),
        grace_s=_seconds(given["grace"]) or 0.0,
        signal=given["signal_name"],
        loss_pattern=given["loss_pattern"],
        step_pattern=given["step_pattern"],
        then=given["then"],
        delete_after_s=_seconds(given["delete_after"]),
        notify=given["notify"],
        agent=not given["no_agent"],
    )
    price = given["price"]
    step_s = _seconds(given["billing_step"]) or 1.0
    return WatchPlan(
        settings=settings,
        bill=None if price is None else HourlyBilling(usd_per_hour=price, billing_step_s=step_s),
        budget_usd=given["budget"],
        deadline_in_s=_seconds(given["deadline"]),
        total_steps=given["steps"],
        is_machine=given["sky"] is not None,
    )


def _seconds(text: str | None) -> float | None:
    """A time that an option gives; None for 0, which is never, and where there is none."""
    from outlay.units import duration_s

    if text is None or text.strip() == "0":
        return None
    return duration_s(text) or None


def _check_pattern(name: str, pattern: str) -> None:
    option = "--" + name.replace("_", "-")
    try:
        groups = re.compile(pattern).groups if pattern else 1
    except re.error as error:
        raise InputError(f"{option} {pattern!r} is no regular expression: {error}.") from error
    if not groups:
        raise InputError(
            f"{option} {pattern!r} has no group.",
            fix="Put what is looked for in brackets: 'step ([0-9]+)'.",
        )


def _view(*, as_json: bool) -> View:
    from outlay.report.watch_report import JsonView, LineView, LiveView

    if as_json:
        return JsonView()
    return LiveView() if sys.stdout.isatty() else LineView()


def _timing(given: dict[str, Any], usual_s: float) -> Timing:
    from dataclasses import replace

    from outlay.run.supervisor import USUAL

    period_s = _seconds(given["every"]) or usual_s
    return replace(USUAL, period_s=period_s, status_s=min(period_s, USUAL.status_s))


# A process, a Slurm job, a cluster


def _look(plan: WatchPlan, given: dict[str, Any]) -> int:
    """Look at what runs already, to its end."""
    from outlay.run.guard import guard_process, supervised
    from outlay.run.shell import HereShell, SshShell
    from outlay.run.skypilot import TELEMETRY_OFF
    from outlay.run.watch import RemoteProcesses, SkyCluster, SlurmJob

    shell = SshShell(given["host"]) if given["host"] else HereShell()
    log, settings = given["log"] or "", plan.settings
    is_here = given["pid"] is not None and not given["host"]
    target: Any = None
    if given["sky"] is not None:
        sky = HereShell(TELEMETRY_OFF)
        target = SkyCluster(SshShell(given["sky"]), sky, given["sky"], settings, log)
    elif given["slurm"] is not None:
        target = SlurmJob(shell, given["slurm"], settings, log)
    elif not is_here:
        target = RemoteProcesses(shell, str(given["pid"]), settings, log)
    if target is not None:
        target.check()
    view = _view(as_json=given["as_json"])
    try:
        if is_here:
            path, timing = Path(log) if log else None, _timing(given, 2.0)
            guard_process(given["pid"], plan, told=[view], log=path, timing=timing)
            return 0
        timing = _timing(given, REMOTE_S)
        supervisor = supervised(target, plan, [view], timing=timing, is_here=False)
    finally:
        view.close()
    if supervisor.stopped_for and isinstance(target, SkyCluster):
        _delete_later(target, settings.delete_after_s)
    return 0


def _delete_later(cluster: Any, after_s: float | None) -> None:
    """The second timer: a machine that was stopped still costs its disk."""
    import time

    if after_s is None:
        return
    tell(f"It is deleted in {after_s / 60:.0f} minutes; Ctrl-C leaves it stopped.")
    time.sleep(after_s)
    cluster.delete()


# A command


def _command(words: tuple[str, ...], plan: WatchPlan, given: dict[str, Any]) -> int:
    """Start a command and look at it; its output goes where it would go without us."""
    from outlay.probe.command import Relay, width_of_terminal
    from outlay.report.watch_report import JsonView, live_line
    from outlay.run.guard import guard_command
    from outlay.run.supervisor import Messages

    relay = Relay()

    class CommandView(Messages):
        """A line under the command's output, on a terminal."""

        def status(self, status: Any) -> None:
            relay.show(live_line(status, width_of_terminal()))

        def event(self, event: Any) -> None:
            if event["event"] != "started":
                relay.say(f"outlay: {event['text']}")

    # What the command prints is no JSON: it goes where messages go then.
    is_json = given["as_json"]
    told: list[Any] = [JsonView() if is_json else CommandView()]
    with tempfile.TemporaryDirectory(prefix="outlay-watch-", ignore_cleanup_errors=True) as folder:
        try:
            return guard_command(
                words,
                plan,
                told=told,
                agent=Path(folder) if plan.settings.agent else None,
                log=Path(given["log"]) if given["log"] else None,
                timing=_timing(given, 2.0),
                output=(relay.stderr if is_json else relay.stdout, relay.stderr),
                started=lambda _: relay.release_ends(),
                wait=relay.pass_on,
            )
        finally:
            relay.drain()
            relay.close()


# A run of outlay


_OF_A_RUN = {"words", "as_json", "idle", "idle_below", "budget", "delete_after", "notify", "every"}
"""Options that say something of a run, whose own guard has the rest from its workload file."""


def _typed(context: click.Context) -> set[str]:
    """The options that were given, by the names of their parameters."""
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) == ParameterSource.COMMANDLINE
    }


def _follow(name: str, given: dict[str, Any], typed: set[str]) -> int:
    """Follow a run that outlay started, to its end."""
    from dataclasses import replace

    from outlay.run.engine import engine_of
    from outlay.run.launch import recovered, updated
    from outlay.run.run_store import RunStore
    from outlay.run.supervisor import Notifications
    from outlay.run.watch import ASK_S, RunFollower

    with RunStore() as store:
        record = recovered(store, store.get(name).id)
        if record.handle is None:
            raise InputError(
                f"Run {record.id} was not started: it is {record.state}.",
                why=record.reason,
                fix="Start it with `outlay launch`.",
            )
        for option in sorted(typed - _OF_A_RUN):
            tell(
                f"--{option.replace('_', '-')} does nothing here: the run's own guard has its own."
            )
        job = record.job
        if "delete_after" in typed:
            after_s = _seconds(given["delete_after"])
            job = replace(job, watch=replace(job.watch, delete_after_s=after_s))
        view = _view(as_json=given["as_json"])
        usual_s = 2.0 if job.engine == "local" else ASK_S
        follower = RunFollower(
            engine_of(job),
            job,
            record.handle,
            [view, Notifications(given["notify"], f"outlay: run {job.id}")],
            ask_s=_seconds(given["every"]) or usual_s,
            budget_usd=given["budget"],
            idle_s=_seconds(given["idle"]) if "idle" in typed else None,
        )
        try:
            followed = follower.follow()
        finally:
            view.close()
        updated(store, record.id)
        if followed.is_deleted:
            import time

            store.change(record.id, deleted_s=time.time(), event="Deleted there", at_s=time.time())
    return 0 if followed.state.state == "done" else 1
