"""Speed and memory, measured against the alternatives in the same run."""
