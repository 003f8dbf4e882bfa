"""The private names of torch that ``fxstack_interchange`` uses, grouped by feature (see ``torch_names``).

No other module of the package reads a private name of torch. If a release of torch renames one, only this
module changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.torch_names import bind

if TYPE_CHECKING:
    from typing import Any

    def __getattr__(name: str) -> Any: ...


NAMES = {
    "autograd": {
        "torch._C": """
            _AutoDispatchBelowADInplaceOrView _AutoDispatchBelowAutograd _after_ADInplaceOrView_keyset
        """
    },
    "calls of torch's own Python": {
        "torch.fx._lazy_graph_module": "_LazyGraphModule",
        "torch.fx.graph_module": "_loader=graph_module_loader",
    },
    "higher-order operators": {
        "torch": "_higher_order_ops=higher_order_ops_package",
        "torch._higher_order_ops.effects": "has_effects",
        "torch._ops": "HigherOrderOperator",
    },
    "removing mutation": {
        "torch": """
            _from_functional_tensor _functionalize_commit_update _functionalize_replace _is_functional_tensor
            _sync=functional_sync
        """,
        "torch._higher_order_ops.auto_functionalize": """
            auto_functionalized auto_functionalized_v2
        """,
        "torch._subclasses.functional_tensor": "FunctionalTensor",
    },
    "symbolic sizes": {
        "torch.utils._sympy": "functions=sympy_functions",
        "torch.utils._sympy.numbers": "int_oo",
        "torch.utils._sympy.value_ranges": "ValueRanges",
    },
    "tensor subclasses and modes": {"torch._C": "DisableTorchFunction"},
    "torch's operators and their decompositions": {
        "torch": "_VF _neg_view _safe_softmax",
        "torch._C": "_fft _linalg _nn _sparse _special",
    },
    "tracing torch's operators": {
        "torch": "_C",
        "torch._C": "DispatchKey DispatchKeySet _ExcludeDispatchKeyGuard _VariableFunctions",
        "torch._library": "simple_registry",
        "torch._library.custom_ops": "CustomOpDef OPDEFS",
        "torch._ops": "OpOverload OpOverloadPacket",
        "torch._subclasses.fake_tensor": "FakeTensor FakeTensorMode",
        "torch.utils._python_dispatch": "_disable_current_modes",
        "torch.utils._pytree": "MappingKey SequenceKey tree_leaves tree_map",
    },
}
bind(globals(), NAMES)
