"""Rules of builtin functions and classes.

There is one module for each subject: classes, attributes and numbers (``builtin_functions``), dictionaries,
``eval`` and ``exec``, introspection, printing, frames. Rules import ``trace``, ``objects`` and ``calls``, and
never import another folder of rules. Begin with ``builtin_functions``.
"""
