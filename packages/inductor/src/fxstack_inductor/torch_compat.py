"""The private names of torch that this package uses, by purpose (``fxstack_interchange.torch_names``).

No other module of the package uses a private name. If a release of torch renames one, only this module
changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.torch_names import bind

if TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


NAMES = {
    "convolutions": {"torch._C": "_ConvBackend=ConvBackend _select_conv_backend=select_conv_backend"},
    "autograd": {"torch._C": "_AutoDispatchBelowAutograd"},
    "layouts": {"torch._prims_common": "suggest_memory_format"},
    "leaf functions": {
        "torch._C": """
            DispatchKey _ForceDispatchKeyGuard _dispatch_tls_local_exclude_set _dispatch_tls_local_include_set
        """
    },
    "global settings of torch and devices": {
        "torch._C": "_cuda_getCurrentRawStream _cuda_getDevice _get_mkldnn_enabled"
    },
    "higher-order operators": {"torch._ops": "HigherOrderOperator"},
    "storages of tensors": {"torch._C": "_storage_Use_Count"},
    "symbolic sizes": {"torch.utils._sympy.printers": "PythonPrinter"},
    "torch's operators and their decompositions": {
        "torch._decomp": "core_aten_decompositions decomposition_table"
    },
    "tracing torch's operators": {
        "torch._C": "TensorBase",
        "torch._ops": "OpOverload OpOverloadPacket OperatorBase",
        "torch._subclasses.fake_tensor": "FakeTensor",
        "torch.fx.node": "_get_qualified_name",
        "torch.utils._python_dispatch": "_disable_current_modes",
    },
}
bind(globals(), NAMES)
