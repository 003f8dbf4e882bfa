"""What happens when a frame has no valid entry: trace it, compile its graph, install the replacement."""
