"""Saved-tensor hooks, traced into the end of the forward and the start of the backward.

The folder may import ``code_reads``, ``random``, ``tracing`` and ``runtime.backward.tangents``; ``runtime``
calls it. Begin with ``inline`` (hooks after partitioning) and ``joint`` (hooks before partitioning).
``identity`` decides whether a hook can be traced and which hooks are equal; ``pair`` traces one pair of
hooks.
"""

from fxstack_functionalize.hooks.identity import HookReader, NotTraceableError
from fxstack_functionalize.hooks.inline import inline_hooks
from fxstack_functionalize.hooks.joint import hooks_in_joint
from fxstack_functionalize.hooks.pair import HookPair

__all__ = ["HookPair", "HookReader", "NotTraceableError", "hooks_in_joint", "inline_hooks"]
