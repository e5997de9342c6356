"""Models of the return: laws, objectives that fit them, and hyperparameters that build both.

`fle.models.names()` lists the models. Laws need JAX, which is imported when they are asked for.
"""

from fle.models.specs import ModelSpec, family, names, register

__all__ = ["ModelSpec", "family", "names", "register"]
