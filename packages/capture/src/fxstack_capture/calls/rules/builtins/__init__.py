"""Rules of builtin functions and classes.

A module for each subject: classes, attributes and numbers (``builtin_functions``), dictionaries, ``eval`` and
``exec``, introspection, printing, frames. Rules import ``trace``, ``objects`` and ``calls``, never each
other's folders. Begin with ``builtin_functions``.
"""
