"""Clients of one era with servers of the other."""
