"""`tunedeck plan` as a user meets it: answers, exit status, and one clear error for each bad input."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.__main__ import main
from console.commands import reach
from console.session import Session
from jobs.plan import preflight
from jobs.plan.correction import Correction
from jobs.plan.refusal import PlanError
from jobs.spec import Spec
from tests.fakes.sitting import node_state, sitting

ROOT = Path(__file__).resolve().parent.parent
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "vocab_size": 128,
}  # fmt: skip


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(["plan", *argv])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_a_plan_names_components_cards_speed_and_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(
        capsys, "--model", "meta-llama/Llama-3.1-8B-Instruct", "--card", "A100 80GB", "--samples", "1000"
    )
    assert status == 0
    for word in (
        "weights",
        "logits",
        "allocated",
        "reserved",
        "band",
        "fits",
        "minimum: 1 ×",
        "tokens/s",
        " h (",
        "Knobs",
        "Claimed",
    ):
        assert word in out
    assert "\x1b" not in out


def test_json_holds_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "--model", "Qwen2.5-7B", "--method", "qlora", "--card", "3090", "--json")
    record = json.loads(out)
    parts = record["memory"]["components"]
    assert status == 0
    assert record["workload"]["weight_format"] == "nf4-dq"
    assert sum(p["bytes"] for p in parts) == pytest.approx(record["memory"]["device_bytes"])
    assert record["memory"]["low_bytes"] < record["memory"]["device_bytes"] < record["memory"]["high_bytes"]
    assert record["cards"]["RTX 3090"] == record["fit"]["answer"]


def test_what_does_not_fit_exits_1_and_can_be_made_to_fit(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (
        "--model",
        "Llama-2-7B",
        "--micro-batch",
        "8",
        "--seq-len",
        "4096",
        "--checkpointing",
        "none",
        "--card",
        "RTX4090",
    )
    assert said(capsys, *asked)[0] == 1
    status, out, _ = said(capsys, *asked, "--make-it-fit", "--json")
    assert status == 0
    assert [change["text"] for change in json.loads(out)["changes"]]


def test_best_chooses_the_most_faithful_method(capsys: pytest.CaptureFixture[str]) -> None:
    def method(*argv: str) -> str:
        status, out, _ = said(capsys, "--best", "--json", *argv)
        assert status == 0
        chosen: str = json.loads(out)["workload"]["method"]
        return chosen

    assert method("--model", "Qwen2.5-0.5B", "--card", "A100 80GB") == "full"
    assert method("--model", "Llama-3.1-8B", "--card", "A100 40GB") == "lora"
    assert method("--model", "Llama-3.1-70B", "--card", "A100 80GB") == "qlora"


def test_a_spec_file_is_planned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LLAMA))
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"model: {model}\ndata: {{path: x.jsonl, max_length: 64}}\nlora: {{rank: 4}}\ntrain: {{batch_size: 2}}\n",
        encoding="utf-8",
    )
    status, out, _ = said(capsys, str(spec), "--json")
    record = json.loads(out)
    assert status == 0
    # 4 (d_in + d_out) for each of seven matrices in two layers
    assert record["model"]["trainable"] == 2 * 4 * (4 * (64 + 64) + 3 * (64 + 96))
    assert record["workload"]["seq_len"] == 64
    assert record["workload"]["micro_batch"] == 2


def test_lengths_give_padding(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.txt"
    lengths.write_text("100\n100\n100\n900\n")
    asked = (
        "--model",
        "Llama-3.1-8B",
        "--card",
        "A100 80GB",
        "--micro-batch",
        "4",
        "--lengths",
        str(lengths),
        "--json",
    )
    padded = json.loads(said(capsys, *asked)[1])["speed"]
    packed = json.loads(said(capsys, *asked, "--packed")[1])["speed"]
    assert padded["tokens"] == packed["tokens"] == 1200
    # the longest of four drawn is 900 with probability 1 - (3/4)^4
    assert padded["useful_share"] == pytest.approx(300 / (900 - 800 * 0.75**4))
    assert packed["useful_share"] == 1


def test_a_table_is_answered_line_by_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "id,model,method,gpu_model,seq_len\na,Llama-3.1-8B,lora,A100-80GB,2048\nb,Llama-3.1-8B,lora,A100-80GB,many\n"
    )
    status, out, _ = said(capsys, "--batch", str(table))
    first, second = map(json.loads, out.splitlines())
    assert status == 1
    assert (
        first["id"] == "a" and first["fits"] and first["peak_gib"]["device"] > 16 and first["tokens_per_s_per_gpu"] > 0
    )
    assert "seq_len is 'many'" in second["error"]


def test_a_claim_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "--claim", "70B LoRA on 4 x RTX3090")
    assert status == 1
    assert "contradicted" in out and "141 GB" in out


@contextmanager
def lent(session: Session) -> Iterator[Session]:
    yield session


@pytest.mark.parametrize(("gpus", "status"), [(2, 0), (0, 2)])
def test_the_cards_of_a_node_are_planned_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, gpus: int, status: int
) -> None:
    sat = sitting("node1", "node2", runs=False)
    sat.session.start()
    monkeypatch.setattr(reach, "opened", lambda _args: lent(sat.session))
    for link in sat.links.values():
        link.live()
        link.tell(node_state("node1", gpus))
    found, out, err = said(capsys, "--model", "Qwen2.5-0.5B", "--for", "node1", "--json")
    sat.session.close()
    assert found == status, err
    if gpus:
        record = json.loads(out)
        assert record["card"] == {"name": "SIMULATED H100 SXM 80GB", "memory_bytes": 80 * 2**30}
        assert (record["workload"]["cards"], record["workload"]["sharding"]) == (2, "ddp")
    else:
        assert "node1 has no cards" in err and "--card" in err


def test_a_plan_in_conversation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.StringIO("micro_batch 64\nnonsense\nmethd x\nrank\nfit\nsharding zero3\ncards 8\nq\n")
    )
    status, out, _ = said(capsys, "-i", "--model", "Llama-3.1-8B", "--card", "RTX4090")
    assert status == 0
    assert (
        "does not fit" in out
        and "'nonsense' is not understood" in out
        and "did you mean method?" in out
        and "rank to what?; it is 16" in out
        and "Changed so that it fits" in out
        and "8 × RTX 4090" in out
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "no model"),
        (("--model", "no-such-model"), "is not known"),
        (("--model", "lama-3.1-8x"), "did you mean"),
        (("--model", "Llama-3.1-8B", "--card", "GTX 9999"), "is not known"),
        (("--model", "Llama-3.1-8B", "--cards", "0"), "cards is 0"),
        (("--model", "Llama-3.1-8B", "--seq-len", "99999999999"), "seq_len is"),
        (("--model", "Llama-3.1-8B", "--micro-batch", "-1"), "micro_batch is -1"),
        (("--model", "Llama-3.1-8B", "--method", "full", "--weights", "nf4"), "compressed weights cannot train"),
        (("--model", "Llama-3.1-8B", "--method", "qlora", "--weights", "bf16"), "qlora needs"),
        (("--model", "Llama-3.1-8B", "--offload", "all"), "without sharding"),
        (("--model", "Llama-3.1-8B", "--cards", "3", "--tensor-parallel", "2"), "cannot be split"),
        (("--model", "Llama-3.1-8B", "--targets", "wrong_proj"), "has no module wrong_proj"),
        (("--model", "Llama-3.1-8B", "--best"), "without cards"),
        (("--model", "Llama-3.1-8B", "--card", "T4", "--samples", "-5"), "both must be positive"),
        (("--size", "huge"), "write it like 7B"),
        (("--size", "99999999B"), "10,000B"),
        (("--model", "/nowhere/at/all"), "No such file"),
        (("/nowhere/spec.yaml",), "cannot be read"),
        (("--batch", "/nowhere/table.csv"), "cannot be read"),
        (("--claim", "cheap and good"), "nothing to compute"),
        (("--model", "Llama-3.1-8B", "--card", "T4", "--lengths", "/nowhere"), "No such file"),
    ],
)
def test_bad_input_gives_one_clear_error(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    status, out, err = said(capsys, *argv)
    assert status == 2
    assert message in err
    assert err.startswith("tunedeck: ") and "Traceback" not in err and out == ""


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "no JSON object"),
        ("{}", "has no hidden_size"),
        (json.dumps({**LLAMA, "hidden_size": -4}), "hidden_size = -4"),
        (json.dumps({**LLAMA, "num_attention_heads": 7}), "not a multiple"),
        (json.dumps({k: v for k, v in LLAMA.items() if k != "vocab_size"}), "has no vocab_size"),
    ],
)
def test_a_broken_config_gives_one_clear_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / "config.json").write_text(config)
    status, _, err = said(capsys, "--model", str(tmp_path))
    assert status == 2
    assert message in err


def test_an_unknown_family_says_what_it_assumes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "brand_new"}))
    assert "a Llama layout is assumed" in said(capsys, "--model", str(tmp_path))[1]


def test_it_loads_no_torch() -> None:
    code = (
        "import sys; from console.__main__ import main; main(['plan', '--size', '7B'])\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Llama-like" in done.stdout


def test_launch_gets_a_verdict_with_what_would_fit(tmp_path: Path) -> None:
    text = "model: meta-llama/Llama-3.1-8B\ndata: {path: x.jsonl, max_length: 4096}\ntrain: {batch_size: 4}\n"
    spec = Spec.parse(text)
    roomy = preflight.check(spec, tmp_path, 80 * 2**30)
    tight = preflight.check(spec, tmp_path, 24 * 2**30)
    assert not tight.verdict.fits and "does not fit" in tight.message and "checkpointing" in tight.hint
    assert roomy.forecast_bytes == tight.forecast_bytes
    learnt = Correction(1.5, 4)
    assert preflight.check(spec, tmp_path, 24 * 2**30, learnt).forecast_bytes == 1.5 * tight.forecast_bytes
    with pytest.raises(PlanError, match="is not known"):
        preflight.check(Spec.parse(text.replace("meta-llama/Llama-3.1-8B", "some/thing")), tmp_path, 24 * 2**30)
