"""The attempts to trace one frame: how each of them ends, and what the next one changes.

``attempt`` runs one trace. ``outcomes`` makes a value of its end. ``steps`` has the table of what the next attempt
changes. Begin with ``steps``.
"""
