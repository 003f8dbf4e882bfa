"""Symbolic numbers: the ShapeEnv of a trace and what it decides fast.

``env`` is torch's ShapeEnv with the user's location for each guard; ``decisions`` and ``linear_inequalities``
decide comparisons of one symbol by integer arithmetic; ``guards`` turns assumptions into guard records. Begin
with ``env``.
"""
