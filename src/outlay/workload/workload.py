"""What the user wants to train, for how long, on what data and within which limits.

Plain values in outlay's units (seconds, bytes, dollars); `workload.file` reads them from TOML,
where `workload.tables` says what may be written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from outlay.uncertainty import Uncertain

WITH_THE_RUN = "run"
"""Where something lies that is kept at the provider the run is on."""
FREE_SOURCES = frozenset({"home", "internet"})
"""Places to fetch from that charge nothing for it."""


Compiling = Literal["eager", "default", "reduce-overhead", "max-autotune"]
"""Whether a step runs under torch.compile, and in which of its modes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The training step: a bundled profile, a saved one, a measurement, code to trace, or a model
    by its name."""

    profile: str | None = None
    target: str | None = None
    """`path/to/file.py:function`, traced when planning (needs torch)."""
    model: str | None = None
    """A model's name, trained by a recipe."""
    method: str | None = None
    """The recipe; None is the model's usual one."""
    tokens: int | None = None
    """What the model sees of a sample; None is what the recipe has."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Further settings of the recipe, by name."""
    trust_remote_code: bool = False
    """Whether a model of the hub may run its repository's own code here."""
    batch_size: int | None = None
    """Per GPU; None is the largest that fits."""
    batch_left_open: bool = False
    """Whether nothing was said of the batch: then None is that of the measurement where the profile
    is one, and of a bundled profile the largest up to what it was published with."""
    max_batch_size: int | None = None
    """Per GPU; the largest that fits is held to it."""
    measured: tuple[str, ...] = ()
    """Files of measurements of this step, whose times correct the prediction."""
    precision: str | None = None
    """Arithmetic to use instead of the traced one."""
    compiled: Compiling | None = None
    """The mode of torch.compile it runs in; None: as its own code says, or its measurement."""
    global_batch_size: int | None = None
    """Samples of one update over all GPUs, where that is kept; None: it grows with the GPUs."""
    strategy: str | None = None
    """How to spread over GPUs (`ddp`, `fsdp,tensor=2` ...); None is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long to train. `samples` and `epochs` are equal work on every machine; plain
    `iterations` are that many steps at each machine's own batch; `training_s` is a fixed time, an
    hour of which counts the same on every machine, or by the work that is done in it."""

    samples: float | None = None
    epochs: float | None = None
    iterations: int | None = None
    global_batch_size: int | None = None
    """The batch `iterations` refers to: with it they are equal work, too."""
    training_s: float | None = None
    hours_are_equal: bool = True
    """Of `training_s`: whether an hour counts the same on every machine, so that the cheapest is
    best; else by the work done in it, so that the cheapest sample is."""

    @property
    def is_equal_hours(self) -> bool:
        """Whether options are compared by hours that are the same on every machine."""
        return self.training_s is not None and self.hours_are_equal

    @property
    def is_unequal_hours(self) -> bool:
        """Whether options are compared by the work they do in a time."""
        return self.training_s is not None and not self.hours_are_equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """An interval: a time, or so many epochs, steps or samples."""

    time_s: float | None = None
    epochs: float | None = None
    steps: float | None = None
    """Of the batch that the length's steps are of, where it says; else of each machine's own."""
    samples: float | None = None
    """Trained on by all GPUs together: as many intervals in a run everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is looked at now and then while training: so many samples, or so long."""

    every: Cadence
    samples: float | None = None
    time_s: float | None = None
    times: Uncertain = 1.0
    """How often in each such interval, where that is not known for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Other time between steps, now and then: new epochs, stalls."""

    name: str
    every: Cadence
    time_s: Uncertain
    times: Uncertain = 1.0
    """How often in each such interval, where that is not known for certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """How samples get to the GPU: read from a disk, decoded and augmented by CPU threads."""

    kind: str | None = None
    """What a sample is to the CPU, such as `jpeg 500x375 to 224`."""
    samples_per_s_per_vcpu: Uncertain | None = None
    """Decoded and augmented by one thread, as the user measured it."""
    sample_bytes: float | None = None
    """As read; None is the dataset's size by its samples."""
    disk: str | None = None
    """`nvme`, `sata`, `hdd`, `volume` or `network`; None is what the offer has."""
    disk_bytes_per_s: Uncertain | None = None
    cached: bool | None = None
    """Whether it is read from RAM after the first epoch; None: where it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The data: how much of it, where it lies, and how long preparing it takes on the machine."""

    samples: int | None = None
    size_bytes: float | None = None
    preparation_s: Uncertain = 0.0
    prepared_each_session: bool = True
    at: str = "internet"
    """A place: `home`, `internet`, a provider, or one of its regions (`aws:us-east-1`)."""
    kept_at: str = WITH_THE_RUN
    storage: str = "volume"
    results_bytes: float = 0.0
    """Fetched home at the end."""
    upload_bytes_per_s: Uncertain | None = None
    """From home; None takes the assumption."""
    download_bytes_per_s: Uncertain | None = None
    """To the machine, from elsewhere; None takes the assumption."""
    feed: Feed | None = None
    """How samples get from the disk to the GPU; None where nothing is said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredData:
    """Something kept and paid for by the GB-month, and perhaps pulled by each machine."""

    name: str
    size_bytes: float
    at: str = WITH_THE_RUN
    also_at: tuple[str, ...] = ()
    """Other places to compare."""
    kind: str = "volume"
    pulled_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is written now and then so that work is not lost."""

    size_bytes: float | None = None
    interval: Cadence | None = None
    """None: the interval that costs least (Young 1974, Daly 2006)."""
    time_s: float | None = None
    """What writing one took somewhere; other disks differ from that as from the usual one."""
    times: Uncertain = 1.0
    """How often in each such interval, where that is not known for certain."""
    kept: int = 1
    on_notice: bool = False
    """Whether the script saves itself when it is told that its machine will be taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One run from end to end, or a number of sessions a month, or some hours a day."""

    sessions_per_month: float | None = None
    hours_per_day: float | None = None
    days_per_week: float = 7.0
    machines: int = 1
    """Machines that train together."""
    machines_tried: tuple[int, ...] = ()
    """Numbers of machines to compare; empty: only `machines`."""
    setup_s: Uncertain | None = None
    """From asking for a machine to the first step, in each session; None takes assumptions."""
    idle_s: Uncertain = 0.0
    """Held and billed in each session while nothing trains."""
    storage_s: float | None = None
    """How long data is kept; None is as long as the run takes."""
    horizon_s: float | None = None
    """How long this use goes on, for purchases and commitments; None: this run or month."""
    interest_per_year: float | None = None
    """What money paid on the first day would bring or costs elsewhere; None: for commitments the
    assumption, for machines to be bought what each of them says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an option must satisfy."""

    budget_usd: float | None = None
    cash_upfront_usd: float | None = None
    """What may be paid on the first day; None: the budget."""
    deadline_s: float | None = None
    gpu_memory_bytes: float | None = None
    """At least so much on each GPU."""
    interruptions: float | None = None
    """At most so many to be expected."""
    confidence: float = 0.8
    """The chance with which budget and deadline must be kept."""


