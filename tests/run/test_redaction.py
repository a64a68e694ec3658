"""Credentials are hidden in what is shown; lines of a training log stay as they are."""

from __future__ import annotations

import random
import string
import time

import pytest

from outlay.run.redaction import HIDDEN, redacted

LETTERS = string.ascii_letters + string.digits


def made(length: int, alphabet: str = LETTERS) -> str:
    """Letters as those of a key: always the same, and nobody's. A letter and a digit at least."""
    return "a1" + "".join(random.Random(length).choices(alphabet, k=length - 2))


UPPER = string.ascii_uppercase + string.digits
KEYS = {
    "AWS": "AKIA" + made(16, UPPER).upper(),
    "GitHub": "ghp_" + made(36),
    "GitHub, fine-grained": "github_pat_" + made(60),
    "GitLab": "glpat-" + made(20),
    "Hugging Face": "hf_" + made(34),
    "OpenAI": "sk-" + made(48),
    "OpenAI, of a project": "sk-proj-" + made(60),
    "Anthropic": "sk-ant-api03-" + made(80),
    "Slack": "xoxb-" + made(40),
    "Google": "AIza" + made(35),
    "Google, of a login": "ya29." + made(60),
    "DigitalOcean": "dop_v1_" + made(64, "abcdef0123456789"),
    "RunPod": "rpa_" + made(40, UPPER).upper(),
    "NVIDIA": "nvapi-" + made(64),
    "JSON web token": f"eyJ{made(20)}.eyJ{made(40)}.{made(43)}",
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("line", ["{}", "login with {} failed", 'Invalid key: "{}".', "k={},x"])
def test_keys_known_by_how_they_begin_are_hidden_anywhere(kind, line):
    key = KEYS[kind]
    assert key not in redacted(line.format(key))
    assert HIDDEN in redacted(line.format(key))


SECRET = made(40)
PLACES = [
    "WANDB_API_KEY={}",
    "export WANDB_API_KEY='{}'",
    'api_key: "{}"',
    '{{"apiKey": "{}"}}',
    "--api-key {}",
    "--wandb-api-key={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "aws_session_token = {}",
    "HF_TOKEN={}",
    "hub_token={}",
    '"token": "{}"',
    "access_token: {}",
    "--token {}",
    "password={}",
    "PGPASSWORD={}",
    "client_secret: {}",
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "postgresql://me:{}@db.example/runs",
    "https://me:{}@github.com/me/private.git",
    "https://bucket.s3.amazonaws.com/x?X-Amz-Signature={}&y=1",
    "https://hooks.slack.com/services/{}",
    "https://discord.com/api/webhooks/{}",
    "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\n{}",
]


@pytest.mark.parametrize("place", PLACES)
def test_values_of_what_is_named_like_a_credential_are_hidden(place):
    hidden = redacted(place.format(SECRET))
    assert SECRET not in hidden
    assert HIDDEN in hidden


@pytest.mark.parametrize("place", PLACES)
def test_the_name_and_what_stands_around_it_stays(place):
    head = place.split("{}")[0].replace("{{", "{")
    if "PRIVATE KEY" not in place:
        assert redacted(place.format(SECRET)).startswith(head)


LOGS = [
    "token count: 123456",
    "tokens/s: 3500",
    "tokens: 1,048,576",
    "tokens=4096 loss=2.31",
    "num_tokens: 300000000000",
    "max_tokens=2048, batch_size=8",
    "total tokens seen: 5.2e9",
    "tokens_per_second=15234.7",
    "train/tokens_per_sec: 15234.7 | mfu: 0.41",
    "tokenizer: meta-llama/Llama-3.1-8B",
    "tokenizer_class: PreTrainedTokenizerFast2",
    "Loading tokenizer.json from checkpoint-1000",
    "pad_token: <pad>, eos_token=</s>, bos_token='<|begin_of_text|>'",
    "pad_token = [PAD]",
    "unk_token: unknown",
    "mask_token_id: 103",
    "eos_token_id=128001",
    "token: None",
    "hub_token=None, push_to_hub=False",
    "api_key: null",
    "use_auth_token=True",
    "WANDB_API_KEY=None",
    "wandb: Currently logged in as: someone. Use `wandb login --relogin` to force relogin",
    "step 100/5000 loss 2.3412 lr 3.0e-04 grad_norm 0.81 12.3 it/s",
    "{'loss': 1.2034, 'grad_norm': 0.52, 'learning_rate': 2e-05, 'epoch': 0.31}",
    "Epoch 3:  12%|█▏        | 120/1000 [00:12<01:28, 9.96it/s, loss=0.31]",
    "saved checkpoints/step_001000.pt (1.2 GB) sha256=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b",
    "Using seed: 42, key: value, keys: ['input_ids', 'attention_mask', 'labels']",
    "missing_keys=[], unexpected_keys=['lm_head.weight']",
    "head.key.weight: torch.Size([768, 768])",
    "attn.key_proj.bias: mean=0.0012",
    "key_padding_mask: (32, 128)",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "run id: stylenat-7f3a2c",
    "https://example.com/data.tar?download=1",
    "scp://host:22/path user@host",
    "ssh://me@host:2222/x",
    "the author:name of basic tokens",
    "CUDA_VISIBLE_DEVICES=0,1,2,3 OMP_NUM_THREADS=8 TOKENIZERS_PARALLELISM=false",
    "SORT_KEY=a",
    "password: none needed",
]


@pytest.mark.parametrize("line", LOGS)
def test_lines_of_a_training_log_stay_as_they_are(line):
    assert redacted(line) == line


def test_values_that_are_handed_over_are_hidden_wherever_they_stand():
    text = "my key is hunter22-long and hunter22"
    assert redacted(text, ["hunter22", "hunter22-long"]) == f"my key is {HIDDEN} and {HIDDEN}"
    assert redacted("a b c", ["a", ""]) == "a b c"  # too short to be told from words


def test_what_is_hidden_stays_so_when_it_is_done_again():
    for place in PLACES:
        once = redacted(place.format(SECRET))
        assert redacted(once) == once


@pytest.mark.parametrize("piece", ["token", "a_", "secret-", "x=", "://", "-----BEGIN ", "eyJ"])
def test_long_lines_take_no_time(piece):
    started_s = time.monotonic()
    redacted(piece * 20_000)
    assert time.monotonic() - started_s < 5
