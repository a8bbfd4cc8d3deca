"""All of a training that the next step depends on: taken out of a Trainer, and put back to the bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import Trainer

from jobs.failure import JobError
from jobs.train import randomness
from jobs.train.image import Tensors
from jobs.train.randomness import Drawn
from jobs.train.stream import Stream


@dataclass(frozen=True, slots=True)
class Course:
    """What all ranks share besides tensors; `position` counts examples, see stream.py."""

    step: int
    position: int
    groups: list[dict[str, Any]]
    scheduler: dict[str, Any]


class TrainingState:
    """Window on a Trainer's weights and optimizer by parameter name. Valid once `train()` has prepared it."""

    def __init__(self, trainer: Trainer, stream: Stream, device: str) -> None:
        self._trainer, self._stream, self._device = trainer, stream, device
        self._weights = trained(trainer.model)
        self._names = {id(value): name for name, value in self._weights.items()}

    @property
    def _optimizer(self) -> Any:
        return getattr(self._trainer.optimizer, "optimizer", self._trainer.optimizer)

    def weights(self) -> Tensors:
        """What trains: adapter weights only where only those do."""
        # detached anew each time: wrapping a model for several ranks may give its parameters other storage
        return {name: value.detach() for name, value in self._weights.items()}

    def still(self) -> Tensors:
        """Weights that stay as they are until the optimizer steps: buffers, which a forward pass may change, copied."""
        live = self.weights()
        return {
            name: value if isinstance(self._weights[name], torch.nn.Parameter) else value.clone()
            for name, value in live.items()
        }

    def moments(self) -> dict[str, torch.Tensor]:
        """Optimizer state as ``PARAMETER.KEY``; empty before the first step."""
        return {
            f"{self._names[id(parameter)]}.{key}": value
            for parameter, entries in self._optimizer.state.items()
            for key, value in entries.items()
        }

    def course(self) -> Course:
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self._groups()]
        scheduler = dict(self._trainer.lr_scheduler.state_dict())
        return Course(self._trainer.state.global_step, self._stream.position, groups, scheduler)

    def _groups(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._optimizer.param_groups
        return found

    def drawn(self) -> Drawn:
        return randomness.capture(self._device)

    def restore(self, weights: Tensors, moments: Tensors, course: Course, drawn: Drawn | None) -> None:
        """Goes back to a state. `drawn` None leaves the random generators alone (then it is not exact)."""
        self.restore_weights(weights)
        self._restore_moments(moments)
        for group, saved in zip(self._groups(), course.groups, strict=True):
            group.update({key: tuple(value) if key == "betas" else value for key, value in saved.items()})
        self._trainer.lr_scheduler.load_state_dict(dict(course.scheduler))
        self._trainer.state.global_step = course.step
        # else the next loss would be divided by the steps from zero to here
        self._trainer._globalstep_last_logged = course.step
        self._stream.seek(course.position)
        if drawn is not None:
            randomness.restore(drawn)

    def restore_weights(self, weights: Tensors) -> None:
        """Raises JobError when a name or a shape differs: a part left as it was would train on, and badly."""
        _put(self.weights(), weights)

    def _restore_moments(self, moments: Tensors) -> None:
        live = self.moments()
        if not moments:
            self._optimizer.state.clear()
        elif live.keys() == moments.keys():
            _copy(live, moments)
        else:
            self._load_moments(moments)

    def _load_moments(self, moments: Tensors) -> None:
        """Through the optimizer's own loading, which knows where each kind of state belongs."""
        wanted = {key.rpartition(".")[0] for key in moments}
        numbered = [parameter for group in self._groups() for parameter in group["params"]]
        places = {self._names[id(parameter)]: at for at, parameter in enumerate(numbered)}
        if strange := sorted(wanted - places.keys()):
            raise JobError(f"the snapshot's optimizer state has {strange[0]}, which this model does not train", _FORK)
        state: dict[int, dict[str, torch.Tensor]] = {}
        for key, value in moments.items():
            name, _, part = key.rpartition(".")
            state.setdefault(places[name], {})[part] = value.clone()
        self._optimizer.load_state_dict({"state": state, "param_groups": self._optimizer.state_dict()["param_groups"]})

    def set_learning_rate(self, rate: float) -> None:
        """The schedule keeps its form and its place; its height changes."""
        scheduler = self._trainer.lr_scheduler
        for base, group in zip(scheduler.base_lrs, self._groups(), strict=True):
            group["lr"], group["initial_lr"] = group["lr"] * rate / base if base else 0.0, rate
        changed = {"base_lrs": [rate] * len(self._groups()), "_last_lr": [group["lr"] for group in self._groups()]}
        scheduler.load_state_dict(scheduler.state_dict() | changed)


def trained(model: Any) -> dict[str, torch.Tensor]:
    """What a training of `model` changes: trainable parameters, and where all are, also the buffers it would save."""
    found = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if all(value.requires_grad for value in model.parameters()):
        kept = model.state_dict()
        found |= {name: value for name, value in model.named_buffers() if name in kept}
    return found


def copy_weights(model: Any, weights: Tensors) -> None:
    """Puts a snapshot's weights into a model without a Trainer. Raises JobError as `restore_weights` does."""
    _put({name: value.detach() for name, value in trained(model).items()}, weights)


def _put(live: Tensors, saved: Tensors) -> None:
    _check_same(live, saved)
    _copy(live, saved)


_FORK = "Model, method and lora.targets must be as they were when the snapshot was taken; else start a new run."


def _check_same(live: Tensors, saved: Tensors) -> None:
    missing, strange = sorted(live.keys() - saved.keys()), sorted(saved.keys() - live.keys())
    if missing or strange:
        words = f"lacks {missing[0]}" if missing else f"has {strange[0]}, which this model does not train"
        raise JobError(f"the snapshot {words} ({len(missing)} missing, {len(strange)} unexpected)", _FORK)
    for name, tensor in live.items():
        if tensor.shape != saved[name].shape:
            found, here = tuple(saved[name].shape), tuple(tensor.shape)
            raise JobError(f"{name} has shape {found} in the snapshot and {here} here", _FORK)


def _copy(live: Tensors, saved: Tensors) -> None:
    with torch.no_grad():
        torch._foreach_copy_(list(live.values()), [saved[name] for name in live])
