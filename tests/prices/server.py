"""A price source on this machine that serves real files, and misbehaves on demand.

    with PriceServer() as server:
        server.put_skypilot("lambda", csv_bytes)                 # v8/lambda/vms.csv
        server.put_gpuhunt("lambdalabs", items, "20261117-901")  # .../version, .../catalog.zip
        monkeypatch.setenv("OUTLAY_SKYPILOT_CATALOG", server.base)
        server.misbehave("v8/lambda/vms.csv", status(500), times=2)   # twice, then fine
        ...
        assert server.count("v8/lambda/vms.csv") == 3
        assert server.requests[-1].headers["User-Agent"].startswith("outlay/")

It answers GET and POST, with ETag, Last-Modified and 304. A behaviour is one of the functions
below: `slow`, `hangs`, `drips`, `resets`, `redirects`, `loops`, `status`, `too_many`, `truncated`,
`typed`, `html`, `empty`, `endless`, `gzip_bomb`, `stops`, `garbage`. What is wrong inside a file is
put as a file: `zip_of`, `zip_bomb`, `encrypted_zip`, `corrupt_zip`. `ProxyServer` is a real proxy.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import socket
import ssl
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

CERTIFICATE = Path(__file__).parent / "data" / "localhost.pem"
"""Key and certificate of `localhost`, signed by nobody but itself: of no use but here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What somebody asked."""

    method: str
    path: str
    """Without the slash it begins with, and without the query."""
    query: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A file as it is served."""

    data: bytes | Callable[[Request], bytes]
    content_type: str = "text/plain; charset=utf-8"
    modified: datetime | None = datetime(2026, 11, 16, 1, 7, 30, tzinfo=UTC)
    """Last-Modified; None leaves it out."""
    has_etag: bool = True
    is_gzipped: bool = False
    """Sent with Content-Encoding: gzip."""
    headers: Mapping[str, str] = field(default_factory=dict)

    def body(self, request: Request) -> bytes:
        """What is sent."""
        data = self.data(request) if callable(self.data) else self.data
        return gzip.compress(data, mtime=0) if self.is_gzipped else data


