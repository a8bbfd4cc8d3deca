"""The shape of a decoder-only transformer: every weight matrix a layer holds, and how many of each.

Byte counts elsewhere are sums over these matrices. Shapes come from a transformers ``config.json`` (see ``families``)
or, where only a table row is known, from the combination of usual layouts whose size matches the stated parameter
count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from jobs.plan.refusal import PlanError

HEAD_DIMS = (64, 128, 256)  # what published models use where it is not hidden / heads
EXPERT_COUNTS = (4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Linear:
    """One weight matrix of a layer: ``y = x W + b`` with W of ``inputs x outputs``; ``count`` such matrices per
    layer.
    """

    name: str  # as transformers names the module: q_proj, gate_proj, query_key_value ...
    inputs: int
    outputs: int
    bias: bool = False
    count: int = 1
    expert: bool = False  # a routed expert: one fused tensor in transformers, so adapters for "all linear" pass it by
    shares: bool = False  # reads the same tensor as the matrix before it
    role: str = ""  # "qkv", "out", "up" (gate too), "down"

    @property
    def weights(self) -> int:
        """Elements of all such matrices in one layer, without biases."""
        return self.inputs * self.outputs * self.count

    @property
    def biases(self) -> int:
        return self.outputs * self.count if self.bias else 0


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder. ``hidden`` h, ``layers`` L, ``heads`` a, ``kv_heads``, ``head_dim`` d, ``intermediate`` I,
    ``vocab`` V.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    linears: tuple[Linear, ...]  # of one layer
    norms: int  # norm parameters of one layer
    tied: bool = False  # the head shares the embedding's weights
    gated: bool = True
    rms_norm: bool = True  # upcasts its input to fp32; LayerNorm kernels do not
    learned_positions: int = 0
    final_norm: int = 0
    head_bias: bool = False
    experts: int = 0
    active_experts: int = 0
    max_positions: int | None = None
    score_cap: bool = False  # attention scores pass a tanh: no flash kernel of PyTorch does that
    logit_cap: bool = False  # the logits pass a tanh
    assumptions: tuple[str, ...] = ()

    def untied(self) -> Architecture:
        """As held by training code that gives the head weights of its own, whatever the model shares."""
        return replace(self, tied=False)

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def embedding_parameters(self) -> int:
        """Token and learned position tables."""
        return (self.vocab + self.learned_positions) * self.hidden

    @property
    def head_parameters(self) -> int:
        """0 where the head is tied to the embedding."""
        return (0 if self.tied else self.vocab * self.hidden) + (self.vocab if self.head_bias else 0)

    @property
    def linear_weights(self) -> int:
        """Elements of every layer's matrices: what 4- and 8-bit formats compress."""
        return self.layers * sum(linear.weights for linear in self.linears)

    @property
    def small_parameters(self) -> int:
        """Norms and biases."""
        return self.layers * (self.norms + sum(linear.biases for linear in self.linears)) + self.final_norm

    @property
    def parameters(self) -> int:
        return self.embedding_parameters + self.head_parameters + self.linear_weights + self.small_parameters

    @property
    def layer_parameters(self) -> int:
        return sum(linear.weights + linear.biases for linear in self.linears) + self.norms

    @property
    def largest_linear(self) -> int:
        """Elements of the largest single matrix of a layer (one expert at a time)."""
        return max(linear.inputs * linear.outputs for linear in self.linears)

    @property
    def active_linear_weights(self) -> int:
        """Elements of layer matrices that one token passes: routed experts count only as far as they are chosen."""
        share = self.active_experts / self.experts if self.experts else 1.0
        return round(self.layers * sum(x.weights * (share if x.expert else 1.0) for x in self.linears))

    def adapted(self) -> Iterator[Linear]:
        """Matrices that an adapter for "all linear" layers reaches."""
        return (linear for linear in self.linears if not linear.expert)


