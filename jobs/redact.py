"""Secrets out of text that is to leave the machine. What a name or a known form gives away goes; lines stay lines."""

from __future__ import annotations

import re

GONE = "[redacted]"
_NAME = (
    r"(?:[A-Za-z0-9]+_)*(?:API_?KEY|ACCESS_KEY(?:_ID)?|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(?:_[A-Z0-9]+)*"
)
_FORMS = (
    # issuers' own prefixes: Hugging Face, GitHub, OpenAI and Anthropic, Slack, AWS key ids, Google API keys
    (re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}"), GONE),
    (re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})"), GONE),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), GONE),
    (re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"), GONE),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), GONE),
    (re.compile(r"\bAIza[A-Za-z0-9_-]{30,}"), GONE),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"), GONE),  # JSON web tokens (RFC 7519)
    (re.compile(r"(?i)\b(bearer|authorization: *basic)\s+[A-Za-z0-9._~+/-]{8,}=*"), rf"\1 {GONE}"),
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,128}):[^\s/@\"']{1,256}@"), rf"\1:{GONE}@"),
    # values under names of secrets, as in an environment, in YAML and in JSON; upper case is an environment's
    (re.compile(rf"\b({_NAME}[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}}]{{4,}}"), rf"\g<1>{GONE}"),
    (
        re.compile(
            r"(?i)\b((?:password|passwd|secret|api[_-]?key|(?:access|auth|refresh|bearer)[_-]?token|"
            r"(?:aws[_-])?secret[_-]access[_-]key|wandb[_-]key|login token)"
            r"[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&}]{4,}"
        ),
        rf"\g<1>{GONE}",
    ),
    (re.compile(r"([?&](?:token|sig|signature|key|X-Amz-[A-Za-z-]+)=)[^\s&\"']{8,}"), rf"\g<1>{GONE}"),
    (re.compile(r"(?i)(wandb(?:\.login|[: ]+login)?\W.{0,40}?\b)[0-9a-f]{40}\b"), rf"\g<1>{GONE}"),
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)


def redact(text: str) -> str:
    """The text with every secret that can be told replaced; the number of lines is kept."""
    text = _PRIVATE_KEY.sub(lambda m: GONE + "\n" * m[0].count("\n"), text)
    for form, put in _FORMS:
        text = form.sub(put, text)
    return text
