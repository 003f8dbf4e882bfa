"""Instructions on values that the program has not read yet.

A value that the program only passes on has no guards. This applies to locals (``deferred_locals``), lists
that the program only appends to, lists that a comprehension was filling, strings that are only printed, and
calls that a polyfill makes. Begin with ``deferred_locals``.
"""
