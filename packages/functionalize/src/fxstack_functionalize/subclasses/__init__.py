"""Graphs over wrapper subclasses: taken apart into graphs over the tensors that they wrap, and put together again."""

from fxstack_functionalize.subclasses.compiling import Compiling, compile_wrapped

__all__ = ["Compiling", "compile_wrapped"]
