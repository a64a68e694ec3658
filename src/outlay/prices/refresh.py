"""Refreshing prices: every source asked about every provider it has, each on its own.

    ask -> read -> price_list -> refusal, doubts -> kept, or the last good prices stay

One provider that fails hurts no other; what happened to each is an `Attempt`. Sources are asked
and their answers read in threads, of which none writes; what they bring is kept by the one that
called, in a transaction for each source and provider. Exchange rates come first, because lists in
euros are converted at them; they and how often spot machines are taken away keep files of their
own.
"""

from __future__ import annotations

import contextlib
import math
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Generic, TypeVar

from outlay.errors import InputError, MissingCredentials, NotKnown, OutlayError, PriceStoreFailed
from outlay.offers.catalog import snapshot_date, snapshot_offers
from outlay.offers.offer import Offer
from outlay.offers.terms import all_terms
from outlay.prices.books import keep_book
from outlay.prices.checks import doubted_by_past, refusal, same_machines
from outlay.prices.download import Downloader
from outlay.prices.price_list import PriceList, price_list
from outlay.prices.price_store import UNREAD, Attempt, PriceStore, State, pairs_of
from outlay.prices.sources import (
    BadReply,
    ProviderPrices,
    ReadListings,
    Reply,
    Source,
    Unreadable,
    Validators,
)
from outlay.progress import Progress, silent
from outlay.units import days_between

AT_ONCE = 8
"""Questions that are asked at the same time."""
ANSWER_S = 120.0
"""How long one answer may take, whatever the source does."""
RATES = "rates"
_RATES_S = 10.0
"""How long the other questions wait for exchange rates."""
SNAPSHOT_SOURCE = "skypilot"
"""Whose catalogue the bundled snapshot was made of: the same names of instances and regions."""
_SAY_S = 5.0
"""After so long without an answer it is said who is waited for."""
_LOOK_S = 0.2
_SAME_AS_BUNDLED = 1e-3
"""Prices that differ by less are one: the snapshot's are rounded."""
_LONG_OLD_DAYS = 180
"""Days without a change after which a list is taken for one that nobody renews.

Assumes: a list that a program makes anew shows it within half a year. Of SkyPilot's 24 lists of
2026-08-22 thirteen were older than that, and nine were younger than two months.
"""
_MOST_CORRECTED = 0.1
"""Of the machine types of such a list: where more have changed, it was renewed."""
_PROVIDER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.IGNORECASE)
"""What may be asked for: a name goes into an address."""
_SECRET = re.compile(r"(?<=\?)\S+|(?<=://)[^/\s@]+@")
"""What nobody is shown of an address: its query, a user's name and password."""
_RATE = re.compile(r" at ([0-9.]+) USD of [0-9-]+$")
"""In the source of an offer that was converted: `... vms.csv: 2.6 EUR at 1.1699 USD of DAY`."""
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")
_NOTHING_THERE = re.compile(r"\b(404|410)\b|no such file", re.IGNORECASE)
_LONGEST_REASON = 400


def all_sources() -> tuple[Source, ...]:
    """Every source there is, in the order they are preferred where their prices are of one day."""
    from outlay.prices.gpuhunt_catalog import GpuhuntCatalogue
    from outlay.prices.skypilot import SkyPilotCatalogue
    from outlay.prices.vast import Vast

    return (Vast(), SkyPilotCatalogue(), GpuhuntCatalogue())


class RefreshInterrupted(KeyboardInterrupt):
    """A refresh that was broken off; what was done by then is kept."""

    def __init__(self, done: Sequence[Attempt], asked: int) -> None:
        self.done = tuple(done)
        self.asked = asked
        super().__init__(f"{len(self.done)} of {asked} were done")


