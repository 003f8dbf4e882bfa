"""Fake tensors: metadata without data.

``faker`` makes the fake of a real tensor. ``fake_mode`` runs operators on fakes. ``operator_cache`` caches
the effect of operators on metadata. ``size_checks`` rejects sizes that eager rejects. Begin with ``faker``.
"""
