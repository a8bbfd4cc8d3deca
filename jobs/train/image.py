"""Tensors as a safetensors file that lies in host memory: filled by one copy, written as it is.

Layout: https://huggingface.co/docs/safetensors (8 bytes header length, JSON header, data without holes).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import torch

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT_BYTES = 8

Tensors = Mapping[str, torch.Tensor]


def size_bytes(tensors: Tensors) -> int:
    """Bytes of data, without the header."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _order(tensors: Tensors) -> list[str]:
    """Wide types first: every tensor then begins at a multiple of its element's size without holes."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def header(tensors: Tensors) -> bytes:
    at, entries = 0, {}
    for name in _order(tensors):
        tensor = tensors[name]
        end = at + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return len(text).to_bytes(8, "little") + text


def chunks(tensors: Tensors) -> Iterator[bytes | memoryview]:
    """The file straight from the tensors, one after another: for states that host memory cannot stage."""
    yield header(tensors)
    for name in _order(tensors):
        flat = tensors[name].detach().reshape(-1).cpu()
        if flat.numel():
            yield memoryview(flat.view(torch.uint8).numpy())


class Image:
    """Room for tensors of these names, types and shapes. Made once, filled at each snapshot."""

    def __init__(self, like: Tensors, pinned: bool) -> None:
        self._header = header(like)
        self._pool = torch.empty(size_bytes(like), dtype=torch.uint8, pin_memory=pinned)
        self.tensors: dict[str, torch.Tensor] = {}
        at = 0
        for name in _order(like):
            tensor = like[name]
            end = at + math.prod(tensor.shape) * tensor.element_size()
            self.tensors[name] = self._pool[at:end].view(tensor.dtype).view(tensor.shape)
            at = end

    def fits(self, tensors: Tensors) -> bool:
        return self.tensors.keys() == tensors.keys()

    def fill(self, tensors: Tensors) -> None:
        """Copies; on CUDA the copies have only been started when this returns."""
        if self.tensors:
            names = list(tensors)
            torch._foreach_copy_([self.tensors[name] for name in names], [tensors[name] for name in names], True)

    def chunks(self) -> Iterator[bytes | memoryview]:
        yield self._header
        if self._pool.numel():
            yield memoryview(self._pool.numpy())
