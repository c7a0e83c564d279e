"""Commands for the programs that use servers: Claude, Cursor, VS Code and others."""
