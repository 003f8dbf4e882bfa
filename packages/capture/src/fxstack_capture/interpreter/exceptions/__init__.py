"""Exceptions in interpreted frames.

Contexts, tracebacks, exception groups, and ``origins``, which tells the program's exceptions from failures of
the compiler. The folder imports ``trace`` and ``objects``. Begin with ``errors``.
"""
