"""Rules that decide which values must be saved, which must be recomputed, and which may be either.

``policy`` is an ordered list of named rules, each with its reason; ``modules`` tags nodes by the modules of the
program. The folder imports ``joint``. Begin with ``policy``.
"""
