"""The text table that shows a return distribution at a glance."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fle.returns.distribution import ReturnDistribution

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def summary_table(returns: "ReturnDistribution", levels: Sequence[float]) -> str:
    """One row a statistic, one column a coordinate; correlations below for vectors."""
    columns = [returns.marginal(index) for index in range(returns.dim)]
    rows: list[tuple[str, list[float]]] = [
        ("mean", [float(column.mean()) for column in columns]),
        ("std", [float(column.std()) for column in columns]),
    ]
    for level in QUANTILES:
        label = f"quantile {100 * level:g}%"
        rows.append((label, [float(column.quantile(level)) for column in columns]))
    for level in levels:
        rows.append((f"CVaR {100 * level:g}%", [column.cvar(level) for column in columns]))
    if returns.dim > 1:
        matrix = returns.correlation()
        for name, values in zip(returns.names, matrix, strict=True):
            rows.append((f"corr. {name}", [float(value) for value in values]))

    label_width = max(len(label) for label, _ in rows)
    width = max(12, *(len(name) for name in returns.names))
    lines = [" " * label_width + "".join(f"  {name:>{width}}" for name in returns.names)]
    for label, values in rows:
        lines.append(f"{label:<{label_width}}" + "".join(f"  {v:>{width}.5g}" for v in values))
    return "\n".join(lines)
