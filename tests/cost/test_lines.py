from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_cost

from outlay.cost.lines import Breakdown, Line


def breakdown(**usd):
    return Breakdown(lines=tuple(Line(name=name, usd=amount) for name, amount in usd.items()))


@given(st.lists(st.floats(-1e12, 1e12), max_size=8))
@settings(deadline=None)
def test_the_total_is_the_sum_of_the_lines_and_nothing_else(amounts):
    lines = tuple(Line(name=str(number), usd=usd) for number, usd in enumerate(amounts))
    assert Breakdown(lines=lines).usd == sum(amounts, 0.0)


def test_a_bill_of_nothing_is_zero():
    assert Breakdown(lines=()).usd == 0


def test_lines_may_be_one_amount_for_each_draw():
    both = breakdown(compute=np.array([1.0, 2.0]), tax=0.5)
    # 1 + 0.5, 2 + 0.5
    assert both.usd.tolist() == [1.5, 2.5]


def test_line_usd_adds_lines_of_the_names():
    lines = (("storage", 2.0), ("compute", 10.0), ("storage", 5.0))
    bill = Breakdown(lines=tuple(Line(name=name, usd=usd) for name, usd in lines))
    # 2 + 5 = 7
    assert bill.line_usd("storage") == 7
    assert bill.line_usd("storage", "compute") == 17
    assert bill.line_usd("transfer") == 0


def test_how_a_line_came_about_is_put_together_when_it_is_read():
    calls = []

    def how():
        calls.append("how")
        return "7 h x $1/h"

    line = Line(name="compute", usd=7.0, how=how)
    assert calls == []
    assert line.basis == "7 h x $1/h"
    assert Line(name="credit", usd=-1.0, how="of $5").basis == "of $5"


def test_a_cost_is_its_lines():
    assert a_cost(12.5).usd == pytest.approx(12.5)
    assert a_cost(12.5, unknown=("storage",)).unknown == ("storage",)
