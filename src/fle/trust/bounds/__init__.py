"""The paper's guarantees as pure functions, each with its inputs named.

Finite horizon (total variation), discounted (Wasserstein), what follows for CVaR, how large the
classes of the two examples are, and how well data covers a policy. `docs/guarantees.md` lists them.
"""

from fle.trust.bounds.complexity import (
    density_ratio,
    gaussian_coverage,
    gaussian_total_variation,
    gaussian_zeta,
    lqr_log_brackets,
    lqr_log_brackets_by_integral,
    relative_condition_number,
    tabular_log_brackets,
    tabular_log_brackets_by_integral,
)
from fle.trust.bounds.discounted import (
    balanced_stages,
    contraction_factor,
    discounted_bracketing_bound,
    discounted_bracketing_zeta,
    discounted_finite_class_bound,
    discounted_finite_class_zeta,
    return_diameter,
    simplified_balanced_stages,
    simplified_wasserstein_bound,
    wasserstein_bound,
)
from fle.trust.bounds.finite_horizon import (
    bracket_width,
    bracketing_bound,
    bracketing_sample_size,
    bracketing_zetas,
    cvar_bound,
    cvar_finite_class_bound,
    finite_class_bound,
    finite_class_sample_size,
    finite_class_zetas,
    sharp_cvar_bound,
    total_variation_bound,
    wasserstein_from_total_variation,
)

__all__ = [
    "balanced_stages",
    "bracket_width",
    "bracketing_bound",
    "bracketing_sample_size",
    "bracketing_zetas",
    "contraction_factor",
    "cvar_bound",
    "cvar_finite_class_bound",
    "density_ratio",
    "discounted_bracketing_bound",
    "discounted_bracketing_zeta",
    "discounted_finite_class_bound",
    "discounted_finite_class_zeta",
    "finite_class_bound",
    "finite_class_sample_size",
    "finite_class_zetas",
    "gaussian_coverage",
    "gaussian_total_variation",
    "gaussian_zeta",
    "lqr_log_brackets",
    "lqr_log_brackets_by_integral",
    "relative_condition_number",
    "return_diameter",
    "sharp_cvar_bound",
    "simplified_balanced_stages",
    "simplified_wasserstein_bound",
    "tabular_log_brackets",
    "tabular_log_brackets_by_integral",
    "total_variation_bound",
    "wasserstein_bound",
    "wasserstein_from_total_variation",
]
