"""Every offer predicted and priced, ranked, explained and varied."""