Risk = Literal["expected", "p90", "likely"]
"""What of an uncertain cost options are ranked by: its mean, its 90th percentile, or the sum of
its lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorthSwitching:
    """From when on one option is better than another, rather than as good."""

    usd: float = 5.0
    fraction: float = 0.05
    """Who saves less than both of the other's cost is as good as the other."""
    wins: float = 0.6
    """Who is cheaper in a smaller share of the simulated runs is, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What is worth money besides money, and how much certainty is."""

    risk: Risk = "expected"
    worth_switching: WorthSwitching = field(default_factory=WorthSwitching)
    usd_per_interruption: float | None = None
    """What a spot machine that is taken away asks of a person; None takes the assumption."""
    usd_per_start: float | None = None
    """What getting a spot machine asks of a person, in each session; None: the assumption."""

    waiting_usd_per_hour: float = 0.0
    """What an hour until the end is worth."""
    providers: tuple[str, ...] = ()
    premium_fraction: float = 0.0
    """How much more one of the preferred providers may cost."""
    qualities: tuple[tuple[str, str], ...] = ()
    """Facts a provider must have: (`access`, `full machine`) ..."""
    trust: str = ""
    """Which doubts about prices keep an offer from being chosen: `usual`, `strict`, `all`, or
    doubts that do not, with commas between; empty: as usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTime:
    """The user's own hours, as a line of the bill."""

    usd_per_hour: float
    session_s: Uncertain = 0.0
    once_s: Uncertain = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """GPUs, providers, regions, instances and tenancies by name; empty means no restriction."""

    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    instances: tuple[str, ...] = ()
    tenancies: tuple[str, ...] = ()
    max_gpus: int | None = None
    bundled: bool = True
    """Whether the bundled offers are considered besides the user's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """An offer the user was given."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    price_usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    region: str = "any"
    vcpus: float | None = None
    ram_bytes: float | None = None
    local_disk_bytes: float | None = None
    network_bytes_per_s: float | None = None
    disk: str | None = None
    disk_bytes_per_s: Uncertain | None = None
    setup_s: Uncertain | None = None
    setup_cost_usd: Uncertain = 0.0
    """Charged once for each machine."""
    interruptions_per_month: Uncertain | None = None
    term_s: float | None = None
    """Taken and paid for that long, where it is a commitment."""
    upfront_usd: float = 0.0
    """Of the term's price, what is paid on its first day for each machine."""
    as_of: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workstation:
    """A machine of one's own, or one to be bought (then `purchase_usd` is set)."""

    name: str
    gpu: str
    gpus: int
    other_gpus: tuple[str, ...] = ()
    """Further GPUs of another kind in the same machine."""
    vcpus: float | None = None
    ram_bytes: float | None = None
    power_limit_w: float | None = None
    """Of each GPU, where it is held to less than it was shipped with."""
    network_bytes_per_s: float | None = None
    disk: str | None = None
    disk_bytes_per_s: Uncertain | None = None
    host_w: float | None = None
    electricity_usd_per_kwh: Uncertain | None = None
    purchase_usd: Uncertain | None = None
    parts: tuple[tuple[str, float], ...] = ()
    """What the purchase is made of, in dollars; empty where only the whole is known."""
    resale_usd: Uncertain | None = None
    resale_fraction: Uncertain | None = None
    """Of the purchase; None with `resale_usd` None takes nothing."""
    lifetime_use_s: float | None = None
    years: float | None = None
    utilisation: float | None = None
    """Share of all hours it is used; with `years` it gives the hours of use."""
    idle_w: float | None = None
    """Of the whole machine while it is on and nothing runs; None: it is switched off."""
    maintenance_usd_per_year: float = 0.0
    interest_per_year: float | None = None
    """What the money would bring or costs elsewhere; None is `Usage.interest_per_year`, or none."""
    others_use_s: float = 0.0
    """Hours in its life that others use it, beside the user's own."""
    wear_usd_per_hour: float = 0.0
    pue: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsOverride:
    """What the user pays a provider where it differs from the table."""

    provider: str
    billing_step_s: float | None = None
    billing_minimum_s: float | None = None
    volume_usd_per_gb_month: float | None = None
    object_usd_per_gb_month: float | None = None
    registry_usd_per_gb_month: float | None = None
    egress_usd_per_gb: float | None = None
    egress_free_gb_per_month: float | None = None
    between_regions_usd_per_gb: float | None = None
    copying_machine_usd_per_hour: float | None = None
    block_usd: float | None = None
    fee_usd_per_month: float = 0.0
    discount_fraction: float = 0.0
    credit_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """When a run is stopped before its end, and how; a rule whose figure is None is off."""

    idle_below_fraction: float = 0.05
    """GPUs that do less, with nothing else going on, are idle ..."""
    idle_s: float | None = 600.0
    """... and are stopped after so long."""
    stall_s: float | None = 1800.0
    """Without a step for so long, and for much longer than any before, while nothing moves."""
    stop_on_bad_loss: bool = True
    """Whether a loss that is not finite, several times in a row, ends the run."""
    grace_s: float = 120.0
    """From the warning to the stop: time to save a checkpoint."""
    signal: str = ""
    """Sent halfway to the stop, so that the script saves (`USR1`); empty: USR1 where it handles
    it."""
    loss_pattern: str = ""
    """A regular expression whose first group is the loss, for scripts that outlay did not start."""
    step_pattern: str = ""
    then: Literal["stop", "shut down", "warn"] = "stop"
    """What happens then: the run is stopped, the machine as well, or nothing."""
    delete_after_s: float | None = None
    """A machine that was stopped is deleted after so long, disk and all; None: never by outlay."""
    notify: tuple[str, ...] = ()
    """Addresses for warnings, as apprise has them; kept in no file of a run."""
    agent: bool = True
    """Whether outlay's agent counts steps in the script's own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHost:
    """A machine one can log in to."""

    address: str
    """As for ssh: `user@host`, or a name of the ssh configuration."""
    gpu: str = ""
    """`RTX 3090:2`; empty where not said."""
    price_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """How jobs are handed to a Slurm cluster."""

    login: str = ""
    """Where sbatch is, as for ssh; empty: here."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_s: float | None = None
    """The job's time limit; None: twice what the run is expected to take."""
    gpu_types: tuple[tuple[str, str], ...] = ()
    """The cluster's own names of GPUs: (`A100 80GB`, `a100`); of others none is named."""
    options: tuple[str, ...] = ()
    """Further lines for sbatch, such as `--constraint=nvlink`."""
    price_usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyPilotSettings:
    """How tasks are handed to SkyPilot."""

    bucket: str = ""
    """Where checkpoints are kept for a machine that replaces one: `s3://mine/run`."""
    disk_bytes: float | None = None
    idle_minutes: int = 10
    """Without a job and a login for so long, SkyPilot stops the machine by itself."""


