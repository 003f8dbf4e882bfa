"""Rules of library functions, joined into one table.

A rule says what a call of one callable means while tracing: ``rule(trace, args, kwargs) -> result``. One
module for each library module: ``builtins``, ``library`` (the standard library and NumPy) and ``torch``.
Rules import ``trace``, ``objects`` and ``calls.native_run``. Begin with ``library.regular_expressions``, the
shortest.
"""
