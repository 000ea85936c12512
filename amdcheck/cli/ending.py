"""The exception by which a command ends without a verdict."""

from __future__ import annotations

from amdcheck.engine.exits import Event
from amdcheck.model.report import Report

NO_CHECKS = "no built-in check is registered: this installation of amdcheck is broken"


class Ending(Exception):
    """The run ends with this event of the exit table. An empty message: there is nobody left to tell.

    `answered`: standard output has been given what its reader waits for, and takes no line about the end.
    `report` says of a run that never began why; who collects reports gets it.
    """

    def __init__(
        self, event: Event, message: str = "", *, answered: bool = False, report: Report | None = None
    ) -> None:
        super().__init__(message)
        self.event = event
        self.message = message
        self.answered = answered
        self.report = report
