"""The signature of a stage graph: the role of each input and output.

A stage passes on a ``torch.fx.GraphModule`` together with one frozen ``GraphSignature``. The placeholders of
the graph and ``signature.inputs`` correspond one to one, in order. The elements of the graph's output (a flat
tuple) and ``signature.outputs`` correspond in the same way.

Names follow ``torch.export.graph_signature`` where it defines a name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from torch.fx import GraphModule


class Stage(StrEnum):
    """The point of the pipeline that a graph comes from.

    The stage decides which invariants ``verify`` checks.
    """

    CAPTURED = "captured"
    """Torch-level operators, as the user called them. The graph may mutate and alias tensors."""
    FUNCTIONAL = "functional"
    """An ATen-level inference graph. It is functional, except for declared input mutations."""
    JOINT = "joint"
    """ATen-level forward and backward in one graph."""
    FORWARD = "forward"
    BACKWARD = "backward"


class InputKind(StrEnum):
    """What a placeholder of a graph takes. The values are the words of the file format."""

    USER_INPUT = "user_input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT_TENSOR = "constant_tensor"
    SYMBOL = "symbol"
    """An integer that binds a symbolic size. ``InputSpec.target`` is the symbol's name."""
    RNG_STATE = "rng_state"
    """The state that random numbers are generated from.

    ``target`` is ``"backward"`` for a state that the backward receives when it runs.
    """
    TOKEN = "token"  # noqa: S105
    SAVED = "saved"
    """Backward only: a tensor or symbol that the forward saved.

    ``target`` is the name of the forward output.
    """
    TANGENT = "tangent"
    """Joint and backward: the gradient of a forward output. ``target`` is the name of that output."""


class OutputKind(StrEnum):
    """What an output of a graph is for. The values are the words of the file format."""

    USER_OUTPUT = "user_output"
    MUTATED_INPUT = "mutated_input"
    """The new value of input ``target``. The caller copies it into the input."""
    ALIAS_OF_INPUT = "alias_of_input"
    """A view of input ``target``. The caller makes the view again."""
    ALIAS_OF_INTERMEDIATE = "alias_of_intermediate"
    """A view of another output, ``target``."""
    SAVED = "saved"
    """Forward only: a value that the forward passes to the backward."""
    GRADIENT = "gradient"
    """Joint and backward: the gradient with respect to input ``target``.

    The value in the graph may be None.
    """
    TOKEN = "token"  # noqa: S105


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One placeholder. ``name`` is the name of the placeholder node.

    ``target`` is the fully qualified name of a parameter or buffer, the symbol that a SYMBOL input binds, or
    the forward output that a TANGENT or SAVED input belongs to. For RNG_STATE see ``InputKind``. For other inputs it
    is None. ``source`` is a
    Python expression that says where the caller finds the value. It is only for people.
    """

    kind: InputKind
    name: str
    target: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One element of the graph's output tuple.

    ``name`` is the producing node's name, or None for a constant.
    """

    kind: OutputKind
    name: str | None
    target: str | None = None


@dataclass(frozen=True, slots=True)
class SymbolSpec:
    """One symbolic integer: name in expressions, value seen at capture, inclusive range, source.

    ``upper`` is None if the range has no upper bound.
    """

    name: str
    hint: int | None
    lower: int = 0
    upper: int | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class GraphSignature:
    """The signature of one stage graph.

    ``unsaved``: in a joint graph the inputs and outputs whose memory eager does not save. The program may
    change this memory before the backward, so a partition saves a copy. Files do not have this field.
    """

    stage: Stage
    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    symbols: tuple[SymbolSpec, ...] = ()
    unsaved: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.inputs)} inputs, {len(self.outputs)} outputs, {len(self.symbols)} symbols"
        return f"<GraphSignature {self.stage.value}: {counts}>"

    def inputs_of(self, kind: InputKind) -> tuple[InputSpec, ...]:
        return tuple(spec for spec in self.inputs if spec.kind is kind)

    def outputs_of(self, kind: OutputKind) -> tuple[OutputSpec, ...]:
        return tuple(spec for spec in self.outputs if spec.kind is kind)


@dataclass(frozen=True, slots=True)
class StageGraph:
    """A graph and its signature. Every stage takes a ``StageGraph`` and returns one.

    The order of the flat tuples depends on the stage:

    - CAPTURED, FUNCTIONAL: inputs as captured; outputs: MUTATED_INPUT first, then user outputs and aliases.
    - JOINT: inputs: the primals (all inputs of the forward), then the TANGENTs; outputs: the outputs of the
      forward, then one GRADIENT for each primal that can need a gradient. The value is None where the primal
      gets no gradient. A primal that is a wrapper subclass has one GRADIENT for each plain tensor that its
      gradient wraps.
    - FORWARD: inputs: the primals of the joint graph; outputs: the outputs of the forward, then SAVED
      tensors, then SAVED symbols.
    - BACKWARD: inputs: SAVED tensors, SAVED symbols, TANGENTs; outputs: the GRADIENTs.
    """

    graph_module: GraphModule
    signature: GraphSignature

    def __repr__(self) -> str:
        counts = len(self.graph_module.graph.nodes), len(self.signature.inputs), len(self.signature.outputs)
        return "<StageGraph {}: {} nodes, {} inputs, {} outputs; show() has all>".format(
            self.signature.stage.value, *counts
        )


@dataclass(frozen=True, slots=True)
class Partition:
    """A joint graph that is cut into forward and backward.

    ``reasons`` maps the names of joint graph nodes to the reason why each node is saved or recomputed.
    """

    forward: StageGraph
    backward: StageGraph
    saved: tuple[str, ...]
    recomputed: tuple[str, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.saved)} saved, {len(self.recomputed)} recomputed"
        return f"<Partition: {counts}; forward: {self.forward!r}; backward: {self.backward!r}>"
