"""Exceptions in interpreted frames: contexts, tracebacks, and the exceptions that bytecode itself raises.

``origins`` distinguishes exceptions of the program from failures of the compiler. The folder imports
``trace`` and ``objects``. Begin with ``errors``.
"""