class _Listener(ThreadingHTTPServer):
    """Threads that end with the server: open connections are cut, waiting ones woken."""

    daemon_threads = True
    block_on_close = True
    request_queue_size = 64

    def __init__(self, handler: type[BaseHTTPRequestHandler], owner: Any) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.owner = owner
        self.closing = threading.Event()
        self._open: set[socket.socket] = set()
        self._running: list[threading.Thread] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self._running.append(thread)
        thread.start()

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what is tested here."""

    def close(self) -> None:
        self.closing.set()
        self.shutdown()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._running:
            thread.join(timeout=5)
        self.server_close()


class _Running:
    """A listener in a thread of its own; a context manager."""

    scheme = "http"

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.requests: list[Request] = []
        """Everything that was asked, in order."""
        self._lock = threading.Lock()
        self._listener = _Listener(handler, self)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self._thread.join(timeout=5)

    @property
    def port(self) -> int:
        return self._listener.server_address[1]

    @property
    def base(self) -> str:
        """`http://127.0.0.1:PORT`, without a slash at its end."""
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def note(self, request: Request) -> None:
        with self._lock:
            self.requests.append(request)


class PriceServer(_Running):
    """Files under addresses; see the module."""

    def __init__(self, *, tls: bool = False) -> None:
        super().__init__(_Handler)
        self._files: dict[str, Served] = {}
        self._behaviours: dict[str, list[tuple[Behaviour, int | None]]] = {}
        if tls:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTIFICATE)
            self._listener.socket = context.wrap_socket(
                self._listener.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def elsewhere(self) -> str:
        """The same server by another name: another host to who asks."""
        return f"{self.scheme}://localhost:{self.port}"

    def url(self, path: str) -> str:
        """The address of a path."""
        return f"{self.base}/{path}"

    def put(self, path: str, data: bytes | Callable[[Request], bytes], **how: Any) -> str:
        """Serve a file (or what a function makes of a request); `how` is of `Served`."""
        self._files[path] = Served(data=data, **how)
        return self.url(path)

    def remove(self, path: str) -> None:
        """Serve it no longer: 404."""
        self._files.pop(path, None)

    def put_skypilot(self, cloud: str, data: bytes, *, schema: str = "v8", **how: Any) -> str:
        """Serve a SkyPilot catalogue: `OUTLAY_SKYPILOT_CATALOG` is `server.base`."""
        return self.put(f"{schema}/{cloud}/vms.csv", data, **how)

    def put_gpuhunt(
        self, provider: str, items: Iterable[Any], version: str, *, base: str = "v3", **how: Any
    ) -> str:
        """Serve gpuhunt's items of a provider, written by gpuhunt's own code:
        `OUTLAY_GPUHUNT_CATALOG` is `server.url("v3")`."""
        data = zip_of({f"{provider}.csv": gpuhunt_csv(items)})
        return self.put_gpuhunt_zip(provider, data, version, base=base, **how)

    def put_gpuhunt_zip(
        self, provider: str, data: bytes, version: str, *, base: str = "v3", **how: Any
    ) -> str:
        """Serve any bytes as a provider's `catalog.zip`, with the version file that leads to it."""
        self.put(f"{base}/{provider}/version", f"{version}\n".encode(), **how)
        path = f"{base}/{provider}/{version}/catalog.zip"
        return self.put(path, data, **{"content_type": "application/zip", **how})

    def misbehave(self, path: str, behaviour: Behaviour, *, times: int | None = None) -> None:
        """From now on a path misbehaves: so many times (None: always), then as told before.

        Several are worked off in the order they were given."""
        self._behaviours.setdefault(path, []).append((behaviour, times))

    def behave(self) -> None:
        """Every path as it should be again."""
        self._behaviours.clear()

    def files(self) -> dict[str, Served]:
        """What is served now, for `clear`."""
        return dict(self._files)

    def clear(self, files: Mapping[str, Served] | None = None) -> None:
        """As it was in the beginning: nothing asked, nothing wrong, no files, or those given."""
        self.behave()
        self._files = dict(files or {})
        self.requests.clear()

    def count(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(request.path == path for request in list(self.requests))

    def behaviour(self, path: str) -> Behaviour | None:
        """What to do with the next request of a path."""
        with self._lock:
            queue = self._behaviours.get(path, [])
            while queue:
                behaviour, times = queue[0]
                if times is None:
                    return behaviour
                if times > 0:
                    queue[0] = (behaviour, times - 1)
                    return behaviour
                queue.pop(0)
        return None

    def served(self, path: str) -> Served | None:
        return self._files.get(path)


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, *_: Any) -> None:
        """Nothing on the screen."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(
            method=self.command,
            path=parts.path.lstrip("/"),
            query=parts.query,
            headers=dict(self.headers.items()),
            body=body,
        )
        owner: PriceServer = self.server.owner
        owner.note(request)
        behaviour = owner.behaviour(request.path)
        (behaviour or well)(self, owner.served(request.path), request)

    do_POST = do_GET  # noqa: N815

    def wait(self, seconds: float) -> None:
        """Wait, or until the server closes."""
        self.server.closing.wait(seconds)

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def reply(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.begin(status, {"Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def cut(self) -> None:
        """Close the connection in the middle of things."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


Behaviour = Callable[[_Handler, Served | None, Request], None]
"""What a server does with a request for a file; the file is None where there is none."""


def _headers(served: Served, body: bytes) -> dict[str, str]:
    headers = {"Content-Type": served.content_type, **served.headers}
    if served.has_etag:
        headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    if served.modified is not None:
        headers["Last-Modified"] = format_datetime(served.modified, usegmt=True)
    if served.is_gzipped:
        headers["Content-Encoding"] = "gzip"
    return headers


def _is_unchanged(served: Served, headers: Mapping[str, str], request: Request) -> bool:
    """RFC 9110, 13.2.2: If-None-Match goes before If-Modified-Since."""
    asked = {name.lower(): value for name, value in request.headers.items()}
    if "if-none-match" in asked:
        return asked["if-none-match"] == headers.get("ETag")
    if "if-modified-since" in asked and served.modified is not None:
        return served.modified <= parsedate_to_datetime(asked["if-modified-since"])
    return False


def well(handler: _Handler, served: Served | None, request: Request) -> None:
    """As a good server does."""
    if served is None:
        handler.reply(404, b"404: Not Found", {"Content-Type": "text/plain; charset=utf-8"})
        return
    body = served.body(request)
    headers = _headers(served, body)
    if request.method == "GET" and _is_unchanged(served, headers, request):
        handler.begin(304, {name: headers[name] for name in headers if name != "Content-Type"})
        return
    handler.reply(200, body, headers)


# --- what a bad server does ---


