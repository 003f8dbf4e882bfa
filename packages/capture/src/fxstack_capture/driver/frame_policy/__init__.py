"""Decide which frames are compiled and which run in plain Python.

``policy`` decides by the file of a function. ``disabling`` decides by marks on functions.
``replaced_functions`` and ``builtins_in_use`` detect programs that replace functions which the compiler
needs. ``debugging`` detects debuggers. Begin with ``policy``.
"""
