"""Isolation: the server that serves a client, alone or with others."""
