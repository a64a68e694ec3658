"""One training step, operation by operation, and what it is at any batch size."""
