"""Who may do what, and the audit log."""
