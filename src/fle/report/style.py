"""How numbers and charts look, the same way in Python and in the page's script."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import FLEError, SettingsError, install

# Figures of the standard deviation that are shown; the numbers in the page carry two more.
FIGURES = 3
GUARD_FIGURES = 2
LARGE, SMALL = 1e7, 1e-4
# Altair builds its classes from a schema, so there are no types to name here.
Chart = Any
Rows = list[dict[str, Any]]

HEIGHT = 220
LABEL_LIMIT = 180
# More curves than this in one chart cannot be told apart; tables have all policies.
MOST_CURVES = 10


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


@dataclass(frozen=True)
class Palette:
    """Colours, as CSS. On the page they are variables: dark mode and paper need no redrawing.

    further: for as many distributions as there are, after the colours with a meaning of their own.
    """

    ink: str
    muted: str
    grid: str
    estimate: str
    tail: str
    behaviour: str
    truth: str
    font: str
    further: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """Colours for things of one kind side by side."""
        return (self.estimate, self.tail, self.truth, *self.further)


PAGE = Palette(
    ink="var(--ink)",
    muted="var(--muted)",
    grid="var(--grid)",
    estimate="var(--estimate)",
    tail="var(--tail)",
    behaviour="var(--behaviour)",
    truth="var(--truth)",
    font="inherit",
    further=("var(--fourth)", "var(--fifth)", "var(--sixth)"),
)
IMAGE = Palette(
    ink="#1d2329",
    muted="#5b6773",
    grid="#e4e8ec",
    estimate="#2a6ab0",
    tail="#cc5522",
    behaviour="#77706a",
    truth="#17804f",
    font="sans-serif",
)


def altair_or_error() -> Any:
    """The altair module, or how to get it."""
    try:
        import altair
        import vl_convert  # noqa: F401
    except ImportError as error:
        raise FLEError(
            f"Reports and charts need Altair and vl-convert: {install('charts')}"
        ) from error
    return altair


def specification(chart: Chart, palette: Palette) -> dict[str, Any]:
    """The chart as Vega-Lite, in the palette's colours."""
    plain: dict[str, Any] = configured(chart, palette).to_dict(validate=False)
    return plain


def configured(chart: Chart, palette: Palette) -> Chart:
    """The chart in the palette's colours."""
    text = {"labelFont": palette.font, "titleFont": palette.font}
    return (
        # The page names every chart itself, so the parts of it need no descriptions.
        chart.configure(background="transparent", font=palette.font, aria=False)
        .configure_mark(aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            **text,
            labelColor=palette.muted,
            titleColor=palette.ink,
            titleFontWeight="normal",
            titleFontSize=12,
            titleLimit=LABEL_LIMIT,
            labelFontSize=11,
            domainColor=palette.muted,
            tickColor=palette.muted,
            gridColor=palette.grid,
            titlePadding=8,
        )
        .configure_axisX(grid=False)
        .configure_axisY(domain=False, ticks=False)
        .configure_title(
            font=palette.font,
            color=palette.ink,
            subtitleFont=palette.font,
            subtitleColor=palette.muted,
            anchor="start",
        )
    )


def rendered(spec: dict[str, Any], suffix: str) -> bytes:
    """A specification as an image: the suffix is .png or .svg."""
    import vl_convert

    opaque = {**spec, "background": "white"}
    if suffix == ".png":
        return bytes(vl_convert.vegalite_to_png(opaque, scale=2))
    if suffix == ".svg":
        return str(vl_convert.vegalite_to_svg(opaque)).encode("utf-8")
    raise SettingsError(f"path: expected .png or .svg, got {suffix or 'no suffix'!r}")


def one_line(name: str) -> str:
    """A user's name as a chart can show it: Vega's own language knows no exotic line ends."""
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())


def value_axis(alt: Any, style: NumberStyle) -> Any:
    """Numbers of a return; powers of ten where the style has them."""
    if style.exponent_figures is None:
        return alt.Axis(tickCount=6)
    return alt.Axis(tickCount=6, format=".3~e")


def between(alt: Any, edges: NDArray[np.float64]) -> Any:
    """A scale from the first to the last edge."""
    return alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False, zero=False)


def at(alt: Any, parameter: str) -> Any:
    """A place in the chart that a parameter decides."""
    return alt.datum(alt.expr(parameter), type="quantitative")


def rule(alt: Any, colour: str, dash: list[int]) -> Chart:
    """A thin line across the chart, to be placed by the caller."""
    data = alt.Data(values=[{}])
    return alt.Chart(data).mark_rule(color=colour, strokeDash=dash, strokeWidth=1.25)
