"""From a value of the trace world to an expression that makes it again: one file per family of kinds."""
