"""Several hosts of one proxy: which one this is, what they share, what moves with a session."""
