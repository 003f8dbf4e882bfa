"""Compiled programs on disk: a program that was compiled before starts without being traced again.

``key`` identifies a captured graph, ``program`` is the document that is stored, ``cache_entry`` looks it up
and fills it, ``restore`` makes the callable from it. The folder imports ``runtime`` and ``metadata``; it opens
no files: ``cache_entry.Store`` is the protocol of what the caller provides. Begin with ``cache_entry``.
"""
