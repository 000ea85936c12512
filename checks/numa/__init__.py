"""Checks of the group numa."""
