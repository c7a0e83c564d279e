"""Operation of a proxy: its numbers, states and errors, and the admin listener."""
