"""The interchange format of FX graphs: the stages exchange graphs in this format, in memory and as files.

``signature`` and ``format.metadata`` define the contract. ``verify`` checks it. ``files`` saves and loads in the
``format``. ``show`` prints a graph. ``operators`` holds the operators of fxstack that may occur in a graph between
stages. ``eager_facts`` describes eager kernels where torch's fake kernels differ from them. The package
imports torch.fx and the standard library. Begin with ``signature``.
"""

from fxstack_interchange.errors import InterchangeError, LoadError, SaveError, VerificationError, Violation
from fxstack_interchange.files import load, save, to_bytes
from fxstack_interchange.format.container import Limits
from fxstack_interchange.format.metadata import METADATA_KEYS, user_line
from fxstack_interchange.show import show
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
from fxstack_interchange.torch_names import warn_of_untested
from fxstack_interchange.verify import verify

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
