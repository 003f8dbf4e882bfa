"""Saved-tensor hooks traced into the forward's epilogue and the backward's prologue."""

from fxstack_functionalize.hooks.identity import HookReader, NotTraceableError
from fxstack_functionalize.hooks.inline import inline_hooks
from fxstack_functionalize.hooks.joint import hooks_in_joint
from fxstack_functionalize.hooks.pair import HookPair

__all__ = ["HookPair", "HookReader", "NotTraceableError", "hooks_in_joint", "inline_hooks"]
