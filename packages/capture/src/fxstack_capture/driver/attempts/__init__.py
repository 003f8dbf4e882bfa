"""The attempts to trace one frame: how each attempt ends, and the change that the next attempt makes.

``attempt`` runs one trace. ``outcomes`` makes a value of its end. ``steps`` has the table of what the next attempt
changes. Begin with ``steps``.
"""
