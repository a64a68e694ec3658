from __future__ import annotations

from outlay.trace.batch_scaling import FREED, history_of, relevant_events, storages_align
from outlay.trace.profile import History


def test_sizes_become_polynomials() -> None:
    low = [(0, 100), (1, 8 * 50), (1, FREED)]
    high = [(0, 100), (1, 32 * 50), (1, FREED)]
    assert storages_align(low, high)
    expected = History(sizes=((100.0,), (0.0, 50.0)), events=(0, 1, -1))
    assert history_of([8, 32], [low, high]) == expected


def test_storages_of_one_size_share_it() -> None:
    storages = [(0, 512), (1, 512), (0, FREED), (2, 512), (1, FREED)]
    # 0 is the second last made when it ends; 1 the second last of three
    assert history_of([4], [storages]).events == (0, 0, -2, 0, -2)


def test_what_may_be_left_out_has_a_size_of_its_own() -> None:
    storages = [(0, 512), (1, 512), (1, FREED)]
    history = history_of([4], [storages], optional={1})
    assert history.sizes == ((512.0,), (512.0,))
    assert history.events == (0, 1, -1)
    assert history.optional == {1}


def test_a_curve_is_trusted_only_if_checked() -> None:
    traces = [[(0, n * n)] for n in (2, 4, 8, 32)]
    assert history_of([2, 4, 8, 32], traces).sizes == ((0.0, 0.0, 1.0),)
    # of three, the line through the largest two: 16 at 4, 64 at 8
    assert history_of([2, 4, 8], traces[:3]).sizes == ((-32.0, 12.0),)


def test_other_storages_do_not_align() -> None:
    storages = [(0, 100), (1, 400), (1, FREED)]
    assert not storages_align(storages, storages[:-1])
    assert not storages_align(storages, [(0, 100), (0, FREED), (1, 1600)])


def test_three_steps_are_kept_whole() -> None:
    storages = [(0, 9), (1, 5), (1, FREED), (2, 5), (2, FREED), (3, 5), (3, FREED)]
    assert relevant_events(storages, [1, 3, 5]) == list(range(7))


def test_of_a_long_period_the_highest_step_and_the_one_before_are_kept() -> None:
    storages = [
        (0, 9),  # building
        (1, 5), (2, 1), (1, FREED),  # the first step: 2 lives on
        (3, 5), (2, FREED), (4, 1), (3, FREED),  # dropped, but 2 ends and 4 is made
        (5, 5), (5, FREED),  # dropped
        (6, 5), (6, FREED),  # before the highest
        (7, 8), (7, FREED),  # the highest
        (8, 5), (8, FREED),  # after it
    ]  # fmt: skip
    places = relevant_events(storages, [1, 4, 8, 10, 12, 14])
    assert places == [0, 1, 2, 3, 5, 6, 10, 11, 12, 13]
