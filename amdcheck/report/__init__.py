"""Report formats: each turns a Report into text."""
