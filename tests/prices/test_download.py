"""One request against a server that misbehaves: bounded, tried again where it helps, in words."""

from __future__ import annotations

import os
import socket
import time
import tracemalloc
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from tests.prices.server import (
    CERTIFICATE,
    PriceServer,
    ProxyServer,
    drips,
    drips_headers,
    empty,
    endless,
    garbage,
    gzip_bomb,
    hangs,
    html,
    http_date,
    loops,
    redirects,
    resets,
    slow,
    status,
    stops,
    too_many,
    truncated,
    typed,
    unfinished,
)

from outlay import __version__
from outlay.errors import ProviderError
from outlay.prices.download import HttpDownloader, Patience, local_path, redacted

CSV = b"InstanceType,Price\n" + b"".join(b"machine-%d,1.5\n" % n for n in range(200))
QUICK = Patience(connect_s=2.0, read_s=2.0, total_s=10.0, wait_s=0.01, longest_wait_s=0.4)
HASTY = replace(QUICK, read_s=0.2)
SHORT = replace(QUICK, total_s=0.5)


@pytest.fixture(scope="module")
def one_server():
    with PriceServer() as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.clear()
    one_server.put("list.csv", CSV, content_type="text/csv")
    return one_server


@pytest.fixture
def download():
    return HttpDownloader(patience=QUICK)


def refused(download, address, **how):
    """What is said, and how long it took."""
    before = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        download.get(address, **how)
    assert caught.value.fix, "every error says what to do next"
    assert caught.value.__cause__ is None
    return str(caught.value), time.monotonic() - before


# --- what a good server gives ---


def test_an_answer_comes_with_what_the_server_says_of_it(server, download):
    reply = download.get(server.url("list.csv"))
    assert reply.data == CSV
    assert reply.modified == "2026-11-16"
    assert reply.address == server.url("list.csv")
    assert server.requests[0].headers["User-Agent"] == f"outlay/{__version__}"


def test_unchanged_is_none_by_the_entity_tag(server, download):
    known = download.get(server.url("list.csv")).validators
    assert known.etag
    assert download.get(server.url("list.csv"), known) is None
    server.put("list.csv", CSV + b"new,2\n", modified=datetime(2026, 11, 17, tzinfo=UTC))
    assert download.get(server.url("list.csv"), known).data == CSV + b"new,2\n"


def test_another_place_with_the_same_tag_is_read(server, download):
    known = download.get(server.url("list.csv")).validators
    server.put("other.csv", CSV + b"new,2\n", headers={"ETag": known.etag}, has_etag=False)
    assert download.get(server.url("other.csv"), known).data == CSV + b"new,2\n"


def test_a_newer_list_with_an_older_day_is_read(server, download):
    server.put("list.csv", CSV, has_etag=False)
    known = download.get(server.url("list.csv")).validators
    server.put("list.csv", CSV * 2, modified=datetime(2026, 1, 1, tzinfo=UTC), has_etag=False)
    assert download.get(server.url("list.csv"), known).data == CSV * 2


def test_whether_an_address_answers(server, download):
    download.answers(server.url("list.csv"))
    with pytest.raises(ProviderError, match="404"):
        download.answers(server.url("nothing.csv"))


def test_packed_answers_are_unpacked(server, download):
    server.put("list.csv", CSV * 50, is_gzipped=True)
    assert download.get(server.url("list.csv")).data == CSV * 50
    assert server.requests[0].headers["Accept-Encoding"] == "gzip"


def test_a_question_is_asked_in_json(server, download):
    address = server.put("ask", lambda request: b'{"asked": ' + request.body + b"}")
    assert download.post(address, {"limit": 3}).data == b'{"asked": {"limit": 3}}'
    assert server.requests[0].headers["Content-Type"] == "application/json"


def test_what_a_server_does_not_say_is_unknown(server, download):
    server.put("list.csv", CSV, modified=None, has_etag=False)
    reply = download.get(server.url("list.csv"))
    assert (reply.modified, reply.validators.etag) == ("", "")


