"""What triage can be given: archives, streams, encodings, and things made to break it."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from agent.triage import triage
from agent.triage.source import SourceError
from agent.triage.verdict import Verdict
from tests.triage_grading import CORPUS

CASE = CORPUS / "t041"
KIND, NODE = "gpu.fell-off-bus", "gpu-c08"


def right(verdict: Verdict) -> bool:
    return [f.kind for f in verdict.faults][:1] == [KIND] and verdict.faults[0].culprit.nodes == (NODE,)


def logs() -> list[Path]:
    return sorted(p for p in CASE.iterdir() if p.name != "truth.yaml")


def test_gzip_and_zstd_files(tmp_path: Path) -> None:
    for path in logs():
        packed = tmp_path / (path.name + ".gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
    assert right(triage([tmp_path]))
    packed = tmp_path / f"dmesg_{NODE}.txt.gz"
    packed.unlink()
    source = next(p for p in logs() if NODE in p.name)
    program = shutil.which("zstd")
    assert program, "the zstd program is part of what these tests need"
    subprocess.run([program, "-q", str(source), "-o", str(tmp_path / f"{source.name}.zst")], check=True, timeout=30)
    assert right(triage([tmp_path]))


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tgz", "tar.xz"])
def test_archives(suffix: str, tmp_path: Path) -> None:
    mode = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.xz": "w:xz"}[suffix]
    archive = tmp_path / f"incident.{suffix}"
    with tarfile.open(archive, mode) as out:  # type: ignore[call-overload]
        for path in logs():
            out.add(path, f"incident/{path.name}")
    verdict = triage([archive])
    assert right(verdict)
    assert verdict.faults[0].evidence[0].file.endswith(f"dmesg_{NODE}.txt")


def test_archive_in_archive_and_names_that_climb(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as out:
        for path in logs():
            entry = tarfile.TarInfo(f"../../../../{tmp_path.name}-climbed/{path.name}")
            entry.size = path.stat().st_size
            out.addfile(entry, io.BytesIO(path.read_bytes()))
    outer = tmp_path / "outer.tar"
    with tarfile.open(outer, "w") as out:
        entry = tarfile.TarInfo("inner.tgz")
        entry.size = len(inner.getvalue())
        out.addfile(entry, io.BytesIO(inner.getvalue()))
        link = tarfile.TarInfo("link.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        out.addfile(link)
    before = set(tmp_path.parent.iterdir())
    assert right(triage([outer]))
    assert set(tmp_path.parent.iterdir()) == before


def test_standard_input() -> None:
    text = b"\n".join(b"==> " + p.name.encode() + b" <==\n" + p.read_bytes() for p in logs())
    assert right(triage([], stdin=io.BytesIO(text)))


def test_several_paths_and_symbolic_links_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to(logs()[0])
    assert triage([tmp_path]).verdict == "healthy"
    assert right(triage([*logs()]))


def test_a_path_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="not found; give a folder"):
        triage([tmp_path / "nothing"])


def test_gbk_text_and_colour(tmp_path: Path) -> None:
    text = "\x1b[31m训练器 - 进程 3 内存不足\x1b[0m\r\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried\r\n"
    (tmp_path / "job.log").write_bytes(text.encode("gbk"))
    verdict = triage([tmp_path])
    assert verdict.faults[0].kind == "app.rank-oom" and verdict.faults[0].culprit.ranks == (3,)


def test_damaged_archives_are_noted(tmp_path: Path) -> None:
    whole = gzip.compress(b"[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n" * 2000)
    (tmp_path / "cut.log.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "not.tar").write_bytes(b"this is no archive" * 100)
    verdict = triage([tmp_path])
    assert any("cut.log.gz" in n for n in verdict.notes) and any("not.tar" in n for n in verdict.notes)


def test_a_bomb_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.triage.source.MOST_EXPANDED", 4 << 20)
    (tmp_path / "bomb.log.gz").write_bytes(gzip.compress(b"\0" * 10 + b"x" * (64 << 20)))
    (tmp_path / "lines.log.gz").write_bytes(gzip.compress(b"Error: x\n" * 2_000_000))
    verdict = triage([tmp_path])
    assert verdict.lines < 600_000


def test_deep_nesting_of_archives_is_refused(tmp_path: Path) -> None:
    content, name = b"[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n", "job.log"
    for level in range(6):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as out:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
        content, name = packed.getvalue(), f"level{level}.tar"
    (tmp_path / name).write_bytes(content)
    assert any("nested deeper" in n for n in triage([tmp_path]).notes)


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    for name in ("a.log", "b.txt", "c.gz", "d.tar", "e.json", "f.csv"):
        (tmp_path / name).write_bytes(dice.randbytes(20_000))
    noise = "".join(chr(dice.choice([9, 10, 13, 27, 32, *range(33, 0x250)])) for _ in range(20_000))
    (tmp_path / "text.log").write_text(noise, encoding="utf-8")
    assert triage([tmp_path]).verdict in ("healthy", "undetermined", "fault")


@pytest.mark.parametrize("seed", range(4))
def test_true_lines_torn_to_pieces(seed: int, tmp_path: Path) -> None:
    """Pieces of true messages in any order: whatever the verdict, there is one."""
    dice = random.Random(seed)
    lines = [
        ln
        for f in sorted(CORPUS.rglob("*.*"))[seed::23]
        if f.name != "truth.yaml"
        for ln in f.read_bytes().split(b"\n")
    ]
    torn = [ln[dice.randrange(len(ln) + 1) :][: dice.randrange(1, 300)] for ln in dice.choices(lines, k=1500)]
    (tmp_path / "job.log").write_bytes(b"\n".join(torn))
    assert triage([tmp_path]).lines > 0


def test_one_endless_line(tmp_path: Path) -> None:
    with (tmp_path / "job.log").open("wb") as file:
        for _ in range(100):
            file.write(b"NCCL WARN Error: " * 61_680)
        file.write(b"\n[rank2]: torch.OutOfMemoryError: CUDA out of memory.\n")
    verdict = triage([tmp_path])
    assert verdict.faults[0].culprit.ranks == (2,)


def test_nested_json_is_refused_quietly(tmp_path: Path) -> None:
    (tmp_path / "ras.json").write_text('{"missing_ranks": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert triage([tmp_path]).verdict == "healthy"


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return (os.system, ("touch harmed",))


def test_a_pickle_that_would_run_code_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": [Harmful()]}))
    assert triage([tmp_path]).verdict == "healthy"
    assert not (tmp_path / "harmed").exists()


def dump(seq: int, op: str = "nccl:all_reduce") -> bytes:
    entries = [
        {
            "collective_seq_id": s,
            "process_group": ["0", "default_pg"],
            "profiling_name": op,
            "input_sizes": [[4]],
            "state": "completed",
        }
        for s in range(1, seq + 1)
    ]
    return pickle.dumps({"version": "2.9", "entries": entries})


def test_flight_recorder_dumps_name_the_rank_that_is_behind(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dump(40 if rank != 2 else 37))
    (tmp_path / "job.log").write_text(
        "".join(
            f"[rank{r}]:[E1102 03:14:15.9 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught "
            f"collective operation timeout: "
            "WorkNCCL(SeqNum=40, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) "
            "ran for 600031 milliseconds\n"
            for r in (0, 1, 3)
        )
    )
    verdict = triage([tmp_path])
    assert verdict.faults[0].kind == "nccl.collective-mismatch" and verdict.faults[0].culprit.ranks == (2,)
