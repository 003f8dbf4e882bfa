"""Rules of the standard library and of NumPy.

A module for each library module, named after its subject. Rules import ``trace``, ``objects`` and ``calls``,
never each other's folders. Begin with ``regular_expressions``.
"""
