"""Checks of the group memory."""
