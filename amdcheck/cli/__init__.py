"""The command line: options in, exit code out; nothing is decided here."""

import os
import sys


def main() -> int:
    """Run the command line that this process was started with, and return its exit code."""
    _take_no_code_from_the_current_folder()
    import signal

    # Until it is known how to answer them (the exit style), signals wait; conduct lets them in. At the end they come
    # too late to change anything, and the interpreter on its way out would answer them in its own way.
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    # A caller that ignores its children's ends hands that on, and then nobody learns how ours ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    from amdcheck.cli.conduct import conduct

    code = conduct()
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    return code


def _take_no_code_from_the_current_folder() -> None:
    """Whoever may write to the folder that root happens to be in would else have their code run.

    `python -m` and an empty entry of PYTHONPATH put it before Python's own library. It stays where amdcheck itself
    lies in it, as in a checkout.
    """
    library = os.path.dirname(os.__file__)
    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    end = sys.path.index(library) if library in sys.path else len(sys.path)
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = ""
    sys.path[:end] = [entry for entry in sys.path[:end] if entry not in ("", here) or entry == ours]
