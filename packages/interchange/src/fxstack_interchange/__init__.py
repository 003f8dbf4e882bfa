"""The format in which the stages of fxstack exchange FX graphs, in memory and as files, and facts about torch.

``format`` is the first half. ``format.signature`` and ``format.metadata`` define the contract between the
stages, ``verify`` checks a graph against this contract, ``save`` and ``load`` write and read files, ``show``
prints a graph. ``operators`` holds the operators of fxstack that may occur in a graph between stages.
``torch_facts`` is the second half: behaviour of torch's operators that its fake kernels do not reproduce,
settings and errors of torch's compiler. ``bytecode`` has the properties of CPython's opcodes. The package
imports torch and no other package of fxstack. Begin with ``format.signature``.
"""

from fxstack_interchange import former_names
from fxstack_interchange.format.encoding.container import Limits
from fxstack_interchange.format.errors import (
    InterchangeError,
    LoadError,
    SaveError,
    VerificationError,
    Violation,
)
from fxstack_interchange.format.files import load, save, to_bytes
from fxstack_interchange.format.metadata import METADATA_KEYS, user_line
from fxstack_interchange.format.show import show
from fxstack_interchange.format.signature import (
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
from fxstack_interchange.format.verify import verify
from fxstack_interchange.torch_names import warn_of_untested

former_names.install()
warn_of_untested()

__all__ = [
    "METADATA_KEYS",
    "GraphSignature",
    "InputKind",
    "InputSpec",
    "InterchangeError",
    "Limits",
    "LoadError",
    "OutputKind",
    "OutputSpec",
    "Partition",
    "SaveError",
    "Stage",
    "StageGraph",
    "SymbolSpec",
    "VerificationError",
    "Violation",
    "load",
    "save",
    "show",
    "to_bytes",
    "user_line",
    "verify",
]
