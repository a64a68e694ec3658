from __future__ import annotations

import importlib
import subprocess
import sys
import types

import pytest

import outlay

PUBLIC = [
    "Breakdown",
    "Estimate",
    "Gpu",
    "Line",
    "Measurement",
    "Offer",
    "Option",
    "OutlayError",
    "Plan",
    "BlockProbe",
    "StepReport",
    "Workload",
    "best_offers",
    "bundled_offers",
    "find_gpu",
    "find_profile",
    "gpus",
    "parse_workload",
    "plan_workload",
    "probing",
    "profile_of",
    "rank_offers",
    "read_measurement",
    "read_workload",
    "register_op",
    "swings",
    "trace_step",
    "trial_value",
]


def test_all_is_exact():
    assert sorted(outlay.__all__) == sorted(PUBLIC)
    assert len(set(outlay.__all__)) == len(outlay.__all__)
    assert dir(outlay) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_the_one_its_module_defines(name):
    member = getattr(outlay, name)
    home = importlib.import_module(member.__module__)
    assert getattr(home, name) is member
    assert home.__name__.startswith("outlay.")
    assert member.__doc__


@pytest.mark.parametrize(
    "imports",
    [
        "import outlay.trace",
        "import outlay; outlay.trace_step",
        "import outlay.trace; outlay.trace_step",
        "import outlay; outlay.trace_step; import outlay.trace",
        "from outlay import trace",
        "from outlay import trace_step, trace",
        "from outlay.trace.tracing import trace_step",
        "from outlay import *",
    ],
)
def test_trace_is_the_package_and_trace_step_the_function(imports):
    code = f"""{imports}
import types, outlay
assert isinstance(outlay.trace, types.ModuleType), outlay.trace
assert not callable(outlay.trace)
assert isinstance(outlay.trace_step, types.FunctionType), outlay.trace_step
from outlay.trace.tracing import trace_step
assert outlay.trace_step is trace_step
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_needs_a_library_of_its_own_comes_only_when_asked_for():
    asked_for = {"LightningProbe", "TrainerProbe", "load_ipython_extension"}
    assert not asked_for & {*outlay.__all__, *dir(outlay)}
    assert outlay.load_ipython_extension.__module__ == "outlay.inline.notebook"
    assert not loaded_after("from outlay import *") & {"torch", "transformers", "lightning"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plan_everything'"):
        getattr(outlay, "plan_everything")  # noqa: B009


def test_star_import_brings_the_public_names():
    space = types.ModuleType("space")
    exec("from outlay import *", vars(space))
    assert set(PUBLIC) <= set(vars(space))


def loaded_after(code):
    """The packages that are loaded after some code in a fresh Python."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_import_loads_nothing_heavy():
    loaded = loaded_after("import outlay")
    assert "outlay" in loaded
    assert not loaded & {"torch", "numpy", "rich", "click", "pydantic"}


def test_planning_needs_neither_torch_nor_a_terminal():
    loaded = loaded_after("import outlay; outlay.plan_workload, outlay.parse_workload")
    assert {"pydantic", "numpy"} <= loaded
    assert not loaded & {"torch", "rich", "click", "currency_converter"}
