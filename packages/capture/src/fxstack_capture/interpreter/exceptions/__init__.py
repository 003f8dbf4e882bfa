"""Exceptions in interpreted frames.

The folder implements contexts, tracebacks and exception groups. ``origins`` separates exceptions of the
program from failures of the compiler. The folder imports ``trace`` and ``objects``. Begin with ``errors``.
"""
