"""What a source may raise."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from outlay.prices.sources import Unreadable


@contextmanager
def block():
    yield


def test_a_refusal_passes_through_a_block_and_says_why():
    with pytest.raises(Unreadable) as caught, block():
        raise Unreadable(reason="it is empty")
    assert caught.value.reason == str(caught.value) == "it is empty"
