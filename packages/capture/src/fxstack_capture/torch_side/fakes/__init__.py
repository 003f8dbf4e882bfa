"""Fake tensors: metadata without data.

``faker`` makes a fake of a real tensor, ``fake_mode`` runs operators on fakes, ``operator_cache`` remembers
what operators do to metadata, ``size_checks`` refuses what eager refuses. Begin with ``faker``.
"""
