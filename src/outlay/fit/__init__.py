"""What a step needs on a GPU, and what to change so that it fits."""
