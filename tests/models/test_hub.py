"""Configs of the hub, of which a local server stands in."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from outlay.errors import InputError, MissingCredentials, ProviderError
from outlay.models.model import find_model

pytest.importorskip("huggingface_hub")

CONFIG = {"model_type": "llama", "hidden_size": 64, "architectures": ["LlamaForCausalLM"]}


class Hub:
    """A hub that answers as a test says: a status, headers and a body for each path."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.stalls = threading.Event()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, *, with_body: bool) -> None:
                token = self.headers.get("Authorization", "")
                hub.asked.append((self.command, self.path, token))
                status, headers, body = hub.answers.get(self.path, (404, NO_ENTRY, b""))
                if status == 0:
                    hub.stalls.wait(20)
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    @property
    def files(self) -> set[str]:
        return {path for _, path, _ in self.asked if not path.startswith("/api/agent")}

    def has(self, repository: str, name: str, body: bytes) -> None:
        headers = {"ETag": '"0123"', "X-Repo-Commit": "a" * 40}
        self.answers[f"/{repository}/resolve/main/{name}"] = (200, headers, body)

    def refuses(self, repository: str, name: str, status: int, code: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": "no"}
        self.answers[f"/{repository}/resolve/main/{name}"] = (status, headers, b"")


NO_ENTRY = {"X-Error-Code": "EntryNotFound", "X-Error-Message": "no"}


@pytest.fixture
def hub(monkeypatch, tmp_path):
    hub = Hub()
    monkeypatch.setenv("HF_ENDPOINT", hub.address)
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "1")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "OUTLAY_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    yield hub
    hub.stalls.set()
    hub.server.shutdown()
    hub.server.server_close()


def test_config_alone_is_fetched_and_kept(hub, monkeypatch):
    hub.has("owner/tiny", "config.json", json.dumps(CONFIG).encode())
    model = find_model("hf:owner/tiny")
    assert (model.config["hidden_size"], model.repository) == (64, "owner/tiny")
    assert model.config_source == f"{hub.address}/owner/tiny"
    assert hub.files == {"/owner/tiny/resolve/main/config.json"}
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.asked.clear()
    assert find_model("hf:owner/tiny").config == model.config
    assert not hub.files


def test_token_goes_with_the_question(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.has("owner/tiny", "config.json", json.dumps(CONFIG).encode())
    find_model("hf:owner/tiny")
    assert ("GET", "/owner/tiny/resolve/main/config.json", "Bearer hf_secret") in hub.asked


def test_bundled_repository_asks_nobody(hub):
    assert find_model("hf:meta-llama/Llama-3.1-8B").name == "llama-3.1-8b"
    assert not hub.files


def test_gated(hub):
    hub.refuses("owner/gated", "config.json", 401, "GatedRepo")
    with pytest.raises(MissingCredentials) as raised:
        find_model("hf:owner/gated")
    assert "HF_TOKEN" in raised.value.fix
    assert "outlay recipe models" in raised.value.fix


def test_not_there(hub):
    hub.refuses("owner/nothing", "config.json", 404, "RepoNotFound")
    with pytest.raises(InputError, match="no repository owner/nothing"):
        find_model("hf:owner/nothing")
    with pytest.raises(InputError, match=r"owner/weights has no config\.json"):
        find_model("hf:owner/weights")


def test_pipeline_of_diffusers(hub):
    unet = {"_class_name": "UNet2DConditionModel", "sample_size": 64}
    hub.has("owner/images", "unet/config.json", json.dumps(unet).encode())
    assert find_model("diffusers:owner/images").config == unet


def test_cut_off(hub):
    hub.has("owner/cut", "config.json", b'{"model_type": "lla')
    with pytest.raises(InputError, match="cannot be read as the config") as raised:
        find_model("hf:owner/cut")
    assert "no complete JSON" in raised.value.why


def test_time_out_and_server_error(hub):
    hub.answers["/owner/slow/resolve/main/config.json"] = (0, {}, b"")
    with pytest.raises(ProviderError, match="could not be fetched") as raised:
        find_model("hf:owner/slow")
    assert "hf:FOLDER" in raised.value.fix
    hub.answers["/owner/broken/resolve/main/config.json"] = (501, {}, b"")
    with pytest.raises(ProviderError, match="could not be fetched"):
        find_model("hf:owner/broken")


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "OUTLAY_OFFLINE"])
def test_offline_says_so(hub, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    with pytest.raises(ProviderError, match="told to stay offline") as raised:
        find_model("hf:owner/tiny")
    assert "outlay recipe models" in raised.value.fix
    assert not hub.files


@pytest.mark.parametrize("place", ["./nope", "../nope", "~/nope"])
def test_a_folder_that_is_not_there_is_not_looked_for_on_the_hub(place):
    with pytest.raises(InputError, match=f"There is no folder {re.escape(place)}"):
        find_model(f"hf:{place}")
