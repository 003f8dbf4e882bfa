"""Random operators in a trace: eager's order and bits, or draws as pure functions of a state.

``rng`` keeps random operators in eager's order and bits; begin with it. ``functional_random`` turns each draw
into a function of the generator's state (``AotOptions.functional_random``). The folder imports ``errors`` and
``tracing`` (types and ``RecordingMode``) only.
"""
