"""The private names of torch in this package, by purpose (see ``fxstack_interchange.torch_names``).

No other module of the package uses private names, so a new release of torch needs changes in this module
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.torch_names import bind

if TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


NAMES = {
    "autograd": {"torch._C._autograd": "_top_saved_tensors_default_hooks"},
    "global settings of torch and devices": {"torch._C": "_get_cudnn_enabled _get_mkldnn_enabled"},
    "ids of compilations": {"torch._guards": "CompileContext"},
    "the structured trace": {
        "torch._logging": "structured trace_structured",
        "torch._logging._internal": "trace_log",
    },
    "tracing torch's operators": {"torch.utils": "_pytree"},
}
bind(globals(), NAMES)