def plain_layer(
    hidden: int, query: int, kv: int, intermediate: int, gated: bool, experts: int = 0, qkv_bias: bool = False
) -> tuple[Linear, ...]:
    """Matrices of one layer in the layout Llama made common; non-gated layers have no ``gate_proj``."""
    n, expert = (experts, True) if experts else (1, False)
    gate = (Linear("gate_proj", hidden, intermediate, count=n, expert=expert, role="up"),) if gated else ()
    router = (Linear("router", hidden, experts, expert=True),) if experts else ()
    return (
        Linear("q_proj", hidden, query, qkv_bias, role="qkv"),
        Linear("k_proj", hidden, kv, qkv_bias, shares=True, role="qkv"),
        Linear("v_proj", hidden, kv, qkv_bias, shares=True, role="qkv"),
        Linear("o_proj", query, hidden, role="out"),
        *router,
        *gate,
        Linear("up_proj", hidden, intermediate, count=n, expert=expert, shares=gated, role="up"),
        Linear("down_proj", intermediate, hidden, count=n, expert=expert, role="down"),
    )


def from_counts(
    name: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    intermediate: int,
    vocab: int,
    parameters: float | None = None,
) -> Architecture:
    """The usual layout nearest to ``parameters``: gated or not, tied or not, head size, number of experts.

    Without a parameter count a gated, untied layout is assumed, and said. Raises PlanError where a number is not
    positive.
    """
    numbers = {"hidden": hidden, "layers": layers, "heads": heads, "intermediate": intermediate, "vocab": vocab}
    for field, value in numbers.items():
        if value <= 0:
            raise PlanError(f"{name}: {field} is {value}", "give a positive number")
    if not parameters:
        made = _layout(name, hidden, layers, heads, kv_heads, hidden // heads, intermediate, vocab, True, False, 0)
        return _with_assumption(made, "no parameter count given: gated MLP and an untied head assumed")
    own = hidden // heads
    dims = (own, *(d for d in HEAD_DIMS if d != own))
    best, miss = None, float("inf")
    for gated, tied, dim in product((True, False), (False, True), dims):
        made = _layout(name, hidden, layers, heads, kv_heads, dim, intermediate, vocab, gated, tied, 0)
        error = abs(made.parameters / parameters - 1)
        if error < miss - 1e-3:  # the first of equals: the plain layout wins
            best, miss = made, error
    if miss > 0.15:
        for experts, tied, dim in product(EXPERT_COUNTS, (False, True), dims):
            made = _layout(name, hidden, layers, heads, kv_heads, dim, intermediate, vocab, True, tied, experts)
            error = abs(made.parameters / parameters - 1)
            if error < miss - 1e-3:
                best, miss = made, error
    assert best is not None
    if best.experts:
        best = _with_assumption(
            best, f"{best.experts} experts, {best.active_experts} active, read off the parameter count"
        )
    return best if miss <= 0.15 else _with_assumption(best, f"the shape makes {best.parameters / 1e9:.2f}B parameters")


def _layout(
    name: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    vocab: int,
    gated: bool,
    tied: bool,
    experts: int,
) -> Architecture:
    linears = plain_layer(hidden, heads * head_dim, kv_heads * head_dim, intermediate, gated, experts)
    return Architecture(
        name, hidden, layers, heads, kv_heads, head_dim, intermediate, vocab, linears,
        norms=2 * hidden, tied=tied, gated=gated, rms_norm=gated, final_norm=hidden,
        experts=experts, active_experts=min(experts, 4 if experts >= 32 else 2),
    )  # fmt: skip


def _with_assumption(made: Architecture, text: str) -> Architecture:
    return replace(made, assumptions=(*made.assumptions, text))


def from_size(name: str, parameters: float) -> Architecture:
    """A Llama-like shape of the given size, for a model of which only the size is known (stated as an assumption).

    P = 12 L h^2 with h = 128 L (Kaplan et al. 2020 find shape hardly matters at a given size) and a 32k vocabulary.
    """
    if not 1e6 <= parameters <= 1e13:
        raise PlanError(f"{name}: {parameters:g} parameters", "give a size between 1M and 10,000B")
    layers = max(2, round((parameters / (12 * 128**2)) ** (1 / 3)))
    hidden = max(128, round((parameters / (12 * layers)) ** 0.5 / 128) * 128)
    heads = max(1, hidden // 128)
    inner = round(8 * hidden / 3 / 64) * 64
    made = _layout(name, hidden, layers, heads, heads, hidden // heads, inner, 32000, True, False, 0)
    return _with_assumption(
        made, f"only the size is known: a Llama-like shape of {made.parameters / 1e9:.1f}B is assumed"
    )
