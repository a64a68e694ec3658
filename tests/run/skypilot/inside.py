"""What SkyPilot itself says: run by the Python of .venv-skypilot, in a home of its own.

Reads {"tasks": {name: YAML}, "workloads": [path]} and prints JSON: its clouds and what they lack,
each task as it reads it, records as its commands print them, and what its optimizer chooses. It
asks nobody: catalogues lie in the home, and clouds count as enabled.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sky
from sky import check, dag, optimizer
from sky.client.cli import command
from sky.clouds import cloud as sky_cloud
from sky.schemas.api import responses
from sky.skylet import constants
from sky.utils import common, dag_utils, registry

from outlay.offers.catalog import snapshot_date, snapshot_offers
from outlay.offers.price_book import PriceBook
from outlay.plan.pipeline import plan_workload
from outlay.run.launch import machine_of
from outlay.run.skypilot import is_rentable, resources, time_estimator
from outlay.workload.file import read_workload

FEATURES = {
    "STOP": "stop",
    "AUTODOWN": "timer",
    "SPOT_INSTANCE": "spot",
    "MULTI_NODE": "nodes",
    "STORAGE_MOUNTING": "buckets",
    "DOCKER_IMAGE": "images",
}
NOT_RENTED = ("kubernetes", "ssh", "slurm", "vsphere")


def clouds() -> dict[str, list[str]]:
    """Clouds with what SkyPilot cannot do on demand there."""
    found = {}
    for name in constants.ALL_CLOUDS:
        if name in NOT_RENTED:
            continue
        cloud = registry.CLOUD_REGISTRY.from_str(name)
        lacks = cloud._unsupported_features_for_resources(sky.Resources(cloud=cloud))
        found[name] = sorted(FEATURES[one.name] for one in lacks if one.name in FEATURES)
    return found


def task(text: str) -> dict[str, Any]:
    """A task as SkyPilot reads it, and as it writes it again; as a managed job, too."""
    read = dag_utils.load_chain_dag_from_yaml_str(text).tasks[0]
    read.validate(skip_file_mounts=True, skip_workdir=True)
    config = read.to_yaml_config()
    job = dag_utils.load_chain_dag_from_yaml_str(text)
    dag_utils.fill_default_config_in_dag_for_job_launch(job)
    recoveries = [one.job_recovery for one in job.tasks[0].resources]
    return {
        "config": config,
        "secrets": [one.name for one in read._managed_secret_refs],
        "envs": read.envs,
        "mounts": sorted(read.storage_mounts),
        "recovery": recoveries[0],
    }


def records() -> dict[str, Any]:
    """One row of each command, as it prints them."""
    cluster = responses.StatusResponse(
        name="outlay-a", launched_at=1794892647, status=sky.ClusterStatus.UP, autostop=10,
        to_down=True, cluster_hash="h", cluster_ever_up=True, user_hash="u", user_name="me",
        workspace="default", is_managed=False, nodes=1, cloud="GCP", region="us-central1",
    )  # fmt: skip
    job = responses.ClusterJobRecord(
        job_id=1, job_name="outlay-a", username="me", user_hash="u", submitted_at=1.0,
        start_at=2.0, end_at=None, resources="1x", status=sky.JobStatus.RUNNING, log_path="x",
    )  # fmt: skip
    managed = responses.ManagedJobRecord(
        job_id=4, job_name="outlay-a", status=sky.ManagedJobStatus.RECOVERING, start_at=2.0,
        cloud="GCP", region="us-central1", zone="-", recovery_count=1,
    )  # fmt: skip
    rows = {"cluster": cluster, "job": job, "managed": managed}
    return {name: row.model_dump(mode="json") for name, row in rows.items()} | {
        "job_statuses": [one.value for one in sky.JobStatus],
        "managed_statuses": [one.value for one in sky.ManagedJobStatus],
        "cluster_statuses": [one.value for one in sky.ClusterStatus],
    }


def choices(path: str) -> dict[str, Any]:
    """What the plan of a workload chooses, and what SkyPilot does, by the job and by the hour."""
    workload = read_workload(Path(path))
    day = snapshot_date()
    prices = PriceBook(
        name=f"the catalogue of {day}", kind="past", as_of=day, listed=snapshot_offers(), day=day
    )  # as SkyPilot has them: without what list prices said later
    plan = plan_workload(workload, prices=prices)
    assert plan.chosen is not None
    machines = {option.rank: machine_of(option, workload) for option in plan.options if option.runs}
    asked = [resources(one) for one in machines.values() if is_rentable(one)]
    return {
        "chosen": resources(machine_of(plan.chosen, workload)),
        "chosen_usd": plan.chosen.usd,
        "chosen_usd_per_hour": plan.chosen.hourly_usd,
        "options": len(asked),
        "by_job": chosen(asked, time_estimator(plan)),
        "by_hour": chosen(asked, None),
    }


def chosen(asked: list[Any], estimator: Any) -> dict[str, Any]:
    with dag.Dag() as graph:
        one = sky.Task("train", run="true")
        one.set_resources({sky.Resources(**given) for given in asked})
        if estimator is not None:
            one.set_time_estimator(estimator)
    optimizer.Optimizer.optimize(graph, common.OptimizeTarget.COST, quiet=True)
    best = one.best_resources
    return {
        "cloud": str(best.cloud).lower(),
        "instance_type": best.instance_type,
        "use_spot": best.use_spot,
        "usd_per_hour": best.get_cost(3600),
        "run_time_s": None if estimator is None else estimator(best),
    }


def options(words: list[str]) -> list[str]:
    """The options that a command of `sky` takes."""
    found: Any = command.cli
    for word in words:
        found = found.commands[word]
    return [name for one in found.params for name in (*one.opts, *one.secondary_opts)]


def main() -> None:
    asked = json.load(sys.stdin)
    enabled = [registry.CLOUD_REGISTRY.from_str(one) for one in asked["enabled"]]
    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: enabled  # type: ignore[assignment]
    check.check_capability = lambda *_, **__: None  # type: ignore[assignment]
    answer = {
        "version": sky.__version__,
        "clouds": clouds(),
        "nameless": [
            name
            for name in constants.ALL_CLOUDS
            if registry.CLOUD_REGISTRY.from_str(name)._REPR == sky_cloud.Cloud._REPR
        ],
        "tasks": {name: task(text) for name, text in asked["tasks"].items()},
        "records": records(),
        "options": {name: options(name.split()) for name in asked["commands"]},
        "choices": {Path(path).stem: choices(path) for path in asked["workloads"]},
    }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
