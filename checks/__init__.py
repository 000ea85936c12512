"""Checks of all groups."""
