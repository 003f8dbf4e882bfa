"""Expressions that rebuild objects which the trace made and which leave the frame.

``rebuilder`` keeps identity and aliasing. ``rules`` is the table from classes to rules. Each other module has
the rules of one family of classes. Begin with ``rebuilder``.
"""