def refresh_prices(
    *,
    sources: Iterable[str] = (),
    providers: Iterable[str] = (),
    now: str,
    store: PriceStore | None = None,
    downloader: Downloader | None = None,
    known_sources: Sequence[Source] = (),
    accept: bool = False,
    progress: Progress = silent,
) -> list[Attempt]:
    """Ask sources about providers (all of each, where none is named) and keep what is good.

    `now` is UTC, `2026-11-16T20:15:00Z`. `accept` takes what would be refused for having shrunk
    or moved too far. Raises `InputError` for a source or provider that nobody knows,
    `PriceStoreFailed` where nothing can be kept, and `RefreshInterrupted` on Ctrl-C; what a source
    does is no error here but an `Attempt`.
    """
    names, sellers, every = tuple(sources), tuple(providers), known_sources or all_sources()
    asked = _named_sources(every, names)
    if sellers and not asked:
        raise InputError(
            f"{' and '.join(names)} cannot be asked about single providers.",
            fix="Leave out --provider.",
        )
    besides = _named_besides(names, is_all=not (names or sellers or known_sources))
    with store or PriceStore() as kept:
        aside = kept.put_damaged_aside()
        if aside is not None:
            progress(f"The prices that were kept are damaged: put aside as {aside}")
        questions, silent = _questions(asked, sellers, kept, now)
        by_name = {(one.source.name, one.provider): one for one in questions}
        refresh = _Refresh(
            store=kept,
            downloader=downloader or _network(),
            now=now,
            accept=accept,
            progress=progress,
            asked=len(questions),
        )
        guesses = [one for one in questions if one.is_guess]
        done = _without_absent(guesses, refresh.attempts(guesses))
        others = [_Besides(name, ask, refresh.downloader, now) for name, ask in besides]
        _wait_for_rates(others, progress)
        find = partial(_new_to_outlay, () if sellers else asked, refresh.downloader, set(by_name))
        found = _Meanwhile(find)
        done += refresh.attempts([one for one in questions if not one.is_guess])
        new = found.result(ANSWER_S, otherwise=[])
        by_name |= {(one.source.name, one.provider): one for one in new}
        done += [one for one in refresh.attempts(new) if one.reason != _ABSENT]
        besides_done = [_noted(kept, other.attempt(ANSWER_S), progress) for other in others]
        if any(attempt.state in ("fresh", "unchanged") for attempt in done):
            with contextlib.suppress(PriceStoreFailed):  # else commands put it together themselves
                keep_book(kept)
    order = list(by_name)
    done.sort(key=lambda one: order.index((one.source, one.provider)))
    return [*silent, *done, *besides_done]


T = TypeVar("T")


class _Meanwhile(Generic[T]):
    """Something that is asked in a thread of its own, which nobody waits for in the end."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._started_s = time.monotonic()
        self._done: queue.SimpleQueue[T] = queue.SimpleQueue()
        threading.Thread(target=lambda: self._done.put(work()), daemon=True).start()

    def result(self, within_s: float, otherwise: T) -> T:
        """What came of it; `otherwise` where it takes longer, from when it was begun."""
        left_s = self._started_s + within_s - time.monotonic()
        try:
            result = self._done.get(timeout=max(left_s, 0.0))
        except queue.Empty:
            return otherwise
        self._done.put(result)  # for who asks again
        return result


Besides = Callable[[Downloader, str], Attempt]


def all_besides() -> Mapping[str, Besides]:
    """What is refreshed besides offers, by the name of its source."""
    from outlay.prices.own_lists import refresh_rates
    from outlay.prices.spot_advisor import refresh_interruptions

    return {"spot-advisor": refresh_interruptions, RATES: refresh_rates}


def _named_besides(names: Sequence[str], *, is_all: bool) -> list[tuple[str, Besides]]:
    if not names and not is_all:
        return []
    wanted = {name.lower() for name in names}
    return [(name, ask) for name, ask in all_besides().items() if is_all or name in wanted]


class _Besides:
    """Something besides offers that is asked for meanwhile."""

    def __init__(self, name: str, ask: Besides, downloader: Downloader, now: str) -> None:
        self.name = name
        self._late = _silent(name, _no_answer(ANSWER_S), now)

        def asked() -> Attempt:
            try:
                return ask(downloader, now)
            except Exception as error:  # whatever its source does
                return _silent(name, _reason(error), now)

        self._asked = _Meanwhile(asked)

    def attempt(self, within_s: float) -> Attempt:
        """What became of it."""
        return self._asked.result(within_s, otherwise=self._late)


def _wait_for_rates(others: Iterable[_Besides], progress: Progress) -> None:
    """Give exchange rates a head start: lists in euros are converted at the newest."""
    for other in others:
        if other.name == RATES:
            progress("Exchange rates first ...")
            other.attempt(_RATES_S)


def _noted(store: PriceStore, attempt: Attempt, progress: Progress) -> Attempt:
    store.note(attempt)
    progress(_in_words(attempt))
    return attempt


def _network() -> Downloader:
    from outlay.prices import download

    return download.HttpDownloader()


# --- whom to ask about whom ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """One provider that one source is asked about, and what is known beforehand."""

    source: Source
    provider: str
    known: Validators | None = None
    """None: what is kept was read by another version of outlay, or nothing is."""
    before: ProviderPrices | None = None
    bundled: tuple[Offer, ...] = ()
    """What the snapshot has of it, where that came from the same source."""
    bundled_elsewhere: tuple[Offer, ...] = ()
    """The same where it came from another source, which has names of its own."""
    is_after_snapshot: bool = True
    is_guess: bool = False
    """Whether nobody knows the provider, so that the source need not, either."""

    def offers_before(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The last good ones of some offers, else the bundled ones, where those are of days
        before."""
        if self.before is not None:
            return self.before.offers
        if not self.is_after_snapshot:
            return ()
        return self.bundled or same_machines(offers, self.bundled_elsewhere)


