"""Reads the configuration files of MCP hosts: JSON, the same in TOML, or YAML.

.. code-block:: json

    {"mcpServers": {"time": {"command": "mcp-server-time", "args": ["--utc"],
                             "env": {"TOKEN": "${TOKEN}"}, "cwd": "."}}}

A file whose name ends in ``.toml`` has the same in TOML: ``[mcpServers.time]``. JSON may have
comments and trailing commas. The other shapes of hosts are in
``docs/how-to/configuration.md``.

Keys of a server: ``command``, ``args``, ``env``, ``cwd`` for a child; ``url``, ``headers`` and
``auth`` for a server elsewhere; ``type`` (or ``transport``), ``enabled`` (or its opposite,
``disabled``), ``autoStart``, ``timeout`` and ``startTimeout`` in seconds, ``era`` (or
``protocolEra``). Others are kept in ``ServerConfig.extra``. URLs: ``http://``, ``https://``,
``ws://``, ``wss://``, ``unix:`` and ``tcp://``. The types ``http`` and ``sse`` mean the same: the
client finds out which of the two the server speaks.

``auth`` is ``"oauth"``, or an object with ``type``, ``clientId``, ``clientSecret``,
``privateKey``, ``clientMetadataUrl``, ``issuer``, ``scopes``, ``redirectUri`` and ``dpop``, or a
bearer token. The keys ``CLIENT_ID`` and ``CLIENT_SECRET`` of Cursor are read, too.

Paths: a relative ``cwd`` or ``unix:`` path, and a relative ``command`` with a slash in it, are
relative to the folder of the file, wherever the program is started; a leading ``~/`` is the home
directory.
Without ``cwd`` the child gets the caller's directory. Arguments are never taken as paths.

Variables: ``${NAME}`` (or ``${env:NAME}``) and ``${NAME:-default}`` (for unset or empty, as in
a shell) in ``command``, ``args``, ``env``, ``cwd``, ``url``, ``headers`` and ``auth``; ``$${`` is
a plain ``${``. In files of Gemini CLI ``$NAME`` is a variable, too, if it is set. Editors'
``${workspaceFolder}``, ``${workspaceFolderBasename}``, ``${userHome}`` and ``${/}`` are known. A
server with a variable that is not set, or with a fault in its entry, can
be looked at, but not used. Errors, logs and ``repr`` show the command and the URL with their
variables as they are written.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
