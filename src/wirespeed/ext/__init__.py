"""Integrations with other packages. Each is loaded when it is imported."""
