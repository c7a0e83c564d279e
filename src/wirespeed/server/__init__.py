"""MCP servers. Their public names are in `wirespeed` and `wirespeed.types`."""
