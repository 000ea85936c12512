"""The command line: options in, exit code out; nothing is decided here."""


def main() -> int:
    """Run the command line that this process was started with, and return its exit code."""
    from amdcheck.cli.conduct import conduct

    return conduct()
