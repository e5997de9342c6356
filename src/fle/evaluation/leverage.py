"""Which rows a batch is drawn from: evenly, or more often where observations are rare."""

import numpy as np

# No row counts for more than this many, however far out it lies.
MOST = 100.0


def with_leverage(
    weights: np.ndarray | None, observations: np.ndarray, share: float
) -> np.ndarray | None:
    """Row weights of which a share goes by leverage, the squared distance in standard deviations.

    A likelihood may be weighted by any function of its inputs and still has its maximum at the
    truth. Weights by leverage bound the largest error of a linear fit instead of the average one,
    and the target policy may well go where the logged one seldom went.

    observations: (n, k) vectors; for indices of states the weights stay as they are.
    """
    if share == 0 or observations.ndim == 1:
        return weights
    given = np.ones(len(observations)) if weights is None else weights
    centred = observations - np.average(observations, axis=0, weights=given)
    covariance = np.cov(centred, rowvar=False, aweights=given, bias=True).reshape(
        centred.shape[1], -1
    )
    # A constant coordinate, or one that others determine, says nothing of distance.
    inverse = np.linalg.pinv(covariance, rcond=1e-9, hermitian=True)
    rank = max(1, np.linalg.matrix_rank(covariance, rtol=1e-9, hermitian=True))
    distance = np.einsum("ij,ij->i", centred @ inverse, centred) / rank
    return given * (1 - share + share * np.minimum(distance, MOST))
