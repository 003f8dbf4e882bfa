"""Lowering rules that compute coordinates: views, joins, padding, look-ups, scatters and resampling.

Modules here import ``ir``, ``lower.context``, ``lower.registry`` and ``lower.elementwise``. Begin with
``views`` (coordinates only), then ``cat_pad_gather`` (masks and look-ups) and ``affine`` (indices without look-up).
"""
