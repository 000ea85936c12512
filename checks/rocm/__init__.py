"""Checks of the group rocm."""
