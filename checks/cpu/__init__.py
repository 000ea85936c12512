"""Checks of the group cpu."""
