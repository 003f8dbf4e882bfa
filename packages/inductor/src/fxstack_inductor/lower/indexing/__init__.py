"""Lowering rules of operators that move elements.

Views, joins, look-ups, scatters and resampling: index arithmetic, masks and computed coordinates. Begin with
``views``.
"""
