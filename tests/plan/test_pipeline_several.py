"""Plans over several machines, unlike GPUs, and under power limits."""

from __future__ import annotations

import pytest

from outlay.errors import InputError
from outlay.plan.pipeline import plan_workload
from outlay.workload.file import parse_workload


def planned(text):
    return plan_workload(parse_workload(text))


OWN = """
name = "own"
[step]
profile = "resnet50"
batch_size = 32
[length]
samples = 1e6
[consider]
bundled = false
"""
QUOTE = """
[[offer]]
provider = "north"
gpu = "A100-80GB SXM"
gpus = 8
price_per_hour = 16
network_gbit = {network}
"""


def test_several_machines_are_compared():
    text = OWN + "[usage]\nmachines = [1, 2, 4]\n" + QUOTE.format(network=400)
    plan = planned(text)
    nodes = {option.step.placement.nodes: option for option in plan.options}
    assert sorted(nodes) == [1, 2, 4]
    for count, option in nodes.items():
        assert option.step.global_batch_size == 32 * 8 * count
        assert option.run is not None
    times = [nodes[count].run.training_s for count in (1, 2, 4)]
    assert times == sorted(times, reverse=True)
    # never better than perfectly
    assert times[1] >= times[0] / 2


def test_a_slow_network_costs_time():
    times = []
    for network in (1, 400):
        text = OWN + "[usage]\nmachines = 4\n" + QUOTE.format(network=network)
        times.append(planned(text).options[0].run.training_s)
    assert times[0] > times[1]


def test_a_machine_of_one_s_own_comes_once():
    text = OWN + "[usage]\nmachines = [1, 4]\n[[machine]]\nname = 'desk'\ngpu = 'RTX 3090'\n"
    assert [option.step.placement.nodes for option in planned(text).options] == [1]


def test_a_global_batch_is_kept_by_passes():
    text = OWN.replace("batch_size = 32", "global_batch_size = 4096") + QUOTE.format(network=400)
    (option,) = planned(text).options
    assert option.step.global_batch_size == 4096
    said = " ".join(planned(text).assumptions)
    assert "the global batch stays 4,096" in said


def test_a_power_limit_saves_electricity_and_costs_time():
    machine = "[[machine]]\nname = 'box'\ngpu = 'RTX 3090'\ngpus = 4\nhost_watts = 100\n"
    full = planned(OWN + machine).options[0]
    held = planned(OWN + machine + "power_limit_watts = 280\n").options[0]
    assert held.run.training_s > full.run.training_s
    # 1,220 W instead of 1,500 W for a little longer
    ratio = held.cost.usd / full.cost.usd
    longer = held.run.busy_s / full.run.busy_s
    assert ratio == pytest.approx(1220 / 1500 * longer, rel=1e-6)


def test_unlike_gpus_wait_for_the_slowest():
    machine = "[[machine]]\nname = 'box'\ngpu = ['RTX 3090', 'RTX 2080 Ti']\n"
    (option,) = planned(OWN + machine).options
    assert option.step.placement.gpu.name == "RTX 2080 Ti"
    assert any("every step waits for the RTX 2080 Ti" in note for note in option.notes)


def test_what_several_gpus_lose_is_said():
    (option,) = planned(OWN + QUOTE.format(network=400)).options
    assert any("of the step goes to communication" in note for note in option.notes)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[[machine]]\nname = 'box'\ngpu = []\n", "empty list"),
        ("[[machine]]\nname = 'b'\ngpu = ['L4', 'T4']\ngpus = 3\n", "do not agree"),
        ("[[machine]]\nname = 'b'\ngpu = 'RTX 3090'\npower_limit_watts = 20\n", "too low"),
        ("[usage]\nmachines = 0\n", "machines"),
    ],
)
def test_what_cannot_be_meant(text, what):
    with pytest.raises(InputError, match=what):
        planned(OWN + text)


def test_a_strategy_nobody_knows():
    with pytest.raises(InputError, match="is no strategy"):
        planned(OWN.replace("[length]", "strategy = 'dpp'\n[length]") + QUOTE.format(network=1))
