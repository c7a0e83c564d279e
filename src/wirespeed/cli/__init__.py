"""The command line. No library code imports it.

`app` is the grammar (click); the other modules do the work and are loaded when their command runs.
"""
