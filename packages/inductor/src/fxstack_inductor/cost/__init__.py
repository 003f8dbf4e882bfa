"""What a GPU would take for a schedule: predicted from bytes, operations and launches, on any machine."""
