"""The one error that a user causes, and how the errors of others are told."""

from amdcheck.model.text import printable


class InputError(Exception):
    """Bad input from outside (option, policy, --host, plugin id); ends the run with the usage exit code.

    Its text is a sentence that says what, where and what to do.
    """


def in_words(error: BaseException) -> str:
    """One line with the kind of the error and what it says, even if its own code raises when it is asked."""
    try:
        return printable(f"{type(error).__name__}: {error}")
    except BaseException:
        return type(error).__name__
