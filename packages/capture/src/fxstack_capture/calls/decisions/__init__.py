"""Decide what a call does, as data: the cases of each kind of callable, and the C code that may run for real.

``cases`` lists the cases in order, ``policy`` lists C code without side effects, ``explaining`` asks both for a
name. Begin with ``cases``.
"""
