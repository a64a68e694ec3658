"""Hours and sessions a month, from what people say of their use."""

from __future__ import annotations

import pytest

from outlay.advise.request import monthly_use
from outlay.errors import InputError


@pytest.mark.parametrize(
    ("said", "hours", "sessions"),
    [
        ("24/7", 720, 1),  # a month has 30 days of 24 h
        ("2h/day", 60, 30),
        ("4 hours a day", 120, 30),
        ("4h/day 5 days/week", 4 * 30 * 5 / 7, 30 * 5 / 7),  # 85.7 h in 21.4 sessions
        ("20h/week", 20 * 30 / 7, 5 * 30 / 7),  # 85.7 h, one session a working day
        ("60h/month", 60, 5 * 30 / 7),
        ("15%", 108, 5 * 30 / 7),  # 0.15 x 720
        ("4 sessions/month of 6h", 24, 4),
        ("2 sessions a week of 3 h each", 2 * 30 / 7 * 3, 2 * 30 / 7),
        ("100 %", 720, 1),
    ],
)
def test_use(said, hours, sessions):
    use = monthly_use(said)
    assert use.hours_per_month == pytest.approx(hours)
    assert use.sessions_per_month == pytest.approx(sessions)


def test_share_of_a_month():
    use = monthly_use("2h/day")
    assert use.busy_fraction == pytest.approx(2 / 24)
    assert use.hours_per_day == pytest.approx(2)
    assert not use.is_always
    assert monthly_use("23h/day").is_always


def test_without_a_word_it_is_the_upper_end_of_a_students_desktop_and_says_so():
    use = monthly_use(None)
    assert use.hours_per_month == pytest.approx(108)  # 0.15 x 720
    assert use.assumed


@pytest.mark.parametrize(
    "said", ["", "often", "25h/day", "200h/week", "0h/day", "2h", "120%", "20h/week 5 days/week"]
)
def test_what_is_no_use_is_refused(said):
    with pytest.raises(InputError) as raised:
        monthly_use(said)
    assert repr(said) in raised.value.what
    assert raised.value.fix
