"""Checks of the group gpu."""
