"""Which of many candidates can be dropped after a cheap look, with a stated chance of an error.

All candidates are judged by one log, so that most of what chance did to one it did to the others:
differences are judged, and an error of a difference is that of what its two sides do not share.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fle.errors import SettingsError

FloatArray = NDArray[np.float64]
# Chance that the candidate that is truly best is dropped, over all looks of a comparison.
ERROR = 0.05
# Candidates whose differences from all others are worked out together.
BLOCK = 256


@dataclass(frozen=True, eq=False)
class Looks:
    """What one and the same look said of P candidates; larger values are better.

    values: (P,) estimates. influence: (P, G) what each of G independent groups of episodes did to
        them: estimate minus truth is about the sum over groups, each of mean zero.
    errors: (P,) standard errors of what candidates do not share.
    moved: (P,) how far the estimate moves in a class of half the size: a sign of what is wrong with
        the class, of which two candidates share a part.
    """

    names: Sequence[str]
    values: FloatArray
    influence: FloatArray
    errors: FloatArray
    moved: FloatArray

    def __post_init__(self) -> None:
        number = len(self.names)
        lengths = {len(self.values), len(self.influence), len(self.errors), len(self.moved)}
        if lengths != {number} or not np.all(np.isfinite(self.values)):
            raise SettingsError(
                f"looks: expected a finite value, influence, error and shift for each of {number}"
                f" candidates, got {sorted(lengths)} of them, {np.sum(~np.isfinite(self.values))}"
                " not finite"
            )

    def order(self) -> list[int]:
        """Places of the candidates, the best first."""
        return [int(place) for place in np.argsort(-self.values, kind="stable")]

    def outcomes(self, error: float = ERROR) -> list["Outcome"]:
        """Of every candidate, the rival that speaks most clearly against it, and whether it is out.

        With z the quantile at 1 - error / (P - 1) of a normal law, the difference of i over j lies
        above D_ij - z SE_ij - |moved_i - moved_j|. Where that is positive for some i, j is dropped.
        The best is dropped only if one of its P - 1 differences is that far off: a chance of at
        most `error` (Bonferroni), as far as estimates are normal and the class is as wrong as half
        of it shows.
        """
        number = len(self.names)
        if number == 1:
            return [Outcome(self.names[0], float(self.values[0]), None, 0.0, 0.0)]
        # Imported here, as it would slow down the command's help.
        from scipy.special import ndtri

        reach = float(ndtri(1 - error / (number - 1)))
        squares = np.sum(self.influence**2, axis=1) + self.errors**2
        found = []
        for start in range(0, number, BLOCK):
            mine = slice(start, start + BLOCK)
            shared = self.influence @ self.influence[mine].T
            variance = np.maximum(squares[:, None] + squares[None, mine] - 2 * shared, 0.0)
            gaps = self.values[:, None] - self.values[None, mine]
            wrong = np.abs(self.moved[:, None] - self.moved[None, mine])
            margins = reach * np.sqrt(variance) + wrong
            lows = gaps - margins
            # None is its own rival.
            own = np.arange(number)[:, None] == np.arange(start, start + gaps.shape[1])
            rivals = np.argmax(np.where(own, -np.inf, lows), axis=0)
            for place, rival in enumerate(rivals):
                found.append(
                    Outcome(
                        self.names[start + place],
                        float(self.values[start + place]),
                        self.names[rival],
                        float(gaps[rival, place]),
                        float(margins[rival, place]),
                    )
                )
        return found


@dataclass(frozen=True)
class Outcome:
    """What a look says of one candidate.

    rival: whose lead over it is clearest; None where it is alone. lead: how much better the rival
    is. margin: how far off that may be.
    """

    name: str
    value: float
    rival: str | None
    lead: float
    margin: float

    @property
    def dropped(self) -> bool:
        """Whether the rival is better, beyond what chance and the class may be to blame for."""
        return self.rival is not None and self.lead > self.margin
