"""Instructions on values that the program has not read yet.

A value that the program only passes on has no guards. Five kinds of values are deferred: locals
(``deferred_locals``), append-only lists, partial comprehensions, strings that are only printed, and the
results of polyfilled calls. Begin with ``deferred_locals``.
"""
