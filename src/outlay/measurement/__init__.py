"""What a probe of a real run measured, as values and as a file."""
