"""The commands that measure: loads on servers, and targets for them."""
