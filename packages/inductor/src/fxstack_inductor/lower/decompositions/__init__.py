"""Decompositions that earlier stages apply, so that operators without a rule become operators with one.

``table`` joins torch's decompositions and those of this package. Modules here import ``lower.registry`` and
``lower.rules``. Begin with ``table``.
"""
