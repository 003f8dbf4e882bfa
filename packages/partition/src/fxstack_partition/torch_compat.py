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
    "higher-order operators": {
        "torch._ops": "HigherOrderOperator",
        "torch._prims.rng_prims": "run_and_save_rng_state run_with_rng_state",
    },
    "tracing torch's operators": {"torch._ops": "OpOverload", "torch.utils._pytree": "tree_leaves"},
}
bind(globals(), NAMES)
