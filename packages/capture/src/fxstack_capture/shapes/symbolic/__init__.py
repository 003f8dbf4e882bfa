"""Symbolic numbers: the ShapeEnv of a trace, and its fast decisions.

``env`` is torch's ShapeEnv with the user's location for each guard. ``decisions`` and ``linear_inequalities``
decide comparisons of one symbol by integer arithmetic. ``guards`` converts assumptions to guard records.
Begin with ``env``.
"""
