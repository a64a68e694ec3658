"""What looks like a credential is not shown, kept or logged.

Logs of training stay readable: figures of tokens (`tokens/s: 3500`, `max_tokens=2048`), special
tokens (`pad_token: <pad>`) and settings such as `token: None` are no credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "[hidden]"
_NO_SECRETS = r"(?!(?:none|null|true|false|yes|no|unset|not|missing|\*+|\.{3})\b)"
"""What a setting says that holds no credential."""
_STRONG = (
    r"(?:api[_-]?key|access[_-]?key|secret|private[_-]?key|account[_-]?key"
    r"|passw(?:or)?d|passphrase|credentials?)[A-Za-z0-9_-]{0,40}"
)
"""Within names whose value is always one."""
_WEAK = r"token"
"""How names end whose value is one if it looks like it."""
_OPAQUE = (
    r"(?=[A-Za-z0-9_.~+/=-]{0,400}[0-9])(?=[A-Za-z0-9_.~+/=-]{0,400}[A-Za-z])"
    r"[A-Za-z0-9_.~+/=-]{10,}"
)
"""Letters and digits, long, and nothing that a special token has."""
_GIVEN = r"[\"']?\s{0,8}[=:]\s{0,8}[\"']?"
_VALUE = r"[^\s\"',;&]+"
_KNOWN = (  # by how they begin
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-[A-Za-z0-9_-]{20,}|sk_live_[A-Za-z0-9]{16,}|r8_[A-Za-z0-9]{30,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|dop_v1_[a-f0-9]{40,}|rpa_[A-Z0-9]{30,}|nvapi-[A-Za-z0-9_-]{30,}|pypi-[A-Za-z0-9_-]{50,}"
    r"|wandb_v1_[A-Za-z0-9_]{20,}"
    r"|eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,}"  # a JSON web token
)
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # NAME=value, NAME: value, "name": "value", --name value: the value goes.
        rf"(?i)({_STRONG}{_GIVEN}{_NO_SECRETS})({_VALUE})",
        rf"(?i)(--[\w-]{{0,40}}{_STRONG}\s{{1,8}}{_NO_SECRETS})({_VALUE})",
        rf"(?i)({_WEAK}{_GIVEN})({_OPAQUE})",
        rf"(?i)(--[\w-]{{0,40}}{_WEAK}\s{{1,8}})({_OPAQUE})",
        r"([A-Z0-9]_(?:TOKEN|KEY|PAT)=[\"']?)([^\s\"',;&]{8,})",
        r"(?i)(\bauthorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:bearer|basic|token)\s{1,8})([^\s\"',;]+)",
        r"(?i)(\bbearer\s{1,8})([A-Za-z0-9_.~+/=-]{16,})",
        # scheme://user:password@host, and what stands for it in webhooks
        r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{0,200}:)([^\s/@]{1,500})(?=@)",
        r"(?i)(\bhttps://hooks\.slack\.com/services/)([^\s\"']+)",
        r"(?i)(\bhttps://(?:\w+\.)?discord(?:app)?\.com/api/webhooks/)([^\s\"']+)",
        r"(?i)([?&](?:x-amz-signature|x-amz-credential|sig|signature|key|token)=)([^\s&\"']{8,})",
        rf"()\b({_KNOWN})",
    )
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_SHORTEST_SECRET = 4


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without what looks like a credential, and without the values in `secrets`."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, HIDDEN)
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    for pattern in _PATTERNS:
        text = pattern.sub(_hidden, text)
    return text


def _hidden(match: re.Match[str]) -> str:
    return match[0] if match[2] == HIDDEN else match[1] + HIDDEN
