"""What a run costs, as a sum of named lines."""
