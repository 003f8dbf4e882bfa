"""The endings of replacements that do not simply return.

``breaking`` runs the operation that ended the graph and continues behind it; ``steps`` describes that operation,
``levels`` works out the frames around a break; ``raising`` hands over an exception; ``fallback`` runs the frame in
plain Python after all; ``restore`` puts torch's state back. Begin with ``breaking``.
"""
