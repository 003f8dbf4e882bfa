"""Dynamic shapes: which numbers become symbolic, and the guards that follow.

``history`` records the observed values. ``policy`` decides which numbers become symbolic. ``geometry`` makes
the symbols. ``symbolic`` holds torch's ShapeEnv with fxstack's decisions. ``contract`` and ``dims`` are shape
contracts of users. The folder imports ``guards.records`` and ``options``. Begin with ``policy``.
"""
