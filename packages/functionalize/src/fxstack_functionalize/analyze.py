"""Read off the functional tensors what the captured graph did: mutations of inputs, and what the outputs are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.engine import storage_key
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata import (
    InputInfo,
    OutputInfo,
    OutputSource,
    record_replay,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fxstack_functionalize.session import Session, TracedInput


@dataclass(slots=True)
class FlatOutput:
    """A flat graph output under construction: the functional tensor (or other value) it will hold; None if nothing."""

    value: Any
    target: str | None = None


@dataclass(slots=True)
class Analysis:
    """What ``analyze`` finds. ``values`` are the flat graph outputs that follow the mutated inputs."""

    inputs: list[InputInfo]
    outputs: list[OutputInfo] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


def analyze(session: Session, outputs: Sequence[Any], *, replay_views: bool) -> Analysis:
    """Classify every input and every user output after the captured graph has run."""
    infos = [
        _input_info(session, spec.name, traced)
        for spec, traced in zip(session.captured.inputs, session.inputs, strict=True)
    ]
    _refuse_aliased_mutation(session, infos)
    analysis = Analysis(infos)
    _Outputs(session, analysis, outputs, replay_views=replay_views).classify()
    return analysis


def _input_info(session: Session, name: str, traced: TracedInput) -> InputInfo:
    if traced.inner is None:
        return InputInfo(name, is_tensor=False)
    argument = traced.argument
    core = session.engine.core(argument)
    torch._sync(argument)
    mutated = torch._functionalize_has_data_mutation(core)
    metadata = torch._functionalize_has_metadata_mutation(core)
    if metadata or torch._functionalize_was_storage_changed(core):
        raise UnsupportedGraphError(
            f"input {name!r} has its size, strides or storage changed in place",
            why="only changes of an input's values can be carried back to the caller's tensor",
            fix="use the out-of-place form of the operator (x = x.t() instead of x.t_())",
        )
    return InputInfo(
        name,
        is_tensor=True,
        requires_grad=traced.leaf is not None,
        is_leaf=traced.leaf is None or traced.leaf is argument,
        mutates_data=mutated,
        grad_visible=argument.grad_fn is not traced.grad_fn,
        version_bumps=argument._version - traced.version,
    )


def _refuse_aliased_mutation(session: Session, infos: Sequence[InputInfo]) -> None:
    owners: dict[int, int] = {}
    shared: dict[int, list[int]] = {}
    for index, traced in enumerate(session.inputs):
        if traced.inner is None:
            continue
        key = traced.inner.untyped_storage()._cdata
        first = owners.setdefault(key, index)
        if first != index:
            shared.setdefault(first, [first]).append(index)
    for group in shared.values():
        changed = [infos[index].name for index in group if infos[index].mutates_data]
        if changed:
            names = ", ".join(repr(infos[index].name) for index in group)
            raise UnsupportedGraphError(
                f"inputs {names} share memory, and {changed[0]!r} is changed in place",
                why="the change must show through the other inputs",
                fix="pass tensors that do not overlap, or clone one of them",
            )


class _Outputs:
    """Classifies the user outputs, one after the other."""

    def __init__(
        self, session: Session, analysis: Analysis, outputs: Sequence[Any], *, replay_views: bool
    ) -> None:
        self.session = session
        self.analysis = analysis
        self.outputs = outputs
        self.replay_views = replay_views
        self.input_of_storage = {
            storage_key(traced.argument): index
            for index, traced in enumerate(session.inputs)
            if traced.inner is not None
        }
        self.input_ids = {id(t.argument): i for i, t in enumerate(session.inputs)}
        self.first_seen: dict[int, int] = {}
        self.groups: dict[int, list[int]] = {}

    def classify(self) -> None:
        infos = self.analysis.outputs
        for position, value in enumerate(self.outputs):
            infos.append(self._classify_one(position, value))
        for key, members in self.groups.items():
            self._classify_group(key, members)

    def _classify_one(self, position: int, value: Any) -> OutputInfo:
        values = self.analysis.values
        values.append(None)
        if not isinstance(value, torch.Tensor):
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                values[position] = value
                return OutputInfo(OutputSource.VALUE, position, is_tensor=False)
            return OutputInfo(OutputSource.CONSTANT, is_tensor=False, constant=value)
        if id(value) in self.input_ids:
            index = self.input_ids[id(value)]
            return OutputInfo(OutputSource.INPUT, index, requires_grad=value.requires_grad)
        if not self.session.engine.is_functional(value):
            raise _foreign_output(position, value)
        first = self.first_seen.setdefault(id(value), position)
        if first != position:
            return replace(self.analysis.outputs[first])
        return self._classify_tensor(position, value)

    def _classify_tensor(self, position: int, value: torch.Tensor) -> OutputInfo:
        key = storage_key(value)
        index = self.input_of_storage.get(key)
        if index is None:
            self.groups.setdefault(key, []).append(position)
        elif self._replayable(value, self.session.inputs[index].argument):
            return self._view(OutputSource.VIEW_OF_INPUT, index, value, self.session.inputs[index].argument)
        self.analysis.values[position] = value
        return OutputInfo(OutputSource.VALUE, position, requires_grad=value.requires_grad)

    def _view(
        self, source: OutputSource, index: int, value: torch.Tensor, base: torch.Tensor
    ) -> OutputInfo:
        replay = record_replay(
            self.session.engine.core(value), detached=base.requires_grad and not value.requires_grad
        )
        return OutputInfo(source, index, requires_grad=value.requires_grad, replay=replay)

    def _classify_group(self, key: int, members: list[int]) -> None:  # noqa: ARG002
        """Outputs on one storage that is no input's: return the base once and make the others from it."""
        tensors = [self.outputs[position] for position in members]
        if len(members) == 1 and not (self.replay_views and tensors[0]._is_view()):
            return
        base = self._common_base(tensors)
        if base is None:
            return
        if not all(value is base or self._replayable(value, base) for value in tensors):
            return
        home = next((p for p, value in zip(members, tensors, strict=True) if value is base), None)
        if home is None:
            home = len(self.analysis.values)
            self.analysis.values.append(base)
        for position, value in zip(members, tensors, strict=True):
            if value is not base:
                self.analysis.values[position] = None
                info = self._view(OutputSource.VIEW_OF_OUTPUT, home, value, base)
                for at, first in enumerate(self.outputs):
                    if first is value:
                        self.analysis.outputs[at] = info

    def _common_base(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
        candidates = [t._base if t._base is not None else t for t in tensors]
        candidates.sort(key=lambda t: not t.requires_grad)
        for candidate in candidates:
            if not record_replay(self.session.engine.core(candidate), detached=False).steps:
                return candidate
        return None

    def _replayable(self, value: torch.Tensor, base: torch.Tensor) -> bool:
        """Whether the view chain tells the whole truth about the gradient of ``value``."""
        if not value.requires_grad:
            return True
        stop = base.grad_fn
        node = value.grad_fn
        for _ in range(1000):
            if node is None or node is stop or type(node).__name__ == "AccumulateGrad":
                return node is not None
            if isinstance(node, torch.autograd.function.BackwardCFunction):
                return False
            following = [edge for edge, _ in node.next_functions if edge is not None]
            if len(following) != 1:
                return False
            node = following[0]
        return False


def _foreign_output(position: int, value: torch.Tensor) -> UnsupportedGraphError:
    return UnsupportedGraphError(
        f"output {position} is a {type(value).__name__} that no traced operator made",
        why="it is neither an input nor computed from one, so its value is not in the graph",
        fix="pass the tensor as an input",
    )
