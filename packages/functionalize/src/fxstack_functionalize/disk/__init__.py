"""Programs on disk: a program that was compiled in an earlier process starts without a new trace.

The folder writes the records of a program (``runtime``, ``metadata``) as JSON. It may import every folder
except ``hooks`` and ``subclasses``; the caller of ``aot`` supplies the storage (``store.Store``).
Begin with ``cache_entry``; ``key`` and ``code`` compute the cache key, ``program`` and ``codec`` convert the
records, ``sizes`` handles symbolic sizes, ``again`` makes the callable.
"""

from fxstack_functionalize.disk.cache_entry import CacheEntry
from fxstack_functionalize.disk.code import CodeReader
from fxstack_functionalize.disk.store import Store

__all__ = ["CacheEntry", "CodeReader", "Store"]
