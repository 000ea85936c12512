"""Checks of the group pci."""
