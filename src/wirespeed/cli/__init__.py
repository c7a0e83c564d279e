"""The command line. No library code imports it.

`app` has the commands, `grammar` the options that commands share (click). The other modules do the
work; each is loaded when its command runs.
"""
