"""The FX-graph interchange format: what the stages of fxstack hand to each other, in memory and as files."""

from fxstack_interchange.signature import (
    GraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    Partition,
    Stage,
    StageGraph,
    SymbolSpec,
)

__all__ = [
    "GraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "Partition",
    "Stage",
    "StageGraph",
    "SymbolSpec",
]
