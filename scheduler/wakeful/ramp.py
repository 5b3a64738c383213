"""The ramp on which a provider's account reopens: some starts a second, doubling, in the end without limit. Pure.

A thousand sleepers behind one account would otherwise start as one herd and close it again at once.
"""

from __future__ import annotations

from dataclasses import dataclass

DOUBLINGS = 12  # after which nothing is held back any more: at 1/s, doubling each 10 s, that is 4096/s


@dataclass(frozen=True, slots=True)
class Ramp:
    """How fast runs may start after a reopening.

    Arguments:
        rate: starts per second at first.
        period: seconds after which the rate doubles, again and again.
    """

    rate: float = 1.0
    period: float = 10.0

    @property
    def length(self) -> float:
        """The seconds after which nothing is held back any more."""
        return DOUBLINGS * self.period

    def allowed(self, seconds: float) -> float:
        """Return how many starts are allowed in the first ``seconds`` after reopening; infinite after the ramp."""
        if seconds < 0:
            return 0.0
        if seconds >= self.length:
            return float("inf")
        doublings = int(seconds // self.period)
        rate = self.rate * 2.0**doublings
        return 1.0 + self.period * (rate - self.rate) + (seconds - doublings * self.period) * rate

    def slot(self, number: int) -> float:
        """Return the seconds after the reopening at which start ``number`` (from 1) is allowed."""
        for doublings in range(DOUBLINGS):
            rate = self.rate * 2.0**doublings
            begun = 1.0 + self.period * (rate - self.rate)
            if number <= begun + self.period * rate:
                return max(0.0, doublings * self.period + (number - begun) / rate)
        return self.length
