"""Long trials by chance, for `make stress`: what breaks only sometimes, or only after a while. Not in `make test`."""
