"""Integrations with other packages, one module for each package."""
