from __future__ import annotations

import pytest
from tests.probe.proc_tree import PAGE_BYTES, TICKS_PER_S, FakeKernel

from outlay.probe.processes import ProcessTree


@pytest.fixture
def kernel(tmp_path):
    kernel = FakeKernel(tmp_path)
    kernel.process(1, parent=0)
    kernel.process(100, parent=1, session=100, group=100)  # the command
    return kernel


def tree(kernel, pid=100):
    return ProcessTree(pid, proc=kernel.roots.proc)


def test_descendants_count_and_nobody_else(kernel):
    kernel.process(101, parent=100, session=100, group=100)
    kernel.process(102, parent=101, session=102, group=102)  # in a session of its own
    kernel.process(90, parent=102, session=102, group=102)  # numbers wrap around
    kernel.process(103, parent=1, session=50, group=50)
    assert tree(kernel).read().pids == {100, 101, 102, 90}


def test_those_left_behind_are_found_by_session_or_group(kernel):
    kernel.process(101, parent=1, session=100, group=101)
    kernel.process(102, parent=1, session=7, group=100)
    kernel.process(103, parent=101, session=101, group=103)
    assert tree(kernel).read().pids == {100, 101, 102, 103}


def test_once_in_it_always_in_it(kernel):
    watched = tree(kernel)
    kernel.process(101, parent=100, session=101, group=101)
    assert watched.read().pids == {100, 101}
    kernel.end(100)
    kernel.process(101, parent=1, session=101, group=101)
    kernel.process(102, parent=1, session=101, group=102)  # of a session of the tree's own
    assert watched.read().pids == {101, 102}


def test_without_a_session_of_its_own_outlays_neighbours_do_not_count(kernel):
    kernel.process(200, parent=50, session=50, group=50)
    kernel.process(201, parent=200, session=50, group=50)
    kernel.process(202, parent=50, session=50, group=50)
    assert tree(kernel, 200).read().pids == {200, 201}


def test_a_number_that_comes_back_is_another_process(kernel):
    watched = tree(kernel)
    kernel.process(101, parent=100, session=100, group=100, born=100)
    kernel.process(300, parent=1)
    watched.read()
    kernel.process(101, parent=1, session=101, group=101, born=900)
    kernel.end(300)
    assert watched.read().pids == {100}
    kernel.process(300, parent=100, session=100, group=100, born=950)
    assert watched.read().pids == {100, 300}


def test_cpu_time_between_readings(kernel):
    watched = tree(kernel)
    kernel.process(101, parent=100, session=100, group=100, cpu=40)
    watched.read()
    kernel.process(100, session=100, group=100, cpu=30)
    kernel.process(101, parent=100, session=100, group=100, cpu=90)
    kernel.process(102, parent=100, session=100, group=100, cpu=7)
    # 30 of the command, 90 - 40 of its child, all 7 of the new one
    assert watched.read().cpu_s == pytest.approx((30 + 50 + 7) / TICKS_PER_S)


def test_what_ended_counts_to_its_end_and_not_twice(kernel):
    watched = tree(kernel)
    kernel.process(101, parent=100, session=100, group=100, cpu=40)
    watched.read()
    kernel.end(101)
    kernel.process(100, session=100, group=100, dead=65)
    assert watched.read().cpu_s == pytest.approx((65 - 40) / TICKS_PER_S)


def test_what_ended_without_being_waited_for_takes_nothing_away(kernel):
    watched = tree(kernel)
    kernel.process(101, parent=1, session=100, group=100, cpu=4000)
    watched.read()
    kernel.end(101)
    kernel.process(100, session=100, group=100, cpu=5)
    assert watched.read().cpu_s == pytest.approx(5 / TICKS_PER_S)


def test_resident_memory_is_the_sum(kernel):
    kernel.process(100, session=100, group=100, pages=1000)
    kernel.process(101, parent=100, session=100, group=100, pages=500)
    assert tree(kernel).read().resident_bytes == 1500 * PAGE_BYTES


def test_shared_memory_counts_once_where_that_is_told(kernel):
    kernel.process(100, session=100, group=100, pages=1000)
    kernel.process(101, parent=100, session=100, group=100, pages=1000)
    kernel.shares(100, rss_kb=4000, pss_kb=2500)
    kernel.shares(101, rss_kb=4000, pss_kb=2500)
    watched = tree(kernel)
    # 3000 of 8000 kB go away when shared pages are divided up
    assert watched.read().resident_bytes == 2000 * PAGE_BYTES - 3000 * 1024
    kernel.end(101)
    assert watched.read().resident_bytes == 1000 * PAGE_BYTES  # nobody left to share with


def test_an_ended_command_leaves_nothing(kernel):
    watched = tree(kernel)
    watched.read()
    kernel.end(100)
    reading = watched.read()
    assert (reading.pids, reading.resident_bytes) == (frozenset(), None)


def test_without_proc_nothing_is_known(tmp_path):
    assert ProcessTree(1, proc=tmp_path / "nothing").read() is None