@pytest.mark.parametrize("date", ["yesterday", "Mon, 99 Nov 2026 01:07:30 GMT", "0", "-1"])
def test_a_date_that_is_none_is_unknown(server, download, date):
    server.put("list.csv", CSV, modified=None, headers={"Last-Modified": date})
    assert download.get(server.url("list.csv")).modified == ""


# --- what passes is tried again ---


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_trouble_that_passes_is_waited_for(server, download, code):
    server.misbehave("list.csv", status(code), times=2)
    assert download.get(server.url("list.csv")).data == CSV
    assert server.count("list.csv") == 3


@pytest.mark.parametrize(
    "behaviour", [resets(), truncated(), unfinished(), garbage(), stops(), hangs()]
)
def test_connections_that_break_are_tried_again(server, behaviour):
    server.misbehave("list.csv", behaviour, times=1)
    assert HttpDownloader(patience=HASTY).get(server.url("list.csv")).data == CSV
    assert server.count("list.csv") == 2


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        (status(500), "It has trouble of its own (500)."),
        (resets(), "The connection to 127.0.0.1 broke."),
        (garbage(), "The connection to 127.0.0.1 broke."),
        (truncated(), "The answer ended before all of it had come."),
        (unfinished(), "The answer ended before all of it had come."),
    ],
)
def test_what_does_not_pass_is_said_after_three_attempts(server, download, behaviour, said):
    server.misbehave("list.csv", behaviour)
    words, _ = refused(download, server.url("list.csv"))
    assert words.startswith(f"{server.url('list.csv')} gave no prices. {said}")
    assert server.count("list.csv") == 3


def test_a_host_that_is_not_there_is_asked_for_one_list_and_not_for_all():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    waits: list[float] = []
    download = HttpDownloader(patience=QUICK, sleep=waits.append)
    for name in ("a", "b", "c"):
        said, _ = refused(download, f"http://127.0.0.1:{port}/{name}.csv")
        assert f"/{name}.csv gave no prices. Nobody answers at http://127.0.0.1:{port}." in said
    assert len(waits) == 2  # the three attempts of the first list


@pytest.mark.parametrize(
    "behaviour", [status(500), resets(), truncated(), redirects("http://127.0.0.1:9/x")]
)
def test_one_list_that_fails_says_nothing_of_the_others(server, download, behaviour):
    server.put("good.csv", CSV)
    server.misbehave("list.csv", behaviour)
    refused(download, server.url("list.csv"))
    assert download.get(server.url("good.csv")).data == CSV


def test_each_wait_is_longer_than_the_one_before(server):
    waits = []
    download = HttpDownloader(
        patience=Patience(total_s=60, wait_s=1.0, attempts=4), sleep=waits.append
    )
    server.misbehave("list.csv", status(500))
    refused(download, server.url("list.csv"))
    # 1, 2 and 4 s, each up to half as much again
    assert [low <= wait <= 1.5 * low for low, wait in zip((1, 2, 4), waits, strict=True)] == [
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 418])
def test_what_does_not_pass_by_itself_is_not_tried_again(server, download, code):
    server.misbehave("list.csv", status(code))
    words, _ = refused(download, server.url("list.csv"))
    assert str(code) in words
    assert server.count("list.csv") == 1


# --- Retry-After ---


def test_retry_after_is_waited_for_where_it_is_short(server):
    waits = []
    download = HttpDownloader(patience=Patience(total_s=60, longest_wait_s=20), sleep=waits.append)
    server.misbehave("list.csv", too_many("7"), times=1)
    assert download.get(server.url("list.csv")).data == CSV
    assert waits == [7.0]


def test_retry_after_as_a_date(server):
    waits = []
    download = HttpDownloader(patience=Patience(total_s=60, longest_wait_s=20), sleep=waits.append)
    server.misbehave("list.csv", too_many(http_date(datetime.now(UTC) + timedelta(seconds=9))))
    refused(download, server.url("list.csv"))
    assert len(waits) == 2
    assert all(5.0 <= wait <= 9.0 for wait in waits)


