"""The command line: options in, exit code out; nothing is decided here."""
