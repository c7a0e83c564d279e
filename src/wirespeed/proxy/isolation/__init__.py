"""Which server serves which client."""
