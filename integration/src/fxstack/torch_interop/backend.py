"""``torch.compile(model, backend="fxstack")``: the last three stages of this project under torch's frontend.

The backend is registered in the entry-point group ``torch_dynamo_backends``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from fxstack.log import CompileLog
from fxstack.pipeline import Compiled, make_backend
from fxstack.settings import make_options


def fxstack(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Compiled:
    """Compile a graph in torch.compile's convention for backends. ``mode`` and ``options`` are as in ``fxstack.compile``."""
    return make_backend(make_options(mode, options), CompileLog())(graph_module, example_inputs)
