"""`outlay predict`: a step on GPUs, without any GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    batch_size_of,
    cache_option,
    compiled_option,
    expandable_option,
    json_option,
    learned_calibration,
    memory_cap_option,
    model_options,
    print_document,
    progress_option,
    selected_option,
    settings_of,
    tell,
)

if TYPE_CHECKING:
    from outlay.plan.prediction import GpuPrediction
    from outlay.workload.workload import Compiling


@click.command("predict", no_args_is_help=True)
@click.argument("target")
@click.option(
    "--gpu",
    "gpu_names",
    multiple=True,
    required=True,
    metavar="NAME[:COUNT][,...]",
    help="GPUs to predict; A100:8 is eight in one machine, A + B two unlike ones.",
)
@click.option(
    "--batch-size",
    help="Per GPU, a number or max.  [default: max, or of a measurement its own]",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="GPUs in each machine.",
)
@click.option(
    "--nodes", type=click.IntRange(1, 4096), default=1, show_default=True, help="Machines."
)
@click.option(
    "--strategy",
    default="auto",
    show_default=True,
    help="ddp, zero1, zero2, fsdp, hybrid, with tensor=N, pipeline=N; auto takes the best.",
)
@click.option(
    "--global-batch", type=click.IntRange(1), help="Samples of one update over all GPUs, kept."
)
@click.option(
    "--link",
    type=click.Choice(["nvlink", "mesh", "bridge", "pcie", "host"]),
    help="What joins the GPUs of a machine; host: PCIe without peer-to-peer.",
)
@click.option(
    "--network",
    type=click.FloatRange(0, min_open=True),
    metavar="GBIT/S",
    help="Network of each machine; with --tcp, without RDMA.",
)
@click.option("--tcp", is_flag=True, help="The network has no RDMA (ordinary Ethernet).")
@click.option(
    "--power-limit",
    type=click.FloatRange(0, min_open=True),
    metavar="W",
    help="What each GPU is held to (nvidia-smi -pl).",
)
@memory_cap_option
@expandable_option
@selected_option
@compiled_option
@click.option(
    "--measured",
    multiple=True,
    metavar="FILE|GPU[@BATCH]=SECONDS",
    help="A measurement (outlay probe) or a step time of one GPU: it corrects all and narrows the "
    "ranges. Any number of them.",
)
@click.option(
    "--host-speed",
    type=click.FloatRange(0, min_open=True),
    help="The host against the reference, as `outlay host` measures it there.",
)
@click.option(
    "--input-rate",
    type=click.FloatRange(0, min_open=True),
    help="Samples a second that the input pipeline delivers to a GPU.",
)
@click.option(
    "--node-input-rate",
    type=click.FloatRange(0, min_open=True),
    help="Samples a second that it delivers to all GPUs of a machine together.",
)
@cache_option
@progress_option
@model_options
@json_option
def command(
    target: str,
    gpu_names: tuple[str, ...],
    batch_size: str | None,
    gpus: int,
    nodes: int,
    strategy: str,
    global_batch: int | None,
    link: str | None,
    network: float | None,
    tcp: bool,
    power_limit: float | None,
    memory_cap_mib: int | None,
    expandable_segments: bool,
    selected: float,
    compiled: Compiling | None,
    measured: tuple[str, ...],
    host_speed: float | None,
    input_rate: float | None,
    node_input_rate: float | None,
    method: str | None,
    settings: tuple[str, ...],
    trust_remote_code: bool,
    as_json: bool,
) -> int:
    """Predict step time and memory of a training step on GPUs.

    TARGET is a model by its name (`outlay recipe models`), a bundled profile, a saved one (.json),
    a measurement of `outlay probe` (.json), or what needs torch: a model that is not bundled
    (hf:OWNER/NAME, timm:NAME), path/to/file.py:function, or "path/to/train.py -- ARGUMENTS".

    \b
    Example:
      outlay predict resnet50 --gpu "RTX 3090,A100-80GB" --batch-size 64
      outlay predict llama-3.1-8b --method qlora --set tokens=2048 --gpu "RTX 4090,L4"
      outlay predict train.py:training_step --gpu T4 --batch-size max
      outlay predict bert-large --gpu "RTX 3090:8,H100 SXM:8" --batch-size 8
      outlay predict llama-1b --gpu "A100-80GB SXM" --gpus 8 --nodes 4 --network 1600
      outlay predict resnet50 --gpu "H100,L4" --batch-size 64 --measured "RTX 3090@64=0.101"
      outlay predict probe.json --gpu "H100 SXM,L4" --measured other.json
      outlay predict gpt2-medium --gpu H100 --compiled=reduce-overhead

    A step is bound by the GPU's arithmetic or memory, by the host that issues its operations, by
    its input, or by the network. Exits with 3 when it fits on none of them.
    """
    from outlay.plan.prediction import PredictionRequest, predict_on_gpus
    from outlay.predict.network import Wiring
    from outlay.units import MIB

    request = PredictionRequest(
        target=target,
        method=method,
        settings=settings_of(settings),
        trust_remote_code=trust_remote_code,
        machines=tuple(name.strip() for names in gpu_names for name in names.split(",")),
        batch_size=None if batch_size is None else batch_size_of(batch_size) or "max",
        global_batch_size=global_batch,
        gpus=gpus,
        nodes=nodes,
        strategy=strategy,
        wiring=Wiring(
            gpu_link=link,  # type: ignore[arg-type]
            network_bytes_per_s=None if network is None else network * 1e9 / 8,
            network_kind="TCP" if tcp else "",
        ),
        power_limit_w=power_limit,
        memory_cap_bytes=None if memory_cap_mib is None else float(memory_cap_mib * MIB),
        expandable_segments=expandable_segments,
        compiled=compiled,
        measured=measured,
        host_speed=host_speed,
        input_samples_per_s=input_rate,
        node_samples_per_s=node_input_rate,
        selected=selected,
    )
    predictions = predict_on_gpus(request, learned=learned_calibration(), progress=tell)
    if as_json:
        from outlay.report.documents import predictions_document

        print_document(predictions_document(target, predictions))
    else:
        _print(predictions)
    return 0 if any(prediction.step.fits for prediction in predictions) else 3


def _print(predictions: Sequence[GpuPrediction]) -> None:
    from outlay.report.console import Page, muted
    from outlay.report.tables import breakdown_table, predictions_table

    page = Page()
    steps = [prediction.step for prediction in predictions]
    page.print(predictions_table(steps, page.width))
    page.print()
    page.print(breakdown_table(steps, page.width))
    for note in dict.fromkeys(note for prediction in predictions for note in prediction.notes):
        page.print(muted(note))
