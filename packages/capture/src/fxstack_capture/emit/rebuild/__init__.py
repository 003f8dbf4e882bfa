"""Expressions that rebuild values of the trace.

``rebuilder`` keeps identity and aliasing. ``find`` finds the rule of a class. The other modules hold the
rules, one module for each family of classes. Rules take ``protocol.RebuilderProtocol``. Begin with
``rebuilder``.
"""
