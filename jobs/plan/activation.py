"""Bytes that a forward pass keeps for the backward pass, counted tensor by tensor as autograd saves them.

Per token, with h hidden, q query width, I intermediate, in 16 bits unless said otherwise:

    RMSNorm      its input in fp32 (4h); where its weight trains, also the normalised value (2h). LayerNorm: its input
    (2h) attention    q, k, v and the output, 2q each: flash and sdpa keep no scores; grouped k and v are repeated to q
    first MLP          gate, activation and up (2I each), or up alone where there is no gate linear       its input, but
    only where its weight trains, carries an adapter or is a 4-bit product of bitsandbytes adapter      dropout keeps a
    copy and a mask of the adapter's input (3 bytes), and the rank-r value

For a trained gated model that is close to the usual T(12h + 4k + 8I) + 8hT. Attention that keeps scores adds 5 a s
(Korthikanti et al. 2022: 34sbh + 5as^2b), and 2 a s more where the scores pass a tanh.
"""

from __future__ import annotations

from dataclasses import dataclass

from jobs.plan import adapter
from jobs.plan.architecture import Architecture, Linear
from jobs.plan.workload import Workload

SELECTIVE_SHARE = (
    0.3  # torch's selective policy keeps attention and every other matrix product: 14.5h of 49h on Llama 3
)
# per logit, unfused: the logits 2, their fp32 copy 4, log-softmax 4, its gradient 4 (transformers' loss; 10-14 in
# public measurements). Chunked: the 16-bit logits and one chunk of the rest. Fused kernels keep the gradient of their
# input only.
LOGIT_BYTES = {"unfused": 14.0, "chunked": 3.0}
LOGITS_HELD = (
    4.0  # bytes per logit that stay alive while the layers run backward: the model's output and its shifted copy
)
# bitsandbytes' 4-bit product keeps its 16-bit input, and cast copies add 0-2 bytes more (public readings): 2 where the
# adapters are 16-bit (litgpt), 4 where PEFT casts to its fp32 adapters
FOUR_BIT_INPUT_BYTES = 3.0
DORA_OUTPUT_BYTES = 4.0  # the base's and the adapter's output, which the magnitude scales
DROPOUT_BYTES = 3.0  # a 16-bit copy and a one-byte mask


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes per rank for one micro-batch."""

    kept: float  # by all layers, at the end of the forward pass
    one_layer: float  # what one layer holds while it runs backward, beyond ``kept``
    logits: float  # logits and their loss, at their peak
    logits_held: float  # of these, alive while the layers run backward


def per_token(shape: Architecture, work: Workload) -> float:
    """Bytes one layer keeps per token without checkpointing."""
    if work.kernels == "fused":
        return _fused(shape)
    wide = 2.0 if work.compute == "fp32" else 1.0
    others = 8.0 * shape.query_width + _scores(shape, work) + _mlp(shape) + _inputs(shape, work)
    return _norms(shape, work) + wide * others


def _fused(shape: Architecture) -> float:
    """Fused kernels: norms keep their 16-bit input, attention q, k, v and output, the MLP gate and up; adapters no
    copies.
    """
    attention = 4.0 * shape.query_width + 4.0 * shape.kv_width
    width = sum(x.inputs * _copies(shape, x) for x in shape.linears if x.role == "down")
    return 2.0 * shape.norms + attention + width * (4.0 if shape.gated else 2.0) + 4.0 * shape.hidden


def _scores(shape: Architecture, work: Workload) -> float:
    bytes_per_score = 7.0 if shape.score_cap else 5.0 if work.attention == "eager" else 0.0
    return bytes_per_score * shape.heads * work.seq_len


def _norms(shape: Architecture, work: Workload) -> float:
    if work.compute == "fp32":  # the upcast of an RMSNorm is no copy then
        return float(shape.norms * (8 if shape.rms_norm and not work.adapters else 4))
    bytes_per_value = (4 if work.adapters else 6) if shape.rms_norm else 2
    return float(shape.norms * bytes_per_value)


def _copies(shape: Architecture, linear: Linear) -> int:
    """How often one token passes such a matrix: once, or through every chosen expert."""
    return max(1, shape.active_experts) if linear.expert else 1


def _mlp(shape: Architecture) -> float:
    width = sum(x.inputs * _copies(shape, x) for x in shape.linears if x.role == "down")
    return width * (6.0 if shape.gated else 2.0)


def _inputs(shape: Architecture, work: Workload) -> float:
    """Inputs that matrix products keep, and what adapters add."""
    inputs = sum(x.inputs * _copies(shape, x) for x in shape.linears if not x.shares)
    if not work.adapters:
        return 2.0 * inputs
    carried = list(adapter.targets(shape, work))
    extra = sum(DROPOUT_BYTES * x.inputs + 2.0 * work.rank for x in carried)
    if work.method == "dora":
        extra += sum(DORA_OUTPUT_BYTES * x.outputs for x in carried)
    if work.weight_format not in ("nf4", "nf4-dq"):
        return extra
    uncast = work.compute == "fp32" or work.adapter_bytes == 2  # one dtype throughout, so no cast copies
    return extra + inputs * (2.0 if uncast else FOUR_BIT_INPUT_BYTES)


def of(shape: Architecture, work: Workload) -> Activations:
    """Activations of one rank for one micro-batch."""
    whole = work.tokens * per_token(shape, work) / work.tensor_parallel
    width = 4.0 if work.compute == "fp32" else 2.0
    boundary = width * work.tokens * shape.hidden / work.tensor_parallel
    layers = shape.layers / work.pipeline_parallel
    if work.checkpointing == "full":
        kept, one = (2 * boundary if work.offload_activations else layers * boundary), whole
    elif work.checkpointing == "selective":
        kept, one = layers * (boundary + SELECTIVE_SHARE * whole), whole
    else:
        kept, one = layers * whole, 0.1 * whole  # gradients of one layer's values, while the layers above are freed
    if work.loss == "fused":
        hidden = width * work.tokens * shape.hidden  # in fp32 while it is summed over the vocabulary, then in 16 bits
        return Activations(kept, one, 2 * hidden, hidden)
    logits = work.tokens * shape.vocab / work.tensor_parallel
    each = LOGIT_BYTES[work.loss] + (4.0 if shape.logit_cap and work.loss == "unfused" else 0.0)
    return Activations(kept, one, logits * each, logits * min(LOGITS_HELD, each))
