"""Peak memory of one rank, by component, with a band.

The peak is the largest of five moments: loading, the loss at the end of the forward pass, a layer running backward, the
end of the backward pass (all gradients there), and the optimiser step. All are reported by the component they consist
of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.plan import activation, adapter, sharding, state, weights
from jobs.plan.architecture import Architecture
from jobs.plan.workload import Workload

GIB = 2**30
# CUDA context with kernels of recent builds is 0.5-0.9 GiB (stas00/ml-engineering), older eager-loading builds 1.2
# and more
CONTEXT_BYTES = 1.1 * GIB
NCCL_BYTES = (
    1.25 * GIB
)  # first collective: about 1.5 GiB on eight cards with NVLink (stas00/ml-engineering), less on two
RESERVED = 1.10  # reserved over allocated at fixed lengths: 1.02-1.1 in public readings of one run
RESERVED_VARYING = 1.25  # lengths differ, so freed blocks fit the next batch less well
RESERVED_EXPANDABLE = 1.02
# a layer at work over what it keeps: gradients of its values come on top. Fused kernels keep less, so these weigh more
WORKING = {"plain": 1.25, "fused": 1.75}
# half-widths of the band, below and above, as shares of a component: what public code paths differ by
SPREAD = {
    "weights": (0.02, 0.03),
    "activations": (0.15, 0.20),
    "logits": (0.45, 0.10),
    "layer at work": (0.40, 0.30),
    "gather buffers": (0.50, 0.50),
    "step temporaries": (1.00, 0.50),
    "dequantised": (0.80, 0.60),
    "optimizer": (0.02, 0.10),
}


@dataclass(frozen=True, slots=True)
class Component:
    """Bytes of one kind on one rank, and where they come from."""

    name: str
    bytes: float
    why: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory of one rank in bytes. ``components`` are those present at the peak; ``moments`` the five candidate
    peaks.
    """

    components: tuple[Component, ...]
    moments: Mapping[str, float]
    allocated_bytes: float
    reserved_bytes: float
    device_bytes: float
    low_bytes: float  # of the device figure
    high_bytes: float
    allocated_low_bytes: float
    allocated_high_bytes: float
    host_bytes: float  # of offloaded state, per rank
    trainable: int
    parameters: int
    assumptions: tuple[str, ...] = ()

    @property
    def peak(self) -> str:
        """The moment at which the peak is reached."""
        return max(self.moments, key=lambda name: self.moments[name])

    @property
    def by_name(self) -> dict[str, float]:
        return {component.name: component.bytes for component in self.components}


@dataclass(frozen=True, slots=True)
class Parts:
    """Every quantity of one rank in bytes, before it is known which of them meet."""

    weights: float
    adapters: float
    gradients: float
    optimizer: float
    step: float
    gather: float
    dequantised: float
    kept: float
    layer: float
    logits: float
    logits_held: float
    loading: float
    host: float


def parts(shape: Architecture, work: Workload) -> Parts:
    """All byte counts of one rank."""
    cut = sharding.split(work)
    model = work.tensor_parallel * work.pipeline_parallel
    base = weights.total(shape, work) / model
    groups = list(state.groups(shape, work))
    gradients = sum(g.count * g.gradient_bytes for g in groups) / model
    optimizer = sum(g.count * g.optimizer_bytes for g in groups) / model / cut.optimizer
    step = sum(g.count * g.step_bytes for g in groups) / model / cut.optimizer
    adapters = sum(g.count * g.parameter_bytes for g in groups) / model / cut.weights
    gather = sharding.buffers(shape, work, gradients)
    own = gradients / cut.gradients
    if work.in_backward:
        own = min(own, 2.0 * shape.layer_parameters)
    held, host = base / cut.weights, 0.0
    if work.offload != "none":
        host, optimizer, step = optimizer, 0.0, 0.0
    if work.offload == "all":
        host, held, adapters, own = host + held + adapters + own, 0.0, 0.0, 0.0
    if work.optimizer.startswith("paged") and work.offload == "none":
        host = optimizer  # may leave the card under pressure; counted on it all the same
    act = activation.of(shape, work)
    return Parts(
        held, adapters, own, optimizer, step, gather, _dequantised(shape, work), act.kept, act.one_layer, act.logits,
        act.logits_held, held + adapters, host,
    )  # fmt: skip


def _dequantised(shape: Architecture, work: Workload) -> float:
    """Compressed matrices are expanded to 16 bits to be multiplied; autograd holds those of the layer at work.

    DoRA forms the norm of the whole merged matrix in fp32: the matrix and its square (peft#1692).
    """
    extra = 0.0
    if work.quantized and work.kernels == "fused":
        extra += 2.0 * shape.largest_linear
    elif work.quantized:
        dense = sum(x.weights / (shape.experts if x.expert and shape.experts else 1) for x in shape.linears)
        extra += 2.0 * dense
    if (
        work.weight_format == "fp32"
        and work.compute == "16-bit"
        and not work.adapters
        and sharding.split(work).weights == 1
    ):
        # autocast's 16-bit copies live as long as backward needs them: of all layers, or of the one recomputed
        extra += 2.0 * shape.layer_parameters * (1 if work.checkpointing == "full" else shape.layers)
    if work.method == "dora":
        extra += 8.0 * max(x.inputs * x.outputs for x in adapter.targets(shape, work))
    return extra / work.tensor_parallel


