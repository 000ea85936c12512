"""Checks of the group miopen."""
