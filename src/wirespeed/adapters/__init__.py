"""Adapters: other SDKs of MCP on this engine. Each is a package of its own, and needs its SDK."""
