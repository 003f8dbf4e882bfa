"""Dynamic shapes: what was seen, what becomes symbolic, and the guards that follow."""
