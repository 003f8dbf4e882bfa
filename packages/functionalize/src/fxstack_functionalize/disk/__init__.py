"""Ahead-of-time results on disk: a program that was compiled before starts without being traced again."""

from fxstack_functionalize.disk.cache_entry import CacheEntry
from fxstack_functionalize.disk.code import CodeReader
from fxstack_functionalize.disk.store import Store

__all__ = ["CacheEntry", "CodeReader", "Store"]
