"""How numbers are written in the report, the same way in Python and in the page's script."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Figures of the standard deviation that are shown; the numbers in the page carry two more.
FIGURES = 3
GUARD_FIGURES = 2
LARGE, SMALL = 1e7, 1e-4


@dataclass(frozen=True)
class NumberStyle:
    """Fixed decimals, or a power of ten where those would be long.

    places: decimals that show FIGURES figures of the standard deviation; negative for large ones.
    exponent_figures: decimals of the mantissa, None for fixed decimals.
    """

    places: int
    exponent_figures: int | None

    @classmethod
    def of(cls, mean: float, std: float) -> "NumberStyle":
        """The style that suits a distribution of this mean and standard deviation."""
        size = max(abs(mean), std) or 1.0
        # Rounding errors of the mean are not a spread.
        spread = std if std > 1e-12 * size else size
        places = FIGURES - 1 - math.floor(math.log10(spread))
        if size < LARGE and spread >= SMALL:
            return cls(places, None)
        return cls(places, max(FIGURES - 1, places + math.floor(math.log10(size))))

    def text(self, value: float) -> str:
        """The number in words of this style, with a true minus sign."""
        if self.exponent_figures is None:
            decimals = max(0, self.places)
            written = f"{value:,.{decimals}f}"
        else:
            mantissa, exponent = f"{value:.{self.exponent_figures}e}".split("e")
            written = f"{mantissa}e{int(exponent)}"
        if float(written.replace(",", "")) == 0:
            written = written.removeprefix("-")
        return written.replace("-", "\N{MINUS SIGN}")

    def rounded(self, values: ArrayLike) -> NDArray[np.float64]:
        """Values as precise as the page needs them, and short to write."""
        return np.round(np.asarray(values, dtype=float), self.places + GUARD_FIGURES)


def percent(share: float) -> str:
    """A probability with one decimal."""
    return f"{100 * share:.1f}%"
