"""The command line. No library code imports it.

`app` is the grammar (click). The other modules do the work; each is loaded when its command runs.
"""
