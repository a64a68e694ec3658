"""What a session is like on an offer: what its provider states, and assumptions for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from outlay.facts import assumed, assumed_range
from outlay.offers.offer import Offer
from outlay.offers.terms import Terms
from outlay.predict.work import Habits


def habits_of(terms: Callable[[str], Terms]) -> Callable[[Offer], Habits]:
    """What sessions are like on an offer."""

    @cache
    def of_provider(provider: str) -> Habits:
        return habits_at(terms(provider))

    def of_offer(offer: Offer) -> Habits:
        return _habits_at_home() if offer.owned is not None else of_provider(offer.provider)

    return of_offer


def habits_assumed() -> Habits:
    """The session habits of the assumptions table."""
    return Habits(
        provisioning_s=assumed_range("provisioning_time_s"),
        environment_s=assumed_range("environment_setup_time_s"),
        warmup_s=assumed_range("warmup_time_s"),
        download_bytes_per_s=assumed_range("data_download_bytes_per_s"),
        upload_bytes_per_s=assumed_range("home_upload_bytes_per_s"),
        checkpoint_bytes_per_s=assumed_range("checkpoint_write_bytes_per_s"),
        checkpoint_interval_s=assumed("checkpoint_interval_s"),
        requeue_s=assumed_range("spot_requeue_s"),
        notice_s=assumed("spot_notice_s"),
    )


def habits_at(terms: Terms) -> Habits:
    """The session habits at a provider: what it states, and assumptions for the rest."""
    habits = habits_assumed()
    return replace(
        habits,
        provisioning_s=terms.provisioning_s or habits.provisioning_s,
        notice_s=habits.notice_s if terms.spot_notice_s is None else terms.spot_notice_s,
        longest_session_s=terms.longest_session_s,
        weekly_s=terms.weekly_s,
    )


@cache
def _habits_at_home() -> Habits:
    """One's own machine is there, with its environment."""
    return replace(habits_assumed(), provisioning_s=0.0, environment_s=0.0)
