"""Torch's own words about full memory, as each of its versions says them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.oom import OutOfMemory, read
from jobs.plan import relief
from jobs.spec import Spec

GIB = 1 << 30
MIB = 1 << 20
V1 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.63 GiB already "
    "allocated; 13.56 MiB free; 9.69 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
V21 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 172.00 MiB. GPU 2 has a total capacty of 7.79 "
    "GiB of which 32.00 MiB is free. Including non-PyTorch memory, this process has 7.40 GiB memory in use. Of the "
    "allocated memory 7.06 GiB is allocated by PyTorch, and 141.54 MiB is reserved by PyTorch but unallocated."
)
V213 = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.42 GiB. GPU 3 has a total capacity of "
    "79.11 GiB of which 1.05 GiB is free. Process 4711 has 20.00 GiB memory in use. Including non-PyTorch memory, this "
    "process has 57.99 GiB memory in use. 60.00 GiB allowed; Of the allocated memory 51.90 GiB is allocated by "
    "PyTorch, with 512.00 MiB allocated in private pools (e.g., CUDA Graphs), and 4.71 GiB is reserved by PyTorch but "
    "unallocated."
)
CONTAINER = (
    "CUDA out of memory. Tried to allocate 1.25 GiB. GPU 1 has a total capacity of 93.02 GiB of which 1.18 GiB is "
    "free. Process 2752205 has 91.82 GiB memory in use. Of the allocated memory 90.63 GiB is allocated by PyTorch, "
    "and 120.54 MiB is reserved by PyTorch but unallocated."
)
CPU = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 274877906944 bytes. Error code 12 (Cannot allocate memory)"
)


def test_brackets_of_torch_1() -> None:
    found = read(V1)
    assert found is not None
    assert (found.gpu, found.wanted, found.free) == (0, 20 * MIB, round(13.56 * MIB))
    assert found.unallocated == pytest.approx(0.06 * GIB, rel=0.01) and found.fragmented
    assert "61.4 MiB reserved but unallocated (fragmented)" in found.words()


def test_sentences_of_torch_2_1() -> None:
    found = read(V21)
    assert found is not None
    assert (found.gpu, found.total, found.own) == (2, round(7.79 * GIB), round(7.40 * GIB))
    assert found.short == 140 * MIB and found.others == ()


def test_sentences_of_torch_2_13_with_pools_and_other_processes() -> None:
    found = read(f"Traceback …\n{V213}")
    assert found is not None
    assert found.others == ((4711, 20 * GIB),)
    assert found.pools == 512 * MIB and found.allowed == 60 * GIB
    assert found.words() == (
        "GPU 3 ran out of memory: asked for 3.42 GiB, 1.05 GiB of 79.1 GiB free; 51.9 GiB allocated, "
        "4.71 GiB reserved but unallocated (fragmented), 512 MiB in private pools, 20 GiB held by pid 4711"
    )


def test_in_a_container_the_one_process_named_may_be_this_one() -> None:
    found = read(CONTAINER)
    assert found is not None and found.others == () and not found.fragmented


def test_host_and_messages_without_figures() -> None:
    found = read(CPU)
    assert found is not None and found.host and found.wanted == 256 * GIB and "this host ran out" in found.words()
    assert read("RuntimeError: CUDA error: out of memory") == OutOfMemory(host=False)
    assert read("CUDA error: an illegal memory access was encountered") is None


def test_what_each_line_of_the_spec_saves(tmp_path: Path) -> None:
    text = (
        "model: Qwen/Qwen2.5-7B\ndata: {path: ~/d.jsonl, max_length: 4096}\nmethod: lora\n"
        "train: {batch_size: 4, steps: 10}\n"
    )
    found = relief.of(Spec.parse(text), tmp_path, cuda=True)
    assert found[0].setting == "train.gradient_checkpointing: true" and found[0].saved_bytes > GIB
    saved = [one.saved_bytes for one in found]
    assert saved == sorted(saved) and any(one.setting.startswith("train.batch_size: 1") for one in found)
