"""Checks of the group selftest."""