@pytest.mark.parametrize(
    ("retry_after", "said"),
    [
        ("86400", "and asks to be left alone for 86,400 s. Try again after that."),
        (
            "Fri, 31 Dec 2027 23:59:59 GMT",
            "and asks to be left alone until 2027-12-31 23:59:59 UTC. Try again after that.",
        ),
    ],
)
def test_longer_than_anybody_waits_is_said(server, download, retry_after, said):
    server.misbehave("list.csv", too_many(retry_after))
    words, took_s = refused(download, server.url("list.csv"))
    assert "It was asked too often (429), " in words
    assert said in words
    assert server.count("list.csv") == 1
    assert took_s < 4.0


@pytest.mark.parametrize("retry_after", ["soon", "9" * 40, "-3", None])
def test_nonsense_in_retry_after_is_waited_for_as_usual(server, download, retry_after):
    server.misbehave("list.csv", too_many(retry_after), times=1)
    assert download.get(server.url("list.csv")).data == CSV


# --- time is bounded ---


def test_a_server_that_hangs_is_given_up(server):
    server.misbehave("list.csv", hangs())
    words, took_s = refused(HttpDownloader(patience=HASTY), server.url("list.csv"))
    assert "Nothing came from 127.0.0.1 for 0.2 s." in words
    assert took_s < 4.0  # three times 0.2 s and short waits, on a busy machine


@pytest.mark.parametrize("behaviour", [drips(0.02), drips_headers(0.02), drips(0.1, 20)])
def test_a_server_that_drips_is_cut_off(server, behaviour):
    server.misbehave("list.csv", behaviour)
    words, took_s = refused(HttpDownloader(patience=SHORT), server.url("list.csv"))
    assert "It had not answered in full after 0.5 s, and was cut off." in words
    assert 0.4 <= took_s < 4.0
    assert server.count("list.csv") == 1


def test_what_is_cut_off_is_never_taken_for_the_end(server):
    """Without a length the end of a body is the end of the connection."""

    def endless_drip(handler, served, request):
        handler.begin(200, {"Content-Type": "text/csv", "Connection": "close"})
        while not handler.server.closing.wait(0.02):
            handler.wfile.write(b"machine,1\n")
            handler.wfile.flush()

    server.misbehave("list.csv", endless_drip)
    words, took_s = refused(HttpDownloader(patience=SHORT), server.url("list.csv"))
    assert "cut off" in words
    assert took_s < 4.0


def test_a_slow_server_is_waited_for(server, download):
    server.misbehave("list.csv", slow(0.1))
    assert download.get(server.url("list.csv")).data == CSV


# --- size is bounded ---


def test_a_body_without_end_is_left_at_the_limit(server, download):
    server.misbehave("list.csv", endless())
    tracemalloc.start()
    words, took_s = refused(download, server.url("list.csv"), largest_bytes=2**20)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "It goes on beyond the 1 MiB that are read of it" in words
    assert took_s < 4.0
    assert peak_bytes < 8 * 2**20  # the server's own pieces are counted in


def test_a_bomb_is_unpacked_to_the_limit_and_no_further(server, download):
    server.misbehave("list.csv", gzip_bomb(2**25))
    tracemalloc.start()
    words, took_s = refused(download, server.url("list.csv"), largest_bytes=2**20)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "It goes on beyond the 1 MiB" in words
    assert took_s < 4.0
    assert peak_bytes < 8 * 2**20  # of the 32 MiB that it would grow to


def test_a_length_beyond_the_limit_is_not_even_begun(server, download):
    words, _ = refused(download, server.url("list.csv"), largest_bytes=100)
    # 19 bytes of head, 10 x 14, 90 x 15 and 100 x 16 of rows
    assert len(CSV) == 19 + 10 * 14 + 90 * 15 + 100 * 16
    assert "It says that it has 3,109 bytes, and goes on beyond the 100 bytes" in words


