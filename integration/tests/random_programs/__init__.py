"""Random programs over the whole stack: ``writer`` writes one from a seed, ``running`` compares eager and compiled."""