def _moments(p: Parts, work: Workload) -> dict[str, float]:
    """Bytes allocated at each candidate peak."""
    static = p.weights + p.adapters + p.optimizer + p.gather + p.dequantised
    # with accumulation gradients survive from one micro-batch to the next; adapters' and sharded ones are small
    waiting = p.gradients if work.adapters or work.deepspeed or (work.accumulation or 1) > 1 else 0.0
    return {
        "loading": p.loading,
        "loss": static + waiting + p.kept + p.logits + (0.5 * p.layer if work.checkpointing != "none" else 0.0),
        "backward": static + waiting + p.kept + p.logits_held + WORKING[work.kernels] * p.layer,
        "end of backward": static + p.gradients + p.layer,
        # DDP's buckets hold the gradients; DeepSpeed's and FSDP's buffers are not given back between backward and step
        "step": p.weights + p.adapters + p.optimizer + p.gradients + p.gather + p.step,
    }


def forecast(shape: Architecture, work: Workload) -> Forecast:
    """The forecast for one rank: what is allocated, reserved by PyTorch's allocator, and taken on the device."""
    p = parts(shape, work)
    moments = _moments(p, work)
    peak = max(moments, key=lambda name: moments[name])
    components = tuple(c for c in _components(p, peak, work) if c.bytes > 0)
    allocated = moments[peak]
    slack = RESERVED_EXPANDABLE if work.expandable_segments else RESERVED_VARYING if work.varying_lengths else RESERVED
    fixed = CONTEXT_BYTES + (NCCL_BYTES if work.cards > 1 else 0.0)
    reserved = allocated * slack
    low, high = _band(components)
    return Forecast(
        (*components, Component("allocator slack", reserved - allocated, f"reserved is about {slack:.2f} x allocated"),
         Component("CUDA and NCCL", fixed, "context, kernels and libraries; NCCL buffers with more than one card")),
        moments, allocated, reserved, reserved + fixed,
        low_bytes=max(0.0, allocated - low) * 1.02 + 0.5 * fixed,
        high_bytes=(allocated + high) * (slack + 0.04) + 1.3 * fixed,
        allocated_low_bytes=max(0.0, allocated - low),
        allocated_high_bytes=allocated + high,
        host_bytes=p.host,
        trainable=adapter.trainable(shape, work),
        parameters=shape.parameters,
        assumptions=shape.assumptions,
    )  # fmt: skip


def _band(components: tuple[Component, ...]) -> tuple[float, float]:
    """Independent uncertainties of the components, added in quadrature."""
    below = sum((c.bytes * SPREAD.get(c.name, (0.0, 0.0))[0]) ** 2 for c in components)
    above = sum((c.bytes * SPREAD.get(c.name, (0.0, 0.0))[1]) ** 2 for c in components)
    return below**0.5, above**0.5


def _components(p: Parts, peak: str, work: Workload) -> list[Component]:
    """The components present at the peak; they sum to the allocated figure."""
    base = [
        Component("weights", p.weights, f"{work.weight_format}; embedding, head and norms stay 16- or 32-bit"),
        Component("adapters", p.adapters, f"{work.method} weights"),
        Component(
            "optimizer", p.optimizer, f"{work.optimizer} values" + (", fp32 master copy" if work.deepspeed else "")
        ),
    ]
    waiting = p.gradients if work.adapters or work.deepspeed or (work.accumulation or 1) > 1 else 0.0
    buffers = [
        Component("gather buffers", p.gather, "layers, embedding and gradients in transit between ranks"),
        Component("dequantised", p.dequantised, "matrices of the layer at work, expanded to multiply"),
    ]
    if peak == "step":
        return [
            *base,
            buffers[0],
            Component("gradients", p.gradients, "all of them"),
            Component("step temporaries", p.step, "copies the optimiser makes while it steps"),
        ]
    if peak == "end of backward":
        return [
            *base,
            *buffers,
            Component("gradients", p.gradients, "all of them"),
            Component("layer at work", p.layer, "one layer's activations"),
        ]
    if peak == "loading":
        return base[:2]
    loss = peak == "loss"
    layer = (0.5 if work.checkpointing != "none" else 0.0) * p.layer if loss else WORKING[work.kernels] * p.layer
    return [
        *base,
        *buffers,
        Component("gradients", waiting, "kept between micro-batches"),
        Component(
            "activations",
            p.kept,
            "layer inputs" if work.checkpointing == "full" else "what the layers keep for backward",
        ),
        Component("layer at work", layer, "one layer recomputed and its gradients"),
        Component("logits", p.logits if loss else p.logits_held, f"{work.loss} loss over the vocabulary"),
    ]
