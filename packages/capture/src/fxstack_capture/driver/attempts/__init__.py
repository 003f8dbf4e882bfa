"""The attempts to trace one frame: how each attempt ends, and what the next attempt changes.

``attempt`` runs one trace. ``outcomes`` describes the end of an attempt. ``steps`` has the table from an
outcome to the next attempt. Begin with ``steps``.
"""
