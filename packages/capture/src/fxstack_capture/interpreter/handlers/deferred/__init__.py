"""Instructions on values that nobody has looked at yet.

A value that the program only passes on is not guarded: locals (``deferred_locals``), lists that are only
appended to, lists that a comprehension was filling, strings that are only printed, and calls that a polyfill
makes. Begin with ``deferred_locals``.
"""
