"""The inspector: a web page on this machine from which a person uses a server."""