def _named_sources(known: Sequence[Source], names: Sequence[str]) -> list[Source]:
    by_name = {source.name.lower(): source for source in known}
    there = (*by_name, *all_besides()) if names else ()
    for name in names:
        if name.lower() not in there:
            raise NotKnown("price source", name, there, fix=_there_are(there))
    wanted = {name.lower() for name in names}
    return [source for name, source in by_name.items() if not wanted or name in wanted]


def _there_are(names: Sequence[str]) -> str:
    return f"There are {', '.join(names)}."


def _questions(
    sources: Sequence[Source], names: Sequence[str], store: PriceStore, now: str
) -> tuple[list[_Question], list[Attempt]]:
    """Every source with each of its providers that is wanted, and sources that cannot say whom
    they have."""
    kept = {(prices.source, prices.provider): prices for prices in store.current()}
    sold, silent = _sold(sources, kept, now)
    wanted, guesses = _named_providers(names, sold, sources)
    bundled = _bundled_by_provider()
    questions = []
    for source in sources:
        takes_any = getattr(source, "takes_any_provider", False)
        own = [name for name in sold[source.name] if not names or name in wanted]
        for provider in (*own, *(guesses if takes_any else ())):
            is_of_snapshot = source.name == SNAPSHOT_SOURCE
            sold_then = tuple(bundled.get(provider, ()))
            questions.append(
                _Question(
                    source=source,
                    provider=provider,
                    known=store.validators(source.name, provider),
                    before=kept.get((source.name, provider)),
                    bundled=sold_then if is_of_snapshot else (),
                    bundled_elsewhere=() if is_of_snapshot else sold_then,
                    is_after_snapshot=snapshot_date() <= now[:10],
                    is_guess=provider in guesses,
                )
            )
    return questions, silent


def _sold(
    sources: Sequence[Source], kept: Iterable[tuple[str, str]], now: str
) -> tuple[dict[str, list[str]], list[Attempt]]:
    """The providers of each source, those it was asked about before included."""
    sold: dict[str, list[str]] = {source.name: [] for source in sources}
    silent = []
    for source in sources:
        try:
            sold[source.name] += source.providers()
        except Exception as error:
            silent.append(_silent(source.name, _reason(error), now))
    for source_name, provider in kept:
        if source_name in sold and provider not in sold[source_name]:
            sold[source_name].append(provider)
    return sold, silent


def _silent(source: str, reason: str, now: str) -> Attempt:
    return Attempt(
        source=source,
        provider="all",
        at=now,
        state="kept",
        offers=0,
        as_of=None,
        reason=reason,
    )


def _named_providers(
    names: Sequence[str], sold: Mapping[str, Sequence[str]], sources: Sequence[Source]
) -> tuple[set[str], list[str]]:
    """The providers meant by names, and names that nobody knows but somebody may be asked about."""
    of_sources = {provider for providers in sold.values() for provider in providers}
    spellings = {terms.name.lower(): provider for provider, terms in all_terms().items()}
    spellings |= {provider.lower(): provider for provider in (*all_terms(), *of_sources)}
    wanted, guesses = set(), []
    for name in names:
        provider = spellings.get(name.lower(), "")
        if provider in of_sources:
            wanted.add(provider)
        elif provider:
            raise InputError(
                f"No prices of {provider} can be had from {' or '.join(sold)}.",
                fix=f"There are those of {', '.join(sorted(of_sources))}.",
            )
        elif _PROVIDER_NAME.fullmatch(name) and _take_any(sources):
            guesses.append(name.lower())
        else:
            raise NotKnown("provider", name, sorted(of_sources))
    return wanted, guesses


def _take_any(sources: Iterable[Source]) -> bool:
    return any(getattr(source, "takes_any_provider", False) for source in sources)


def _bundled_by_provider() -> dict[str, list[Offer]]:
    offers: dict[str, list[Offer]] = {}
    for offer in snapshot_offers():
        offers.setdefault(offer.provider, []).append(offer)
    return offers


def _new_to_outlay(
    sources: Iterable[Source], downloader: Downloader, known: Collection[tuple[str, str]]
) -> list[_Question]:
    """Providers that a source says it has and outlay does not know yet."""
    questions = []
    for source in sources:
        find = getattr(source, "new_providers", None)
        try:
            names = find(downloader) if find is not None else ()
        except Exception:  # what it has of known ones is asked all the same
            names = ()
        questions += [
            _Question(source=source, provider=name, is_guess=True)
            for name in names
            if (source.name, name) not in known and _PROVIDER_NAME.fullmatch(name)
        ]
    return questions


def _without_absent(guesses: Sequence[_Question], done: Sequence[Attempt]) -> list[Attempt]:
    """The attempts of names that somebody has something of; a name nobody has is refused."""
    there = [attempt for attempt in done if attempt.reason != _ABSENT]
    found = {attempt.provider for attempt in there if attempt.state != "kept"}
    for question in guesses:
        if question.provider not in found:
            said = [one.reason for one in there if one.provider == question.provider and one.reason]
            fix = f"It was asked for all the same: {said[0]}" if said else ""
            raise NotKnown("provider", question.provider, sorted(all_terms()), fix=fix)
    return there


# --- asking ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What became of a question."""

    question: _Question
    state: State
    prices: ProviderPrices | None = None
    """To be kept; None where the last good ones stay."""
    validators: Validators | None = None
    reason: str | None = None
    missing_key: str = ""


_ABSENT = "It has no such provider."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refresh:
    """One refresh: who is asked how, and where it is kept."""

    store: PriceStore
    downloader: Downloader
    now: str
    accept: bool
    progress: Progress
    asked: int

    def attempts(self, questions: Sequence[_Question]) -> list[Attempt]:
        """What became of each question, in the order they were answered; what is good is kept."""
        done: list[Attempt] = []
        try:
            for answer in self._answers(questions):
                attempt = self._kept(answer)
                done.append(attempt)
                self.progress(f"{_in_words(attempt)} ({len(done)} of {self.asked})")
                self.progress("Asking for prices ...", len(done), self.asked)
        except KeyboardInterrupt as interrupt:
            raise RefreshInterrupted(done, self.asked) from interrupt
        return done

    def _answers(self, questions: Sequence[_Question]) -> Iterator[_Answer]:
        """Answers as they come, some asked at once.

        Each has a thread of its own that nobody waits for in the end: one that hangs is left.
        """
        waiting, running = deque(questions), dict[int, tuple[_Question, float]]()
        finished: queue.SimpleQueue[tuple[int, _Answer]] = queue.SimpleQueue()
        said_s = time.monotonic()
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                question = waiting.popleft()
                running[id(question)] = (question, time.monotonic())
                self._start(question, finished)
            try:
                number, answer = finished.get(timeout=_LOOK_S)
            except queue.Empty:
                pass
            else:
                if running.pop(number, None) is not None:
                    said_s = time.monotonic()
                    yield answer
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                self.progress(f"Waiting for {_names(question for question, _ in running.values())}")
            yield from _overdue(running)

    def _start(self, question: _Question, finished: queue.SimpleQueue[tuple[int, _Answer]]) -> None:
        def work() -> None:
            finished.put((id(question), self._answer(question)))

        threading.Thread(target=work, name=f"ask {question.provider}", daemon=True).start()

    def _answer(self, question: _Question) -> _Answer:
        """What becomes of one question, whatever its source does."""
        try:
            known = None if self.accept else question.known  # what is taken is read anew
            reply = question.source.ask(question.provider, self.downloader, known)
            if reply is not None:
                return self._read(question, reply)
        except (Unreadable, BadReply) as error:
            return _Answer(question=question, state="refused", reason=_reason(error))
        except Exception as error:
            return _failed(question, error)
        if question.before is None:
            reason = "It says that nothing has changed, but nothing is kept of it."
            return _Answer(question=question, state="kept", reason=reason)
        return _Answer(question=question, state="unchanged")

    def _read(self, question: _Question, reply: Reply) -> _Answer:
        """A reply that was read, looked up and checked."""
        read = question.source.read(question.provider, reply.data)
        if question.is_guess and not read.rows:
            return _Answer(question=question, state="kept", reason=_ABSENT)
        cited = reply.address or question.source.name
        today, modified = self.now[:10], self._modified(question, reply)
        as_of = min(modified, today) if _is_day(modified) else today
        listed = price_list(read.listings, source=cited, as_of=as_of, today=today)
        good = () if self.accept else question.offers_before(listed.offers)
        why = _refused(question, read, listed, good)
        if why is not None:
            return _Answer(question=question, state="refused", reason=_plain(why))
        prices = self._prices(question, read, listed, as_of)
        before = question.before
        as_of = day_of_prices(prices, modified=modified, before=before, bundled=question.bundled)
        last = question.bundled if before is None else before.offers
        keeps_day = as_of < today and not modified
        days = _days_of_offers(prices.offers, last, today) if keeps_day else {}
        doubted = replace(prices, offers=doubted_by_past(prices.offers, good))
        dated = _dated(doubted, as_of, days)
        is_same = before is not None and pairs_of(prices) == pairs_of(before)
        is_all_the_same = before is not None and dated == replace(before, fetched_at=self.now)
        return _Answer(
            question=question,
            state="unchanged" if is_same else "fresh",
            prices=None if is_all_the_same and question.known is not None else dated,
            validators=reply.validators,
        )

    def _modified(self, question: _Question, reply: Reply) -> str:
        """The day that a reply's data are of, empty where that is not known."""
        if reply.is_live:
            return self.now[:10]
        if reply.is_same and question.before is not None:
            return question.before.as_of
        return reply.modified

    def _prices(
        self, question: _Question, read: ReadListings, listed: PriceList, as_of: str
    ) -> ProviderPrices:
        """The prices in a reply, as if they were of a day."""
        return ProviderPrices(
            source=question.source.name,
            provider=question.provider,
            as_of=as_of,
            fetched_at=self.now,
            offers=listed.offers,
            zones=listed.zones,
            unknown=listed.unknown,
            notes=tuple(dict.fromkeys((*listed.notes, *read.notes, *_unread(read)))),
        )

    def _kept(self, answer: _Answer) -> Attempt:
        """How it ended, which is kept together with the prices, if there are any."""
        attempt, question = self._attempt(answer), answer.question
        if answer.prices is not None:
            over = question.before.fetched_at if question.before else None
            validators = answer.validators or Validators()
            if self.store.replace(answer.prices, validators, attempt, over=over):
                return attempt
            reason = "Another refresh brought newer prices meanwhile."
            attempt = replace(attempt, state="unchanged", reason=reason)
            self.store.note(attempt)
        elif answer.state == "unchanged":
            self.store.confirm(attempt, answer.validators)
        elif not question.is_guess:
            self.store.note(attempt)
        return attempt

    def _attempt(self, answer: _Answer) -> Attempt:
        question = answer.question
        prices = answer.prices or question.before
        is_told = answer.prices is not None
        return Attempt(
            source=question.source.name,
            provider=question.provider,
            at=self.now,
            state=answer.state,
            offers=0 if prices is None else len(prices.offers),
            as_of=None if prices is None else prices.as_of,
            reason=answer.reason,
            missing_key=answer.missing_key,
            unknown_gpus=tuple(sorted({offer.gpu for offer in prices.unknown})) if prices else (),
            is_new_provider=prices is not None and question.provider not in all_terms(),
            notes=prices.notes if prices is not None and is_told else (),
        )


def _names(questions: Iterable[_Question]) -> str:
    return ", ".join(f"{one.source.name} {one.provider}" for one in questions)


def _in_words(attempt: Attempt) -> str:
    return f"{attempt.source} {attempt.provider}: {attempt.state}, {attempt.offers} offers"


def _overdue(running: dict[int, tuple[_Question, float]]) -> Iterator[_Answer]:
    """Questions that have had no answer for too long; they are no longer waited for."""
    now_s = time.monotonic()
    for number, (question, since_s) in list(running.items()):
        if now_s - since_s > ANSWER_S:
            del running[number]
            yield _Answer(question=question, state="kept", reason=_no_answer(ANSWER_S))


def _no_answer(seconds: float) -> str:
    return f"No answer within {seconds:.0f} s."


def _failed(question: _Question, error: Exception) -> _Answer:
    """A source that did not answer, for any reason at all."""
    reason, missing_key = _reason(error), ""
    if isinstance(error, MissingCredentials):
        named = dict.fromkeys(_VARIABLE.findall(str(error)))
        missing_key = ", ".join(named) or "a key"
    if question.is_guess and _NOTHING_THERE.search(reason):
        reason = _ABSENT
    return _Answer(question=question, state="kept", reason=reason, missing_key=missing_key)


def _reason(error: Exception) -> str:
    """An error in plain words, on one line."""
    if isinstance(error, Unreadable):
        return _plain(error.reason)
    if isinstance(error, OutlayError):
        fix = error.fix if isinstance(error, MissingCredentials) else ""
        return _plain(" ".join(part for part in (error.what, error.why, fix) if part))
    return _plain(f"Reading it failed inside outlay: {type(error).__name__}: {error}")


def _plain(text: str) -> str:
    """Text from elsewhere as it can be shown: one line, no secrets, no control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = _SECRET.sub("...", line)
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 4]} ..."


def _unread(read: ReadListings) -> Iterator[str]:
    """What is said of rows that could not be read."""
    if read.failed:
        first = "; ".join(_plain(text) for text in read.failed[:3])
        yield f"{len(read.failed)} of {read.rows} {UNREAD}: {first}"


def _refused(
    question: _Question, read: ReadListings, listed: PriceList, good: Sequence[Offer]
) -> str | None:
    """Why a reply is refused whole, beside the last good offers."""
    return refusal(
        read,
        listed,
        good,
        is_market=any(
            doubt.word == "single host" for offer in listed.offers[:1] for doubt in offer.doubts
        ),
        is_first=question.before is None,
    )


# --- of which day ---


def day_of_prices(
    prices: ProviderPrices,
    *,
    modified: str = "",
    before: ProviderPrices | None = None,
    bundled: Sequence[Offer] = (),
) -> str:
    """The day that prices which were fetched now are of, YYYY-MM-DD.

    1. What the source says its data are of (`modified`), but no day that is still to come: the
       day that gpuhunt's catalogue was made, the day a provider itself was asked.
    2. Else, where every price is what it was in the last good list (`before`), the day of that
       list; where nothing was kept yet and every price is as in the snapshot (`bundled`), the day
       of its offers. A list that nobody renews does not become new by being fetched again.
    3. Where that list was long old and nearly every machine costs what it did, its day as well:
       somebody has corrected a row or two (which are of today, `_days_of_offers`).
    4. Else the day it was asked.
    """
    today = prices.fetched_at[:10]
    if _is_day(modified):
        return min(modified, today)
    offers = _as_listed(prices.offers)
    if before is not None:
        day, last = before.as_of, _as_listed(before.offers)
        is_same = pairs_of(prices) == pairs_of(before) or _is_same_in_euros(prices.offers, last)
    elif bundled and offers:
        day, last = max(offer.as_of for offer in bundled), _as_listed(bundled)
        is_same = _is_as_bundled(offers, last)
    else:
        return today
    is_that_list = is_same or _is_corrected(offers, last, days_between(day, today))
    return min(day, today) if is_that_list else today


def _as_listed(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Offers at what their list says, in whatever currency: a rate that moves renews no price."""
    rates = ((offer, _RATE.search(offer.source)) for offer in offers)
    return tuple(
        offer if rate is None else _times(offer, 1 / float(rate[1])) for offer, rate in rates
    )


def _times(offer: Offer, factor: float) -> Offer:
    usd, spot_usd = offer.price_usd_per_hour, offer.spot_usd_per_hour
    return replace(
        offer,
        price_usd_per_hour=None if usd is None else usd * factor,
        spot_usd_per_hour=None if spot_usd is None else spot_usd * factor,
    )


def _is_same_in_euros(offers: Sequence[Offer], last: Sequence[Offer]) -> bool:
    """Whether a list that was converted says what it did. `last`: as listed."""
    listed = _as_listed(offers)
    is_converted = any(one is not other for one, other in zip(listed, offers, strict=True))
    return is_converted and _asked_by_instance(listed) == _asked_by_instance(last)


def _is_corrected(offers: Sequence[Offer], last: Sequence[Offer], age_days: int) -> bool:
    """Whether offers are those of a long old list, but for what somebody has corrected by hand."""
    now, then = _asked_by_instance(offers), _asked_by_instance(last)
    changed = [name for name in {*now, *then} if now.get(name) != then.get(name)]
    return age_days > _LONG_OLD_DAYS and len(changed) <= _MOST_CORRECTED * len(then)


def _asked_by_instance(offers: Iterable[Offer]) -> dict[str, set[str]]:
    """What is asked for each machine type, wherever; the snapshot's prices are rounded."""
    asked: dict[str, set[str]] = {}
    for offer in offers:
        usds = (offer.price_usd_per_hour, offer.spot_usd_per_hour)
        words = " ".join("-" if usd is None else f"{usd:.3g}" for usd in usds)
        asked.setdefault(offer.instance, set()).add(words)
    return asked


def _days_of_offers(
    offers: Iterable[Offer], last: Iterable[Offer], today: str
) -> dict[tuple[str, str, str], str]:
    """The day of each offer of a list that keeps its day: the last one's where its price is the
    same, else today."""
    known = {offer.identity: offer for offer in _as_listed(last)}
    days = {}
    for offer in _as_listed(offers):
        was = known.get(offer.identity) or known.get((offer.provider, offer.instance, "any"))
        is_same = (
            was is not None
            and _is_same(offer.price_usd_per_hour, was.price_usd_per_hour)
            and _is_same(offer.spot_usd_per_hour, was.spot_usd_per_hour)
        )
        days[offer.identity] = was.as_of if was is not None and is_same else today
    return days


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_as_bundled(offers: Iterable[Offer], bundled: Iterable[Offer]) -> bool:
    known = {(*offer.identity, offer.gpus): offer for offer in bundled}
    return all(
        (listed := known.get((*offer.identity, offer.gpus))) is not None
        and _is_same(offer.price_usd_per_hour, listed.price_usd_per_hour)
        and _is_same(offer.spot_usd_per_hour, listed.spot_usd_per_hour)
        for offer in offers
    )


def _is_same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_SAME_AS_BUNDLED)


def _dated(
    prices: ProviderPrices, as_of: str, days: Mapping[tuple[str, str, str], str]
) -> ProviderPrices:
    """Prices with their day, on the list and on each of its offers; `days`: of offers that have
    one of their own."""

    def dated(offers: Iterable[Offer]) -> tuple[Offer, ...]:
        return tuple(replace(one, as_of=days.get(one.identity, as_of)) for one in offers)

    return replace(prices, as_of=as_of, offers=dated(prices.offers), unknown=dated(prices.unknown))