EngineName = Literal["local", "ssh", "slurm", "skypilot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What `outlay launch` and `outlay bench` start: the `[run]` table.

    `{batch}`, `{gpus}`, `{machines}` and `{checkpoints}` in a command stand for figures of the plan
    and the checkpoints' folder. A command is a line of shell, or a list of arguments.
    """

    command: str | tuple[str, ...]
    resume: str | tuple[str, ...] | None = None
    """Instead of the command, where there are checkpoints already; None: the command again."""
    setup: tuple[str, ...] = ()
    """Lines of shell, before the command, on every machine."""
    folder: str = "."
    """What is sent, and where the command runs."""
    exclude: tuple[str, ...] = ()
    """Of the folder, what is not sent: names, or patterns with * and ?."""
    send: tuple[str, ...] = ()
    """Further files and folders; they land beside the command."""
    fetch: tuple[str, ...] = ()
    """Brought back at the end: paths or patterns within the folder."""
    checkpoints: str = ""
    """The folder of checkpoints, within the folder; empty: none is known."""
    environment: tuple[tuple[str, str], ...] = ()
    pass_on: tuple[str, ...] = ()
    """Names of variables that are handed over from here; their values are written nowhere."""
    engine: EngineName | None = None
    image: str = ""
    """A container or machine image, for engines that take one."""
    processes: Literal["auto", "one", "torchrun"] = "auto"
    """`auto`: with several GPUs torchrun starts a process for each, unless the command does."""
    outlay: str = ""
    """How a machine without outlay gets it: empty sends this very one; or what pip is to install;
    `none`: it is not installed, and the run is guarded by its time limit alone."""
    hosts: tuple[RunHost, ...] = ()
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    skypilot: SkyPilotSettings = field(default_factory=SkyPilotSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything a plan needs to know from the user."""

    name: str
    step: Step
    length: Length
    data: Dataset = field(default_factory=Dataset)
    stored: tuple[StoredData, ...] = ()
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    usage: Usage = field(default_factory=Usage)
    evaluation: Evaluation | None = None
    pauses: tuple[Pause, ...] = ()
    limits: Limits = field(default_factory=Limits)
    prefer: Preferences = field(default_factory=Preferences)
    own_time: OwnTime | None = None
    tax_fraction: float = 0.0
    """Added to what providers charge without it."""
    consider: Selection = field(default_factory=Selection)
    leave_out: Selection = field(default_factory=Selection)
    quotes: tuple[Quote, ...] = ()
    workstations: tuple[Workstation, ...] = ()
    terms: tuple[TermsOverride, ...] = ()
    currency: str = "USD"
    usd_per_unit: float = 1.0
    """One unit of the user's currency in dollars."""
    rate_as_of: str = ""
    """The day of that exchange rate."""
    currency_day: str = ""
    """The day whose exchange rate the file asks for; empty for the newest."""
    run: RunSettings | None = None
    """What is really started; None where the file does not say."""

    def samples(self) -> float | None:
        """Samples to train on, None where that depends on each machine's batch or speed."""
        length = self.length
        if length.samples is not None:
            return length.samples
        if length.epochs is not None and self.data.samples is not None:
            return length.epochs * self.data.samples
        if length.iterations is not None and length.global_batch_size is not None:
            return float(length.iterations * length.global_batch_size)
        return None
