"""Which values must be saved, must be recomputed, or may be either.

``policy`` is an ordered list of named rules, each with its reason; ``modules`` tags nodes by the modules of the
program. The folder imports ``joint``. Begin with ``policy``.
"""
