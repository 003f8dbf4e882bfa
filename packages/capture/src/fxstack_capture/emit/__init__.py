"""From the outcome of a trace to the code that replaces a frame."""
