"""Decide what a call does, as data: the order of precedence of rules, and the C code that may run for real.

``precedence`` lists all sources of rules and all cases in order, ``policy`` lists C code without side effects, and
``explaining`` asks both for a name. ``classes`` calls classes. Begin with ``precedence``.
"""