def slow(seconds: float) -> Behaviour:
    """Waits before it answers, and then answers well."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.wait(seconds)
        well(handler, served, request)

    return behaviour


def hangs() -> Behaviour:
    """Takes the request and never answers."""
    return slow(3600.0)


def drips(every_s: float = 0.05, bytes_at_once: int = 1) -> Behaviour:
    """Sends the right body a byte at a time, each soon enough for any read timeout."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        body = served.body(request) if served else b"x" * 1000
        handler.begin(200, {"Content-Type": "text/csv", "Content-Length": str(len(body))})
        for start in range(0, len(body), bytes_at_once):
            if handler.server.closing.wait(every_s):
                return
            handler.wfile.write(body[start : start + bytes_at_once])
            handler.wfile.flush()

    return behaviour


def drips_headers(every_s: float = 0.05) -> Behaviour:
    """Sends headers that never end, a line at a time."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        number = 0
        while not handler.server.closing.wait(every_s):
            handler.wfile.write(f"X-Drip-{number}: 1\r\n".encode())
            handler.wfile.flush()
            number += 1

    return behaviour


def stops(after_bytes: int = 10) -> Behaviour:
    """Sends the beginning of the body, then nothing more, and keeps the connection open."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        body = served.body(request) if served else b"x" * 1000
        handler.begin(200, {"Content-Type": "text/csv", "Content-Length": str(len(body))})
        handler.wfile.write(body[:after_bytes])
        handler.wfile.flush()
        handler.wait(3600.0)

    return behaviour


def resets() -> Behaviour:
    """Resets the connection in place of an answer."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        linger = struct.pack("ii", 1, 0)  # closes with RST and not with FIN
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.close_connection = True
        handler.wfile.close()
        handler.rfile.close()
        handler.connection.close()

    return behaviour


def redirects(to: str, code: int = 301) -> Behaviour:
    """Sends one elsewhere."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(code, b"Moved", {"Location": to})

    return behaviour


def loops(code: int = 302) -> Behaviour:
    """Sends one to itself, for ever."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(code, b"Moved", {"Location": f"/{request.path}"})

    return behaviour


def status(code: int, body: bytes = b"no", headers: Mapping[str, str] | None = None) -> Behaviour:
    """Answers with a status: 403, 404, 500 ..."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(code, body, {"Content-Type": "text/plain", **(headers or {})})

    return behaviour


def too_many(retry_after: str | None = "1") -> Behaviour:
    """429; Retry-After in seconds or as a date of HTTP (`http_date`), None for none."""
    return status(429, b"slow down", {"Retry-After": retry_after} if retry_after else {})


