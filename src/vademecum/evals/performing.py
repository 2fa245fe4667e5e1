"""A unit → its result: a place of its own, one run of the agent, everything checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event as Flag

from msgspec import structs

from vademecum.errors import VademecumError
from vademecum.evals.isolation import Rooms
from vademecum.evals.plan import Unit
from vademecum.evals.results import Result, Verdict
from vademecum.evals.stopping import Stop, Stopped, late
from vademecum.evals.trial import Trial
from vademecum.evals.turns import Turn, Turns
from vademecum.evals.workshop import Stock, Workshop
from vademecum.models.base import Model


class Cancelled(Exception):
    """The evaluation was interrupted before this unit was done: it has no result."""


class Performer:
    """Performs units, any number of them at once; ``models`` are known by name beside the usual ones."""

    def __init__(
        self,
        workshop: Workshop,
        *,
        models: Mapping[str, Model] | None = None,
        cancelled: Flag | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stock = Stock(workshop, models or {})
        self.cancelled = cancelled or Flag()
        self._clock = clock
        self.rooms = Rooms()
        self._turns = Turns()

    def stop_for(self, unit: Unit) -> Stop:
        """What tells a unit when it is to end."""
        return Stop(self.cancelled, unit.seconds, clock=self._clock)

    def perform(self, unit: Unit, stop: Stop | None = None) -> Result:
        """Run it once; whatever goes wrong is the result, except an interruption."""
        started = time.monotonic()
        turn = Turn(self._turns, stop or self.stop_for(unit))
        turn.take()
        try:
            with self.rooms.room_for(unit.case, project=self.stock.workshop.project) as room:
                found = Trial(unit, room, self.stock, turn).result()
        except KeyboardInterrupt:
            if turn.stop.reason == "cancelled":
                raise Cancelled from None
            found = timed_out(unit, turn.stop.seconds)
        except Stopped as error:  # before its run had begun, or after
            found = _empty(unit, "timeout", str(error))
        except VademecumError as error:
            found = _empty(unit, "error", str(error))
        except Exception as error:  # noqa: BLE001 - one unit's fault must not end the others
            found = _empty(unit, "error", f"Unexpected {type(error).__name__}: {error}")
        finally:
            turn.give()
        return structs.replace(found, seconds=round(time.monotonic() - started, 4))


def _empty(unit: Unit, outcome: Verdict, error: str) -> Result:
    return Result(unit.key, unit.case.id, unit.configuration.name, unit.repetition, outcome, error=error)


def timed_out(unit: Unit, seconds: float) -> Result:
    """Return the result of a unit that ended because its time was over."""
    return structs.replace(_empty(unit, "timeout", late(seconds)), seconds=seconds)


def left_behind(unit: Unit, seconds: float) -> Result:
    """Return the result of a unit that did not end when its time was over."""
    said = f"It was not done after {seconds:g} s, and did not stop when it was told to."
    return structs.replace(timed_out(unit, seconds), error=said)


def failed(unit: Unit, error: str) -> Result:
    """The result of a unit of which nothing else is known."""
    return _empty(unit, "error", error)
