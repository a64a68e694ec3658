"""`outlay prices watch` and `plan --alert-below`: exit codes, messages that really arrive."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jsonschema
import pytest


@pytest.fixture
def mailbox():
    """A web hook as apprise calls it: its address, and the messages that arrived."""
    messages = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            messages.append(json.loads(self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_port}/", messages
    server.shutdown()
    server.server_close()


WATCH = ("prices", "watch", "--offline", "--gpu")


def test_it_happened(outlay):
    ended = outlay(*WATCH, "H100", "--below", "1000", "--json")
    assert (ended.code, ended.err) == (0, "")
    document = ended.document
    jsonschema.validate(document, outlay("schema", "prices-watch").document)
    assert document["happened"]
    prices = [offer["usd_per_gpu_hour"] for offer in document["offers"]]
    assert prices == sorted(prices)
    assert all(offer["gpu"].startswith("H100") for offer in document["offers"])


def test_it_did_not_happen(outlay):
    ended = outlay(*WATCH, "H100", "--below", "0.0001")
    assert ended.code == 3
    assert ended.out.startswith("No H100 below")
    assert not outlay(*WATCH, "H100", "--below", "0.0001", "--json").document["happened"]


def test_a_message_arrives_once(outlay, mailbox):
    address, messages = mailbox
    for _ in range(2):
        ended = outlay(*WATCH, "A10:1", "--provider", "lambda", "--below", "9", "--notify", address)
        assert ended.code == 0
    assert len(messages) == 1
    assert messages[0]["title"] == "A10:1 below $9 an hour"
    assert "1x A10 at lambda" in messages[0]["message"]


def test_a_message_that_cannot_be_sent_is_said(outlay):
    ended = outlay(*WATCH, "H100", "--below", "99", "--notify", "json://127.0.0.1:1/")
    assert ended.code == 5
    assert "could not be sent" in ended.err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("H100", "--below", "2", "--every", "5s"), "minute"),
        (("H100", "--below", "2", "--every", "often"), "'often'"),
        (("H1000", "--below", "2"), "'H1000'"),
        (("H100", "--below", "2", "--provider", "lamda"), "lambda"),
        (("H100", "--below", "2", "--notify", "nowhere"), "nowhere"),
        (("H100",), "--below"),
    ],
)
def test_bad_input(outlay, arguments, word):
    ended = outlay(*WATCH, *arguments)
    assert ended.code == 2
    assert word in ended.err


@pytest.mark.usefixtures("few_offers")
def test_a_plan_below_a_sum(outlay, workload, mailbox):
    address, messages = mailbox
    path = workload()
    ended = outlay("plan", path, "--alert-below", "100000", "--notify", address)
    assert ended.code == 0
    assert ", below $100,000" in ended.out
    assert len(messages) == 1
    ended = outlay("plan", path, "--alert-below", "0.01", "--notify", address)
    assert ended.code == 3
    assert "not below $0.01" in ended.out
    assert len(messages) == 1
    assert outlay("plan", path, "--alert-below", "0.01", "--json").code == 3


def test_options_of_an_alert_need_one(outlay, workload):
    ended = outlay("plan", workload(), "--every", "1h")
    assert ended.code == 2
    assert "--alert-below" in ended.err


@pytest.mark.usefixtures("few_offers")
def test_where_messages_go_may_be_set_for_good(outlay, workload, monkeypatch):
    monkeypatch.setenv("OUTLAY_NOTIFY", "ntfy://somebody")
    assert outlay("plan", workload(), "--json").code == 0