def truncated(keep_fraction: float = 0.5) -> Behaviour:
    """Says how long the body is, sends a part of it and closes."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        body = served.body(request) if served else b"x" * 1000
        headers = _headers(served, body) if served else {}
        handler.begin(200, {**headers, "Content-Length": str(len(body))})
        handler.wfile.write(body[: int(len(body) * keep_fraction)])
        handler.wfile.flush()
        handler.cut()

    return behaviour


def unfinished() -> Behaviour:
    """Sends a body in chunks (no length known) and closes before the last of them."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        body = served.body(request) if served else b"x" * 1000
        half = body[: len(body) // 2]
        handler.begin(200, {"Content-Type": "text/csv", "Transfer-Encoding": "chunked"})
        handler.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")
        handler.wfile.flush()
        handler.cut()

    return behaviour


def typed(content_type: str) -> Behaviour:
    """The right body under another content type."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        body = served.body(request) if served else b""
        handler.reply(200, body, {"Content-Type": content_type})

    return behaviour


def html(content_type: str = "text/html; charset=utf-8") -> Behaviour:
    """A page in place of data, as a captive portal or a company's proxy gives."""
    page = b"<!DOCTYPE html>\n<html><head><title>Log in</title></head><body>Log in</body></html>\n"

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(200, page, {"Content-Type": content_type})

    return behaviour


def empty() -> Behaviour:
    """200 and nothing in it."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(200, b"", {"Content-Type": "text/plain"})

    return behaviour


def endless(content_type: str = "text/csv") -> Behaviour:
    """A body without a length that never ends, as fast as it is taken."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.begin(200, {"Content-Type": content_type, "Connection": "close"})
        line = b"InstanceType,Price\n" * 4000
        with contextlib.suppress(OSError):
            while not handler.server.closing.is_set():
                handler.wfile.write(line)
        handler.cut()

    return behaviour


def gzip_bomb(unpacked_bytes: int = 2**28) -> Behaviour:
    """A small body with Content-Encoding: gzip that grows a thousandfold."""
    body = _packed_zeros(unpacked_bytes, wbits=31)

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.reply(200, body, {"Content-Type": "text/csv", "Content-Encoding": "gzip"})

    return behaviour


def garbage() -> Behaviour:
    """Something that is no HTTP."""

    def behaviour(handler: _Handler, served: Served | None, request: Request) -> None:
        handler.wfile.write(b"\x00\x01\x02 no such protocol\r\n\r\n")
        handler.cut()

    return behaviour


# --- what may be in a file ---


def http_date(when: datetime) -> str:
    """A day and time as HTTP writes it."""
    return format_datetime(when.astimezone(UTC), usegmt=True)


def gpuhunt_csv(items: Iterable[Any]) -> bytes:
    """Items as gpuhunt's own code stores them."""
    from gpuhunt._internal import storage

    with TemporaryDirectory() as folder:
        path = Path(folder) / "items.csv"
        storage.dump(items, str(path))
        return path.read_bytes()


def zip_of(members: Mapping[str, bytes]) -> bytes:
    """A zip of files under any names, `../../etc/passwd` among them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, (2026, 11, 17, 1, 0, 0))
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def zip_bomb(member: str, unpacked_bytes: int = 2**28, *, stated_bytes: int | None = None) -> bytes:
    """A small zip whose member grows a thousandfold; `stated_bytes` is what it says of itself."""
    packed = _packed_zeros(unpacked_bytes, wbits=-15)
    data = zip_of({member: b"x"})
    stated = unpacked_bytes if stated_bytes is None else stated_bytes
    name = member.encode()
    sizes = struct.pack("<LLL", 0, len(packed), stated)  # crc, packed, unpacked
    method = struct.pack("<H", zipfile.ZIP_DEFLATED)
    local = data[:8] + method + data[10:14] + sizes + struct.pack("<HH", len(name), 0) + name
    central = data[data.index(b"PK\x01\x02") : data.index(b"PK\x05\x06")]
    central = central[:10] + method + central[12:16] + sizes + central[28:]
    end = struct.pack("<LHHHHLLH", 0x06054B50, 0, 0, 1, 1, len(central), len(local + packed), 0)
    return local + packed + central + end


def encrypted_zip(member: str) -> bytes:
    """A zip whose member says that it is encrypted."""
    data = bytearray(zip_of({member: b"secret"}))
    data[6] |= 1  # the flag in the local header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    return bytes(data)


def corrupt_zip(data: bytes) -> bytes:
    """A zip whose directory is whole and whose content is not."""
    middle = data.index(b"PK\x01\x02") // 2
    return (
        data[:middle]
        + bytes(byte ^ 0xFF for byte in data[middle : middle + 8])
        + data[middle + 8 :]
    )


def _packed_zeros(unpacked_bytes: int, wbits: int) -> bytes:
    packer, block = zlib.compressobj(6, zlib.DEFLATED, wbits), bytes(2**20)
    packed = [packer.compress(block) for _ in range(max(unpacked_bytes // len(block), 1))]
    return b"".join([*packed, packer.flush()])


# --- a proxy ---


class ProxyServer(_Running):
    """A real forward proxy: plain addresses are fetched, TLS ones tunnelled (CONNECT)."""

    def __init__(self, *, refuses: bool = False) -> None:
        super().__init__(_ProxyHandler)
        self.refuses = refuses
        """Whether it asks everybody for a password: 407."""


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def log_message(self, *_: Any) -> None:
        """Nothing on the screen."""

    def _refused(self) -> bool:
        owner: ProxyServer = self.server.owner
        owner.note(
            Request(
                method=self.command, path=self.path, query="", headers=dict(self.headers.items())
            )
        )
        if owner.refuses:
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="office"')
            self.send_header("Content-Length", "0")
            self.end_headers()
        return owner.refuses

    def do_GET(self) -> None:
        """The address in full: asked for in the client's place, over a connection of its own."""
        if self._refused():
            return
        parts = urlsplit(self.path)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        lines = [f"GET {target} HTTP/1.1", "Connection: close"]
        kept = ("connection", "proxy-connection", "proxy-authorization")
        lines += [f"{k}: {v}" for k, v in self.headers.items() if k.lower() not in kept]
        with socket.create_connection((parts.hostname or "", parts.port or 80), 10) as away:
            away.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            while data := away.recv(65536):
                self.wfile.write(data)
        self.close_connection = True

    def do_CONNECT(self) -> None:
        if self._refused():
            return
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as away:
            self.send_response(200, "Connection established")
            self.end_headers()
            back = threading.Thread(target=_pour, args=(away, self.connection), daemon=True)
            back.start()
            _pour(self.connection, away)
            back.join(timeout=5)
        self.close_connection = True


def _pour(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
