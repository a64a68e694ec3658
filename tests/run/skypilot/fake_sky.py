"""A `sky` command for tests: it keeps clusters and managed jobs in a file, and fails as it is told.

FAKE_SKY names a folder. `state.json` in it is what there is; `calls.jsonl` gets each call with its
arguments and variables; `fault.json` maps the start of a command to what happens instead of it:
{"launch": {"exit": 1, "error": "...", "after": true}}; `after`: it is done, and then fails.
The replies have the shape of SkyPilot 0.14.1, as tests/run/test_skypilot_contract.py asserts.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SKY"])


def main() -> int:
    words = sys.argv[1:]
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("SKYPILOT_", "SECRET_")) or name == "HF_TOKEN"
    }
    with (FOLDER / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps({"words": words, "variables": kept}) + "\n")
    fault = next((what for start, what in _faults() if " ".join(words).startswith(start)), None)
    if fault and not fault.get("after"):
        return _fail(fault)
    state = json.loads((FOLDER / "state.json").read_text())
    status = _run(words, state)
    (FOLDER / "state.json").write_text(json.dumps(state))
    return _fail(fault) if fault else status


def _faults() -> list[tuple[str, dict[str, object]]]:
    path = FOLDER / "fault.json"
    if not path.exists():
        return []
    faults = json.loads(path.read_text())
    for what in faults.values():
        if "times" in what:
            what["times"] -= 1
    kept = {start: what for start, what in faults.items() if what.get("times", 1) > 0}
    path.write_text(json.dumps(kept))
    return list(faults.items())


def _fail(fault: dict[str, object]) -> int:
    time.sleep(float(str(fault.get("sleep", 0))))
    sys.stdout.write(str(fault.get("output", "")))
    sys.stderr.write(str(fault.get("error", "")))
    return int(str(fault.get("exit", 1)))


def _run(words: list[str], state: dict[str, object]) -> int:
    clusters, jobs, managed = state["clusters"], state["jobs"], state["managed"]
    assert isinstance(clusters, dict)
    assert isinstance(jobs, dict)
    assert isinstance(managed, list)
    match words:
        case ["status", name, *_]:
            if name not in clusters:
                print(f"Cluster(s) not found: \x1b[1m{name}\x1b[0m.")
            print(json.dumps([clusters[name]] if name in clusters else [], indent=2))
        case ["queue", name, *_]:
            print(f"Fetching job queue for: {name}")
            print(json.dumps({name: jobs.get(name, [])} if name in clusters else {}, indent=2))
        case ["api", "status", *_]:
            print(json.dumps(state["requests"], indent=2))
        case ["api", "cancel", *_]:
            state["requests"] = []
        case ["check", cloud, *_]:
            enabled = {one: ["compute"] for one in state["enabled"] if one.lower() == cloud}
            print(json.dumps({"default": enabled}))
        case ["launch", "-c", name, *_]:
            clusters[name] = _cluster(name)
            jobs.setdefault(name, []).append({"job_id": 1, "job_name": name, "status": "RUNNING"})
        case ["jobs", "launch", "-n", name, *_]:
            row = {"job_id": len(managed) + 1, "job_name": name, "status": "STARTING"}
            managed.append(row)
        case ["jobs", "queue", *_]:
            if not managed:
                print(
                    "sky.exceptions.ClusterNotUpError: No in-progress managed jobs.",
                    file=sys.stderr,
                )
                return 1
            print(json.dumps(managed, indent=2))
        case ["jobs", "cancel", "--yes", number]:
            next(row for row in managed if row["job_id"] == int(number))["status"] = "CANCELLING"
        case ["jobs", "logs", *_]:
            print("\x1b[36m(train, pid=12)\x1b[0m step 1\n(train, pid=12) step 2\n\x1b[32m✓ done")
            return 100
        case ["start", *_, name]:
            clusters[name]["status"] = "UP"
        case ["stop", "--yes", name]:
            clusters[name]["status"] = "STOPPED"
        case ["down", "--yes", name]:
            clusters.pop(name, None)
        case ["storage", "delete", "--yes", name]:
            print(f"Storage {name} not found.")
        case _:
            print(f"No such command {words}", file=sys.stderr)
            return 2
    return 0


def _cluster(name: str) -> dict[str, object]:
    return {
        "name": name, "launched_at": 1794892647, "status": "UP", "autostop": 10, "to_down": True,
        "cloud": "GCP", "region": "us-central1", "nodes": 1,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