def test_a_packed_body_that_ends_early_is_no_answer(server, download):
    server.put("list.csv", os.urandom(5000), is_gzipped=True)
    whole = server.served("list.csv").body(None)

    def cut(handler, served, request):
        handler.reply(200, whole[:-500], {"Content-Encoding": "gzip", "Content-Type": "text/csv"})

    server.misbehave("list.csv", cut)
    words, _ = refused(download, server.url("list.csv"))
    assert "The answer ended before all of it had come." in words


def test_what_is_packed_otherwise_is_refused(server, download):
    server.put("list.csv", CSV, headers={"Content-Encoding": "br"})
    assert "packed as br" in refused(download, server.url("list.csv"))[0]
    server.put("list.csv", CSV, headers={"Content-Encoding": "gzip"})  # and is not
    assert "What came cannot be unpacked." in refused(download, server.url("list.csv"))[0]


# --- what is no data ---


@pytest.mark.parametrize("behaviour", [html(), html("text/plain"), html("text/csv")])
def test_a_page_in_place_of_data_is_called_one(server, download, behaviour):
    server.misbehave("list.csv", behaviour)
    words, _ = refused(download, server.url("list.csv"))
    assert "A web page came in place of the data. Often that is a login page" in words


def test_an_empty_answer_is_none(server, download):
    server.misbehave("list.csv", empty())
    assert "The answer is empty." in refused(download, server.url("list.csv"))[0]


def test_types_that_no_list_has_are_refused(server, download):
    server.misbehave("list.csv", typed("image/png"))
    assert "of the type image/png" in refused(download, server.url("list.csv"))[0]
    server.behave()
    for usual in ("text/plain", "application/octet-stream", "application/zip", "binary/x", ""):
        server.misbehave("list.csv", typed(usual), times=1)
        assert download.get(server.url("list.csv")).data == CSV


def test_unchanged_that_was_not_asked_for_is_no_answer(server, download):
    server.misbehave("list.csv", status(304, b""))
    assert "304" in refused(download, server.url("list.csv"))[0]


# --- redirects ---


def test_one_is_sent_on_a_few_times(server, download):
    for step, code in enumerate((301, 302, 303, 307, 308)):
        server.misbehave(f"at{step}", redirects(f"/at{step + 1}", code))
    server.put("at5", CSV)
    assert download.get(server.url("at0")).data == CSV
    server.misbehave("before", redirects("/at0"))
    assert "sends one on more than 5 times" in refused(download, server.url("before"))[0]


def test_a_loop_ends(server, download):
    server.misbehave("list.csv", loops())
    words, _ = refused(download, server.url("list.csv"))
    assert "sends one on more than 5 times" in words
    assert server.count("list.csv") == 6


def test_keys_and_passwords_stay_with_the_first_host(server, download):
    server.misbehave("list.csv", redirects(f"{server.elsewhere}/other.csv"))
    server.put("other.csv", CSV)
    address = f"http://user:pw@127.0.0.1:{server.port}/list.csv"
    reply = download.get(address, headers={"X-Api-Key": "secret", "Authorization": "Bearer b"})
    assert reply.data == CSV
    first, second = (dict(request.headers) for request in server.requests)
    assert first["X-Api-Key"] == "secret"
    assert {"X-Api-Key", "Authorization"}.isdisjoint(second)
    assert reply.address == server.url("list.csv")


def test_a_password_in_the_address_reaches_the_same_host(server, download):
    server.misbehave("list.csv", redirects("/other.csv"))
    server.put("other.csv", CSV)
    download.get(f"http://user:p%40ss@127.0.0.1:{server.port}/list.csv")
    # base64 of user:p@ss
    assert server.requests[0].headers["Authorization"] == "Basic dXNlcjpwQHNz"


