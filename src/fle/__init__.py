"""Distributional off-policy evaluation by Fitted Likelihood Estimation."""

__version__ = "0.1.0"
