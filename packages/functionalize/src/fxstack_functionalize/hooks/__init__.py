"""Saved-tensor hooks traced into the forward's epilogue and the backward's prologue.

``pair`` traces one pair of pack and unpack hooks, ``identity`` decides whether a hook may be traced once,
``joint`` puts hooks into the joint graph before partitioning and ``inline`` into the two graphs after it. The
folder imports ``tracing``. Begin with ``pair``.
"""

from fxstack_functionalize.hooks.identity import HookReader, NotTraceableError
from fxstack_functionalize.hooks.inline import inline_hooks
from fxstack_functionalize.hooks.joint import hooks_in_joint
from fxstack_functionalize.hooks.pair import HookPair

__all__ = ["HookPair", "HookReader", "NotTraceableError", "hooks_in_joint", "inline_hooks"]