def test_netrc_is_left_alone(server, download, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    download.get(server.url("list.csv"))
    assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/x", "gopher://x/"])
def test_only_the_web_is_gone_to(server, download, target):
    server.misbehave("list.csv", redirects(target))
    words, _ = refused(download, server.url("list.csv"))
    assert "outlay does not go there" in words


@pytest.mark.parametrize("target", ["http://[::1", "http://a:b/", "http://:80/"])
def test_a_redirect_to_nowhere_is_said(server, download, target):
    server.misbehave("list.csv", redirects(target))
    words, _ = refused(download, server.url("list.csv"))
    assert "It is no address" in words
    assert server.count("list.csv") == 1


def test_a_key_that_cannot_be_sent_is_not_shown(server, download):
    words, _ = refused(download, server.url("list.csv"), headers={"Authorization": "hunter2\n"})
    assert "A key for it has characters that cannot be sent." in words
    assert "hunter2" not in words


def test_nobody_is_led_from_https_to_http(server, download, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    with PriceServer(tls=True) as safe:
        safe.misbehave("list.csv", redirects(server.url("list.csv")))
        words, _ = refused(download, safe.url("list.csv"))
        assert f"sends one on to {server.url('list.csv')}, which is not protected" in words
        assert server.requests == []
        safe.put("other.csv", CSV)
        server.misbehave("list.csv", redirects(safe.url("other.csv")))
        assert download.get(server.url("list.csv")).data == CSV


def test_a_question_is_not_asked_elsewhere(server, download):
    server.misbehave("ask", redirects("/other", 302))
    with pytest.raises(ProviderError, match="sends questions on to .*/other"):
        download.post(server.url("ask"), {})
    server.misbehave("kept", redirects("/other", 307))
    server.put("other", lambda request: request.body)
    assert download.post(server.url("kept"), {"a": 1}).data == b'{"a": 1}'


# --- connections, TLS, proxies ---


@contextmanager
def nobody():
    """A port that is taken and that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_who_is_not_there_is_named(download):
    with nobody() as port:
        words, _ = refused(download, f"http://127.0.0.1:{port}/list.csv")
    assert f"Nobody answers at http://127.0.0.1:{port}." in words
    words, _ = refused(download, "http://no-such-host.invalid/list.csv")
    assert "The name no-such-host.invalid is not known." in words


@pytest.mark.parametrize(
    "address", ["http://", "http:///list.csv", "gopher://x/y", "http://[::1", "http://a:b/x"]
)
def test_what_is_no_address_is_said(download, address):
    assert "It is no address." in refused(download, address)[0]


def test_a_certificate_nobody_signed_is_not_trusted(download):
    with PriceServer(tls=True) as server:
        words, _ = refused(download, server.url("list.csv"))
    assert "The certificate of 127.0.0.1 is not to be trusted: self-signed certificate" in words
    assert "REQUESTS_CA_BUNDLE" in words


def test_a_server_without_tls_is_said(server, download):
    address = server.url("list.csv").replace("http://", "https://")
    assert "No protected connection (TLS) to 127.0.0.1" in refused(download, address)[0]


def test_a_proxy_of_the_environment_is_used(server, download, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with ProxyServer() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base)
        assert download.get(server.url("list.csv")).data == CSV
        assert [request.path for request in proxy.requests] == [server.url("list.csv")]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert download.get(server.url("list.csv")).data == CSV
        assert len(proxy.requests) == 1


def test_a_proxy_before_tls(download, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    with PriceServer(tls=True) as server, ProxyServer() as proxy:
        address = server.put("list.csv", CSV)
        monkeypatch.setenv("HTTPS_PROXY", proxy.base)
        assert download.get(address).data == CSV
        assert proxy.requests[0].method == "CONNECT"
        proxy.refuses = True
        assert "The proxy in between asks for a password (407)." in refused(download, address)[0]
        server.misbehave("list.csv", drips(0.02))
        proxy.refuses = False
        words, took_s = refused(HttpDownloader(patience=SHORT), address)
        assert "cut off" in words
        assert took_s < 4.0


def test_a_proxy_that_is_not_there_or_wants_a_password(server, download, monkeypatch):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with ProxyServer(refuses=True) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base)
        assert "asks for a password (407)" in refused(download, server.url("list.csv"))[0]
    with nobody() as port:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        words, _ = refused(download, server.url("list.csv"))
    assert "The proxy in between could not be used. Check HTTPS_PROXY" in words


# --- offline ---


@pytest.mark.parametrize("value", ["1", "true", "yes"])
def test_offline_asks_nobody(server, download, monkeypatch, value):
    monkeypatch.setenv("OUTLAY_OFFLINE", value)
    words, _ = refused(download, server.url("list.csv"))
    assert "was not asked: outlay is offline." in words
    with pytest.raises(ProviderError, match="outlay is offline"):
        download.post(server.url("list.csv"), {})
    assert server.requests == []


@pytest.mark.parametrize("value", ["", "0", "false", "No "])
def test_offline_may_be_switched_off(server, download, monkeypatch, value):
    monkeypatch.setenv("OUTLAY_OFFLINE", value)
    assert download.get(server.url("list.csv")).data == CSV


def test_offline_by_argument(server):
    words, _ = refused(HttpDownloader(offline=True), server.url("list.csv"))
    assert "outlay is offline" in words
    assert server.requests == []


# --- what is shown ---


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pw@host/a?b=1", "https://host/a?b=1"),
        ("https://host/a?api_key=s3cr3t&type=all", "https://host/a?api_key=...&type=all"),
        (
            "https://h/a?X-Amz-Signature=f00&X-Amz-Date=1",
            "https://h/a?X-Amz-Signature=...&X-Amz-Date=1",
        ),
        ("https://host/a#token=x", "https://host/a"),
        ("https://a:b@c:d@host:8080/", "https://host:8080/"),
        ("http://[::1", "an address that is none"),
        ("https://host/\x1b[31m", "https://host/?[31m"),
    ],
)
def test_no_password_and_no_key_is_shown(address, shown):
    assert redacted(address) == shown


def test_errors_show_no_password(server, download):
    server.misbehave("list.csv", status(403))
    address = f"http://user:hunter2@127.0.0.1:{server.port}/list.csv?token=hunter3"
    for behaviour in (status(403), resets(), truncated(), html()):
        server.behave()
        server.misbehave("list.csv", behaviour)
        words, _ = refused(download, address)
        assert "hunter" not in words
        assert "user" not in words


def test_nothing_is_written_on_the_screen(server, download, capfd):
    server.misbehave("list.csv", resets(), times=2)
    download.get(server.url("list.csv"))
    server.misbehave("list.csv", garbage())
    refused(download, server.url("list.csv"))
    assert capfd.readouterr() == ("", "")


# --- a mirror on disk ---


def test_a_file_is_a_mirror(tmp_path, monkeypatch):
    path = tmp_path / "a list.csv"
    path.write_bytes(CSV)
    os.utime(path, (0, datetime(2026, 10, 1, 12, tzinfo=UTC).timestamp()))
    download = HttpDownloader(offline=True)  # a file asks nobody
    for address in (str(path), path.as_uri(), f"file://localhost{path.as_uri()[7:]}"):
        reply = download.get(address)
        assert (reply.data, reply.modified) == (CSV, "2026-10-01")


def test_files_that_are_none(tmp_path):
    download = HttpDownloader()
    (tmp_path / "empty.csv").write_bytes(b"\n")
    (tmp_path / "page.csv").write_bytes(b"<html>")
    (tmp_path / "long.csv").write_bytes(b"x" * 101)
    os.mkfifo(tmp_path / "pipe.csv")
    for name, said in (
        ("none.csv", "There is no such file."),
        ("", "It is no file."),
        ("pipe.csv", "It is no file."),
        ("empty.csv", "The answer is empty."),
        ("page.csv", "A web page came"),
        ("long.csv", "more than 100 bytes"),
        ("a\0b", "It cannot be read"),
    ):
        words, _ = refused(download, f"{tmp_path}/{name}", largest_bytes=100)
        assert said in words, name
    assert "file of another machine" in refused(download, "file://host/x.csv")[0]


def test_only_addresses_without_a_host_are_files():
    assert local_path("https://host/x") is None
    assert str(local_path("file:///srv/a%20b")) == "/srv/a b"
    assert str(local_path("mirror/v8")) == "mirror/v8"
