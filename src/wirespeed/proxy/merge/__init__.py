"""Several servers behind one endpoint."""
