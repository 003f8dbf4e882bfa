"""From a value of the trace to an expression that makes the value again.

``rebuilder`` keeps identity and aliasing; ``find`` finds the rule of a class; the other modules hold the
rules, one module for each family of classes. Rules take ``protocol.RebuilderProtocol``. Begin with
``rebuilder``.
"""
