"""The mode for fake tensors that all stages except capture use (capture's own mode replaces torch's dispatch)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fxstack_interchange.torch_compat import FakeTensorMode

if TYPE_CHECKING:
    # The import takes seconds, and many graphs have no symbols.
    from torch.fx.experimental.symbolic_shapes import ShapeEnv


def make_fake_mode(shape_env: ShapeEnv | None = None, *, static_shapes: bool | None = None) -> FakeTensorMode:
    """Return a new mode whose operators take real tensors as well, because graphs hold real tensors as constants.

    ``static_shapes`` has torch's meaning: whether sizes of real tensors that become fake are constants (None:
    if there is no ``shape_env``).
    """
    return FakeTensorMode(shape_env=shape_env, static_shapes=static_shapes, allow_non_fake_inputs=True)
