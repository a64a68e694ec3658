"""What every test shares: markers that say what a test needs, and what happens where it is missing.

A test that needs torch or a real server is skipped by name where it is not installed, and the run
closes with a count. OUTLAY_TEST_SKIPS=forbid turns every such skip into a failure of the run.
Tests that need a GPU are deselected, unless OUTLAY_TEST_GPU is set, and so are those on real files
of price sources, unless OUTLAY_TEST_PRICE_SOURCES names their folder.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from pathlib import Path

import pytest

from outlay.trace import process

# Several tests run at once: with threads of its own for each, torch would mostly wait for them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests plan with the bundled prices, whatever was refreshed on the machine they run on.
os.environ["OUTLAY_PRICES"] = "bundled"
# The page of a test is as wide as it says, whatever the terminal is in which it runs.
os.environ.pop("COLUMNS", None)
# A job in the background ignores the signal of Ctrl-C, and so would all that tests start and stop.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests start Python some hundred times: each would compile outlay anew, half of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parent.parent
SKYPILOT = ROOT / ".venv-skypilot" / "bin" / "sky"
"""SkyPilot's own command, in an environment of its own."""
SERVICES = {
    "slurm": "sbatch",
    "sshd": "/usr/sbin/sshd",
    "postgresql": "psql",
    "chromium": "chromium",
}
"""The program that tells whether a service is installed."""
FRAMEWORKS = (
    "torchvision",
    "transformers",
    "timm",
    "diffusers",
    "lightning",
    "accelerate",
    "bitsandbytes",
    "torchao",
    "accelerate",
    "wandb",
    "mlflow",
    "IPython",
)
"""Libraries whose models are traced, and in which training is probed."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    missing = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is None]
    kept, dropped = [], []
    for item in items:
        if item.get_closest_marker("gpu") and os.environ.get("OUTLAY_TEST_GPU"):
            kept.append(item)
            continue
        has_sources = bool(os.environ.get("OUTLAY_TEST_PRICE_SOURCES"))
        if item.get_closest_marker("sources") and not has_sources:
            dropped.append(item)
            continue
        if item.get_closest_marker("gpu") or item.get_closest_marker("network"):
            dropped.append(item)
            continue
        kept.append(item)
        if item.get_closest_marker("torch") and not has_torch:
            item.add_marker(pytest.mark.skip(reason="torch is not installed (make test does it)"))
        if item.get_closest_marker("frameworks") and missing:
            reason = f"{missing[0]} is not installed (make test does it)"
            item.add_marker(pytest.mark.skip(reason=reason))
        if item.get_closest_marker("skypilot") and not SKYPILOT.exists():
            reason = "SkyPilot is not installed (make test does it)"
            item.add_marker(pytest.mark.skip(reason=reason))
        for marker in item.iter_markers("service"):
            name = marker.args[0]
            if shutil.which(SERVICES[name]) is None:
                reason = f"{name} is not installed (make services does it)"
                item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = _longest_first(kept)
    if dropped:
        config.hook.pytest_deselected(items=dropped)


LONGEST = ("test_memory.py", "test_scripts.py", "test_bundled_profiles.py")
"""Files that compute for over half a minute each: nobody should begin one near the end."""


def _longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The longest files, those that wait for servers, then those that need torch, before all
    others: waiting and computing go on at once, and no worker is left with a long file at the end.
    """
    waiting = {
        item.path
        for item in items
        if item.get_closest_marker("service") or item.get_closest_marker("skypilot")
    }
    long = {item.path for item in items if item.get_closest_marker("torch")}

    def rank(item: pytest.Item) -> tuple[bool, bool, bool]:
        is_longest = item.path.name in LONGEST and item.path in long
        return not is_longest, item.path not in waiting, item.path not in long

    return sorted(items, key=rank)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests skipped for what is not installed")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("OUTLAY_TEST_SKIPS") == "forbid":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def own_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own folder: an empty one, so that no test reads the developer's.

    What is tested is tracing: traces are kept where a test asks for it (`kept_traces`).
    """
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("OUTLAY_DATA", str(folder))
    monkeypatch.setenv("OUTLAY_NO_CACHE", "1")
    return folder


@pytest.fixture
def kept_traces(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where traces are kept, as they are for users."""
    monkeypatch.delenv("OUTLAY_NO_CACHE")
    return own_folder / "cache" / "traces"


@pytest.fixture(scope="session", autouse=True)
def _tracing_process_stays() -> None:
    """The process that traces are forked from waits for more: importing torch takes seconds."""
    process.IDLE_S = 3600.0


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT
