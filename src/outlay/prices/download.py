"""One request to a price source: conditional, bounded in time and size, tried again if it helps.

    HttpDownloader().get("https://host/list.csv", known)  ->  Reply, or None where it is unchanged

What is bounded: the time to connect, the time between two bytes, the time of everything together
(a server that drips a byte a second is cut off), the bytes of an answer as it comes and after it is
unpacked, redirects, attempts. Addresses in messages hold no password and no key. An address may be
a file on disk (`file://` or a path): a folder is a mirror like any other.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import ssl
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from http.client import IncompleteRead
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import url2pathname

import requests
from requests.adapters import HTTPAdapter
from requests.auth import HTTPBasicAuth
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import (
    HTTPError,
    NameResolutionError,
    ReadTimeoutError,
)

from outlay.errors import ProviderError
from outlay.prices.sources import BadReply, Reply, Validators
from outlay.units import MIB

LARGEST_BYTES = 64 * MIB
"""What an answer may have at most; the largest list there is, SkyPilot's of AWS, has 4 MB."""
_CHUNK_BYTES = 64 * 1024
_MOVED = (301, 302, 303, 307, 308)
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Statuses that may pass by themselves (RFC 9110, 15; RFC 8470 for 425)."""
SECRET = re.compile(r"key|token|secret|pass|pwd|auth|sig|cred|session", re.IGNORECASE)


class Downloader(Protocol):
    """What asks the network. Tests give one that answers from files."""

    def get(
        self,
        address: str,
        known: Validators | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        largest_bytes: int = 64 * 2**20,
    ) -> Reply | None:
        """What lies at an address; None where it has not changed since `known` (304).

        Raises `ProviderError` in plain words: what, with the address; why; what to do next.
        """
        ...

    def post(self, address: str, body: object, *, largest_bytes: int = 64 * 2**20) -> Reply:
        """The answer to a question in JSON."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a source is waited for, and how often it is asked."""

    connect_s: float = 10.0
    read_s: float = 20.0
    """From one byte to the next."""
    total_s: float = 120.0
    """Everything: attempts, waiting between them, redirects, the last byte."""
    attempts: int = 3
    wait_s: float = 1.0
    """Before the second attempt; doubled for each one after, and up to half as much again."""
    longest_wait_s: float = 20.0
    """That a source may ask for (Retry-After); beyond it the user is told when to come back."""
    redirects: int = 5


def _user_agent() -> str:
    """`outlay/0.1.0`; the package itself, which is above this one, is not imported for it."""
    return f"outlay/{sys.modules['outlay'].__version__}"


def is_offline() -> bool:
    """Whether OUTLAY_OFFLINE says that nobody is to be asked."""
    return os.environ.get("OUTLAY_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")


def refuse_offline(what: str) -> NoReturn:
    """Raise because nobody is to be asked."""
    raise ProviderError(
        f"{what} was not asked: outlay is offline.",
        why="OUTLAY_OFFLINE or --offline says that nobody is to be asked.",
        fix="Leave both out to ask again; the last good prices are used until then.",
    )


def redacted(address: str) -> str:
    """An address without its user, its password and the values of keys in its query."""
    try:
        parts = urlsplit(address)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "an address that is none"
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    query = "&".join(
        f"{name}{equals}{'...' if value and SECRET.search(name) else value}"
        for name, equals, value in pairs
    )
    return _printable(urlunsplit((parts.scheme, host, parts.path, query, "")))


def _printable(text: str, length: int = 300) -> str:
    """What a server wrote, safe on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[:length])


@dataclass(slots=True, kw_only=True)
class _Question:
    """One question with the time and the attempts that are left for it."""

    method: str
    address: str
    headers: dict[str, str]
    secret_headers: Mapping[str, str]
    """What the caller sends: to the first host alone."""
    body: object
    largest_bytes: int
    ends_at: float
    """On the monotonic clock."""

    @property
    def left_s(self) -> float:
        return self.ends_at - time.monotonic()

    def error(self, why: str, fix: str = "") -> ProviderError:
        """Nobody answered, or with a refusal."""
        return _no_prices(redacted(self.address), why, fix or "Try again later.")

    def bad_reply(self, why: str, fix: str = "") -> BadReply:
        """Something came that is no whole list."""
        return _bad_reply(redacted(self.address), why, fix or "Try again later.")


def _no_prices(address: str, why: str, fix: str) -> ProviderError:
    return ProviderError(f"{address} gave no prices.", why=why, fix=fix)


def _bad_reply(address: str, why: str, fix: str) -> BadReply:
    return BadReply(f"{address} gave no prices.", why=why, fix=fix)


class _Passing(Exception):
    """Something that may be gone at the next attempt."""

    def __init__(
        self, error: ProviderError, wait_s: float | None = None, *, unreached: str = ""
    ) -> None:
        self.error = error
        self.wait_s = wait_s
        """What the server asks to wait; None where it does not say."""
        self.unreached = unreached
        """The host that could not even be connected to."""


class HttpDownloader:
    """The downloader that asks the network; safe in several threads at once.

    A host that could not be connected to in any attempt is not asked again: it has a dozen lists,
    and without a network all of them would be waited for.
    """

    def __init__(
        self,
        *,
        offline: bool = False,
        patience: Patience | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.offline = offline
        self.patience = patience or Patience()
        self._sleep = sleep
        self._unreached: dict[str, ProviderError] = {}

    def get(
        self,
        address: str,
        known: Validators | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        largest_bytes: int = LARGEST_BYTES,
    ) -> Reply | None:
        """What lies at an address; None where it has not changed since `known`."""
        path = local_path(address)
        if path is not None:
            return _from_disk(path, largest_bytes)
        asked = {"Accept-Encoding": "gzip"}
        # By the entity tag alone: a mirror's day of a file is that of its copy, so that a newer
        # list in the place of an older one may have the same or an earlier one.
        if known is not None and known.etag and known.address == redacted(address):
            asked["If-None-Match"] = known.etag
        return self._ask("GET", address, asked, headers or {}, None, largest_bytes)

    def answers(self, address: str) -> None:
        """Ask an address and read nothing of the reply; a `ProviderError` where it fails."""
        path = local_path(address)
        if path is not None:
            _from_disk(path, LARGEST_BYTES)
            return
        if self.offline or is_offline():
            refuse_offline(redacted(address))
        question = _Question(
            method="GET",
            address=address,
            headers={"User-Agent": _user_agent()},
            secret_headers={},
            body=None,
            largest_bytes=0,
            ends_at=time.monotonic() + self.patience.total_s,
        )
        try:
            with _answer(question, address, self.patience) as answer:
                if answer.status_code >= HTTPStatus.BAD_REQUEST:
                    raise question.error(f"It answers {answer.status_code} {answer.reason}.")
        except _Passing as passing:
            raise passing.error from None

    def post(self, address: str, body: object, *, largest_bytes: int = LARGEST_BYTES) -> Reply:
        """The answer to a question in JSON."""
        asked = {"Accept-Encoding": "gzip", "Accept": "application/json"}
        reply = self._ask("POST", address, asked, {}, body, largest_bytes)
        assert reply is not None  # nothing conditional was asked
        return reply

    def _ask(
        self,
        method: str,
        address: str,
        asked: dict[str, str],
        secret_headers: Mapping[str, str],
        body: object,
        largest_bytes: int,
    ) -> Reply | None:
        """Ask until there is an answer, or no attempt or no time is left."""
        if self.offline or is_offline():
            refuse_offline(redacted(address))
        question = _Question(
            method=method,
            address=address,
            headers={"User-Agent": _user_agent(), **asked},
            secret_headers=secret_headers,
            body=body,
            largest_bytes=largest_bytes,
            ends_at=time.monotonic() + self.patience.total_s,
        )
        known = self._unreached.get(_host_of(question, address))
        if known is not None:
            raise question.error(known.why, known.fix)
        for attempt in range(1, self.patience.attempts + 1):
            try:
                return _follow(question, self.patience)
            except _Passing as passing:
                wait_s = self._wait_s(passing, attempt)
                if attempt == self.patience.attempts or wait_s >= question.left_s:
                    if passing.unreached:
                        self._unreached[passing.unreached] = passing.error
                    raise passing.error from None
                self._sleep(wait_s)
        raise question.error("It was never asked.")  # attempts is 0

    def _wait_s(self, passing: _Passing, attempt: int) -> float:
        """How long to wait: as long as was asked for, else longer each time, with jitter."""
        if passing.wait_s is not None:
            return (
                passing.wait_s if passing.wait_s <= self.patience.longest_wait_s else float("inf")
            )
        usual_s = float(self.patience.wait_s * 2 ** (attempt - 1))
        return usual_s * random.uniform(1.0, 1.5)  # spreads users who were all cut off at once


# --- one attempt ---


def _follow(question: _Question, patience: Patience) -> Reply | None:
    """One attempt, redirects followed: a few, never from https to http."""
    address = question.address
    for _ in range(patience.redirects + 1):
        with _answer(question, address, patience) as answer:
            if answer.status_code not in _MOVED or "Location" not in answer.headers:
                return _read(question, answer)
            address = _moved_to(question, address, answer)
    raise question.error(
        f"It sends one on more than {patience.redirects} times, last to {redacted(address)}.",
        "Check the address, and whether your network puts a login page in between.",
    )


def _moved_to(question: _Question, address: str, answer: requests.Response) -> str:
    """Where an answer sends one, if one may go there."""
    try:
        target: str = urljoin(address, answer.headers["Location"])
        was, now = urlsplit(address).scheme.lower(), urlsplit(target).scheme.lower()
    except ValueError:
        raise question.error("It sends one on to an address that is none.") from None
    if question.method == "POST" and answer.status_code not in (307, 308):
        fix = "The source has moved: a newer version of outlay may know where."
        raise question.error(f"It sends questions on to {redacted(target)}.", fix)
    if now not in ("http", "https") or (was, now) == ("https", "http"):
        raise question.error(
            f"It sends one on to {redacted(target)}, which is not protected as it is itself.",
            "outlay does not go there. Check the address, and your network.",
        )
    return target


@contextlib.contextmanager
def _answer(question: _Question, address: str, patience: Patience) -> Iterator[requests.Response]:
    """The answer to one request, its body still to be read; cut off when the time is up."""
    host = _host_of(question, address)
    is_first_host = host == _host_of(question, question.address)
    connect_s = max(min(patience.connect_s, question.left_s), 0.01)
    with requests.Session() as session, _Watch(question.left_s) as watch:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _WatchedAdapter(watch))
        try:
            with session.request(
                question.method,
                _without_user(address),
                headers={**question.headers, **(question.secret_headers if is_first_host else {})},
                json=question.body,
                auth=_user_of(address),
                timeout=(connect_s, patience.read_s),
                allow_redirects=False,
                stream=True,
            ) as answer:
                yield answer
        except _FAILURES as error:
            raise _failure(question, host, error, patience) from None
        finally:
            if watch.is_over:  # what was cut off may look like an end
                raise _late(question, patience) from None


_FAILURES = (requests.RequestException, HTTPError, OSError, ValueError, zlib.error)


def _host_of(question: _Question, address: str) -> str:
    """Scheme, host and port: who one speaks to."""
    try:
        parts = urlsplit(address)
        if parts.hostname is None or parts.scheme.lower() not in ("http", "https"):
            raise ValueError
        port = parts.port or {"http": 80, "https": 443}[parts.scheme.lower()]
    except ValueError:
        raise question.error("It is no address.", _ADDRESSES) from None
    return f"{parts.scheme.lower()}://{parts.hostname}:{port}"


def _without_user(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _user_of(address: str) -> Callable[[Any], Any]:
    """The user in an address; where there is none, nobody: a .netrc is not looked into."""
    parts = urlsplit(address)
    if parts.username is None:
        return lambda request: request
    user: Callable[[Any], Any] = HTTPBasicAuth(
        unquote(parts.username), unquote(parts.password or "")
    )
    return user


class _Watch:
    """Cuts connections off when the time is up: also one that goes on sending a byte a second."""

    def __init__(self, seconds: float) -> None:
        self.sockets: list[socket.socket] = []
        self.is_over = False
        self._timer = threading.Timer(max(seconds, 0.0), self._cut)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()

    def _cut(self) -> None:
        self.is_over = True
        for connected in self.sockets:
            with contextlib.suppress(OSError):
                # The socket itself: what TLS would still say is of no use to anybody.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)


class _WatchedAdapter(HTTPAdapter):  # type: ignore[misc]
    """Connections that a watch knows of, through a proxy or not."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools()

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*args, **options)
        manager.pool_classes_by_scheme = self._pools()
        return manager

    def _pools(self) -> dict[str, type]:
        watch = self._watch

        def watched(pool: Any) -> type:
            class Connection(pool.ConnectionCls):  # type: ignore[misc]
                def connect(self) -> None:
                    super().connect()
                    watch.sockets.append(self.sock)
                    if watch.is_over:
                        raise TimeoutError

            return type("WatchedPool", (pool,), {"ConnectionCls": Connection})

        return {"http": watched(HTTPConnectionPool), "https": watched(HTTPSConnectionPool)}


# --- what an answer says ---


def _read(question: _Question, answer: requests.Response) -> Reply | None:
    """An answer as it is kept; None where nothing has changed."""
    if answer.status_code == 304 and _is_conditional(question):
        return None
    if answer.status_code != 200:
        raise _refused(question, answer)
    _check_type(question, answer)
    data = b"".join(_body(question, answer))
    _check_content(question.bad_reply, data)
    address = redacted(question.address)
    return Reply(
        data=data,
        validators=Validators(etag=answer.headers.get("ETag", ""), address=address),
        modified=_day(answer.headers.get("Last-Modified", "")),
        address=address,
    )


def _is_conditional(question: _Question) -> bool:
    return "If-None-Match" in question.headers


def _day(http_date: str) -> str:
    """The day of a date of HTTP, empty where it is none."""
    when = _moment(http_date)
    return "" if when is None else when.astimezone(UTC).date().isoformat()


def _moment(http_date: str) -> datetime | None:
    try:
        when = parsedate_to_datetime(http_date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _check_type(question: _Question, answer: requests.Response) -> None:
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise question.bad_reply(*_PAGE)
    if kind.partition("/")[0] in ("image", "audio", "video", "font"):
        raise question.bad_reply(f"It is of the type {_printable(kind)}, which no price list is.")


_PAGE = (
    "A web page came in place of the data.",
    "Often that is a login page of the network or a proxy: open the address in a browser.",
)


def _check_content(error: Callable[[str, str], ProviderError], data: bytes) -> None:
    if not data.strip():
        raise error("The answer is empty.", "Try again later.")
    beginning = data[:200].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if beginning.startswith((b"<!doctype html", b"<html")):
        raise error(*_PAGE)


def _body(question: _Question, answer: requests.Response) -> Iterator[bytes]:
    """The body, unpacked, piece by piece; no more of it than may be, and no less than was said."""
    stated = answer.headers.get("Content-Length", "")
    stated_bytes = int(stated) if stated.isdecimal() else None
    if stated_bytes is not None and stated_bytes > question.largest_bytes:
        raise _too_large(question, f"It says that it has {stated_bytes:,} bytes, and goes")
    unpacker = _unpacker(question, answer)
    came = kept = 0
    while piece := answer.raw.read(_CHUNK_BYTES, decode_content=False):
        came += len(piece)
        for data in unpacker.pieces(piece):
            kept += len(data)
            if max(came, kept) > question.largest_bytes:
                raise _too_large(question, "It goes")
            yield data
    if not unpacker.is_whole or (stated_bytes is not None and came < stated_bytes):
        raise _Passing(question.bad_reply(_ENDED_EARLY))


def _too_large(question: _Question, said: str) -> ProviderError:
    most = question.largest_bytes
    size = f"{most / MIB:,.0f} MiB" if most >= MIB else f"{most:,} bytes"
    return question.bad_reply(
        f"{said} on beyond the {size} that are read of it: no list is that long."
    )


class _Unpacker:
    """A body as it was packed: gzip or not at all, and never more than a piece at a time."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._stream = zlib.decompressobj(_GZIP) if is_gzip else None

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing at the end."""
        return self._stream is None or self._stream.eof

    def pieces(self, packed: bytes) -> Iterator[bytes]:
        """What comes out of the next piece, in pieces of its own."""
        if self._stream is None:
            yield packed
            return
        data = b""
        while packed or len(data) == _CHUNK_BYTES:
            if self._stream.eof:  # another member may follow (RFC 1952, 2.2)
                self._stream = zlib.decompressobj(_GZIP)
            data = self._stream.decompress(packed, _CHUNK_BYTES)
            packed = self._stream.unconsumed_tail or self._stream.unused_data
            if data:
                yield data


_GZIP = 16 + zlib.MAX_WBITS


def _unpacker(question: _Question, answer: requests.Response) -> _Unpacker:
    packing = answer.headers.get("Content-Encoding", "").strip().lower()
    if packing in ("gzip", "x-gzip"):
        return _Unpacker(is_gzip=True)
    if packing in ("", "identity"):
        return _Unpacker(is_gzip=False)
    raise question.bad_reply(f"It is packed as {_printable(packing)}, which was not asked for.")


# --- what went wrong ---


def _refused(question: _Question, answer: requests.Response) -> Exception:
    """The error for a status that is no answer; one that may pass where it may."""
    code = answer.status_code
    if code in _AGAIN:
        wait_s, when = _retry_after(answer)
        trouble = "It was asked too often" if code == 429 else "It has trouble of its own"
        why = f"{trouble} ({code}){when and f', and asks to be left alone {when}'}."
        return _Passing(question.error(why, when and "Try again after that."), wait_s)
    if code == 407:
        return question.error(*_PROXY_PASSWORD)
    if code in (401, 403):
        fix = "Check that it may be read from here, and the key where it needs one."
        return question.error(f"It refuses to answer ({code}).", fix)
    if code in (404, 410):
        fix = (
            "Check the address that is set; the source may have moved, which a newer outlay knows."
        )
        return question.error(f"There is nothing at this address ({code}).", fix)
    return question.error(f"It answered with status {code}, which is no answer.")


_PROXY_PASSWORD = (
    "The proxy in between asks for a password (407).",
    "Put it into HTTPS_PROXY or HTTP_PROXY: http://user:password@host:port.",
)


def _retry_after(answer: requests.Response) -> tuple[float | None, str]:
    """How long a server asks to be left alone, and that in words (RFC 9110, 10.2.3)."""
    text = answer.headers.get("Retry-After", "").strip()
    if text.isdecimal() and len(text) < 10:
        return float(text), f"for {int(text):,} s"
    until = _moment(text) if text else None
    if until is None:
        return None, ""
    now = _moment(answer.headers.get("Date", "")) or datetime.now(UTC)
    said = until.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    wait_s = max((until - now).total_seconds(), 0.0)
    return wait_s, f"until {said} UTC"


def _failure(question: _Question, host: str, error: Exception, patience: Patience) -> Exception:
    """The error for a connection that failed, in plain words; one that may pass where it may."""
    causes = list(_causes(error))
    name = str(urlsplit(host).hostname)
    lasting = _bad_question(question, error) or _no_protection(question, name, causes)
    if lasting is not None:
        return lasting
    if _of(causes, requests.exceptions.ProxyError):
        if any("407" in str(cause) for cause in causes):
            return question.error(*_PROXY_PASSWORD)
        fix = "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY."
        error = question.error("The proxy in between could not be used.", fix)
        return _Passing(error, unreached=host)
    if _of(causes, zlib.error):
        return _Passing(question.bad_reply("What came cannot be unpacked."))
    if _of(causes, IncompleteRead):
        return _Passing(question.bad_reply(_ENDED_EARLY))
    is_reached = not any(_of(causes, kind) for kind in _UNREACHED)
    error = _no_connection(question, host, causes, patience)
    return _Passing(error, unreached="" if is_reached else host)


_UNREACHED = (NameResolutionError, requests.exceptions.ConnectTimeout, ConnectionRefusedError)


def _bad_question(question: _Question, error: Exception) -> ProviderError | None:
    """The error for what cannot be asked at all."""
    if isinstance(error, requests.exceptions.InvalidHeader):
        return question.error("A key for it has characters that cannot be sent.", "Set it anew.")
    if isinstance(error, ValueError):
        return question.error("It is no address, or sends one to what is none.", _ADDRESSES)
    return None


def _no_protection(
    question: _Question, name: str, causes: Iterable[BaseException]
) -> ProviderError | None:
    """The error where TLS did not come about."""
    if certificate := _of(causes, ssl.SSLCertVerificationError):
        return question.error(
            f"The certificate of {name} is not to be trusted: {certificate.verify_message}.",
            "Check the clock of this machine. Where a proxy opens connections, name its certificate"
            " in REQUESTS_CA_BUNDLE.",
        )
    if _of(causes, ssl.SSLError) or _of(causes, requests.exceptions.SSLError):
        fix = "Check whether the address begins with http:// or https://, and your network."
        return question.error(f"No protected connection (TLS) to {name} came about.", fix)
    return None


def _no_connection(
    question: _Question, host: str, causes: Iterable[BaseException], patience: Patience
) -> ProviderError:
    """The error where nobody answered, or no longer."""
    name = urlsplit(host).hostname
    if _of(causes, NameResolutionError):
        return question.error(f"The name {name} is not known.", f"Check the address. {_NETWORK}")
    if _of(causes, requests.exceptions.ConnectTimeout):
        why = f"{name} did not answer within {patience.connect_s:g} s."
        return question.error(why, _NETWORK)
    if _of(causes, requests.exceptions.Timeout) or _of(causes, ReadTimeoutError):
        return question.error(f"Nothing came from {name} for {patience.read_s:g} s.")
    if _of(causes, ConnectionRefusedError):
        return question.error(f"Nobody answers at {host}.", _NETWORK)
    return question.error(f"The connection to {name} broke.", _NETWORK)


_ENDED_EARLY = "The answer ended before all of it had come."
_NETWORK = "Try again later, and check whether this machine is connected."
_ADDRESSES = "Addresses begin with http://, https:// or file://, or are a path."
E = TypeVar("E", bound=BaseException)


def _late(question: _Question, patience: Patience) -> ProviderError:
    return question.error(
        f"It had not answered in full after {patience.total_s:g} s, and was cut off.",
        "Try again later, or set a mirror that is nearer.",
    )


def _of(causes: Iterable[BaseException], kind: type[E]) -> E | None:
    """The first cause of a kind."""
    return next((cause for cause in causes if isinstance(cause, kind)), None)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what lies behind it, as requests and urllib3 nest them."""
    waiting: list[object] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < 50:
        cause = waiting.pop(0)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [*cause.args, getattr(cause, "reason", None), cause.__cause__, cause.__context__]


# --- a mirror on disk ---


def local_path(address: str) -> Path | None:
    """The file that an address means, None where it is somebody else's."""
    if "://" not in address:
        return Path(address)
    if not address.lower().startswith("file://"):
        return None
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        fix = "Write file:///folder, with three slashes, or the path alone."
        raise _no_prices(address, "It names a file of another machine.", fix)
    return Path(url2pathname(parts.path))


def _from_disk(path: Path, largest_bytes: int) -> Reply:
    """A file as a reply."""

    def error(why: str, fix: str = "Check the mirror that is set.") -> ProviderError:
        return _no_prices(str(path), why, fix)

    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise error("It is no file.")
        with path.open("rb") as file:
            data = file.read(largest_bytes + 1)
    except FileNotFoundError:
        raise error("There is no such file.") from None
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else None
        raise error(f"It cannot be read: {reason or 'no such name'}.") from None
    if len(data) > largest_bytes:
        raise error(f"It has more than {largest_bytes:,} bytes: no list is that long.")
    _check_content(partial(_bad_reply, str(path)), data)
    changed = datetime.fromtimestamp(about.st_mtime, UTC)
    return Reply(data=data, modified=changed.date().isoformat(), address=str(path))
