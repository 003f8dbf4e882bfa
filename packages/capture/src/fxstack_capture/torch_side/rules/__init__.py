"""Rules for calls of torch that need more than one node of the graph.

``table`` maps functions to rules. ``leaves`` decides which callables become one node instead of being
interpreted. ``attributes`` implements the attribute protocol of tensors. Begin with ``table``.
"""
