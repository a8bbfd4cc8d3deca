"""What leaves a machine holds no secret, and what only looks like one stays."""

from __future__ import annotations

import pytest

from jobs.redact import GONE, redact

SECRET = "Zx9" + "q7Lm2" * 8


@pytest.mark.parametrize(
    "line",
    [
        f"token is hf_{SECRET} for the hub",
        f"HF_TOKEN={SECRET}",
        f'"WANDB_API_KEY": "{SECRET}"',
        f"  MY_DB_PASSWORD: '{SECRET}'",
        f"aws_secret_access_key = {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"cloning https://someone:{SECRET}@example.org/x.git",
        f"GET https://store.example/x?X-Amz-Signature={SECRET}&v=2",
        f"password={SECRET}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"sk-{SECRET}",
    ],
)
def test_secrets_go(line: str) -> None:
    told = redact(f"before\n{line}\nafter")
    assert SECRET not in told and GONE in told
    assert told.count("\n") == line.count("\n") + 2


def test_a_key_of_wandb_and_of_aws_by_their_form() -> None:
    assert redact("wandb: Using key 0123456789abcdef0123456789abcdef01234567 from netrc").endswith(f"{GONE} from netrc")
    assert redact("id AKIA" + "A1B2C3D4E5F6G7H8 used") == f"id {GONE} used"


@pytest.mark.parametrize(
    "line",
    [
        "TOKENIZERS_PARALLELISM=false",
        '{"kind":"step","tokens_per_s":1834.2,"step":7}',
        "pad_token_id: 128001",
        "max_tokens: 4096, keys: [a, b]",
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<51022> with status=12 opcode=0 len=0 vendor err 129",
        "commit 0123456789abcdef0123456789abcdef01234567",
        "basic information: all ranks are here",
        "http://10.0.0.1:8080/path",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert redact(line) == line
