"""Rules of library functions, joined into one table.

A rule runs in place of one callable while tracing: ``rule(trace, args, kwargs) -> result``. There is one
folder for each group of libraries: ``builtins``, ``library`` (the standard library and NumPy) and ``torch``.
Rules import ``trace``, ``objects`` and ``calls.native_run``. Begin with ``library.regular_expressions``, the
shortest.
"""
