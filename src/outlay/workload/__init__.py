"""What to train, for how long, on what data, within which limits: the file `outlay.toml`."""
