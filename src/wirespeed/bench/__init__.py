"""Loads on MCP servers: calls whose answers are all checked, and how long each took."""
