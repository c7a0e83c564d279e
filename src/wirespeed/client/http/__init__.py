"""Streamable HTTP, and HTTP+SSE of 2024-11-05, from the client's side."""
