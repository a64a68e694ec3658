"""What is kept in the user's own folder."""
