"""Access: principals, what they may do, and the audit log."""
