"""The one error that a user causes: a sentence that says what, where and what to do."""


class InputError(Exception):
    """Bad input from outside (option, policy, --host, plugin id); ends the run with the usage exit code."""
