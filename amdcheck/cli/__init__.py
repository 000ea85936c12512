"""The command line: options in, exit code out; nothing is decided here."""


def main() -> int:
    """Run the command line that this process was started with, and return its exit code."""
    import signal

    # Until it is known how to answer them (the exit style), signals wait; conduct lets them in. At the end they come
    # too late to change anything, and the interpreter on its way out would answer them in its own way.
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    from amdcheck.cli.conduct import conduct

    code = conduct()
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    return code
