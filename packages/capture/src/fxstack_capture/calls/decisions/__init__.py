"""Decide what a call does, as data: the order of precedence of rules, and the C code that may run for real.

``precedence`` lists all sources of rules and all cases in order. ``policy`` lists C code without side
effects. ``explaining`` finds the decision for a name. ``classes`` calls classes. Begin with ``precedence``.
"""
