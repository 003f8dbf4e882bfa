"""Expressions that rebuild values of the trace: objects that it made, which leave the frame.

``rebuilder`` keeps identity and aliasing. ``rules`` has the rule of each class. The other modules hold the rules,
one module for each family of classes. Begin with ``rebuilder``.
"""
