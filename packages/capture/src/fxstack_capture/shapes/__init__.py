"""Dynamic shapes: which numbers become symbolic, and the guards that follow.

``history`` and ``lattice`` remember what was seen, ``policy`` decides, ``geometry`` makes the symbols,
``symbolic`` holds torch's ShapeEnv with our decisions. ``contract`` and ``dims`` are shape contracts of
users. The folder imports ``guards.records`` and ``options``. Begin with ``policy``.
"""
