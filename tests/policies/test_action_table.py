"""The table that every policy becomes checks itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fle.errors import PolicyError
from fle.policies import ActionTable


def test_sizes():
    table = ActionTable(np.zeros((5, 3, 2)), np.full((5, 3), 1 / 3))
    assert len(table) == 5
    assert table.candidates == 3


def test_small_rounding_is_removed_exactly():
    table = ActionTable(np.array([[0, 1]]), np.array([[0.5004, 0.5]], np.float32))
    assert table.probabilities.dtype == np.float64
    assert table.probabilities.sum() == pytest.approx(1, abs=1e-15)
    assert table.actions.dtype == np.int64


@pytest.mark.parametrize(
    ("actions", "probabilities", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3)), r"expected integers of shape \(n, m\).*float64"),
        (np.zeros((2, 3, 1), int), np.zeros((2, 3)), r"expected integers of shape \(n, m\)"),
        (np.zeros((2, 3), int), np.ones((2, 2)), r"expected shape \(2, 3\).*got \(2, 2\)"),
        (np.zeros((0, 3), int), np.zeros((0, 3)), "at least one row"),
        (np.array([[0], [-1]]), np.ones((2, 1)), "row 1 has a negative action"),
        (np.full((2, 1, 1), np.nan), np.ones((2, 1)), "row 0 is nan; expected a finite"),
        (np.zeros((2, 1), int), np.array([[1.0], [1.1]]), "row 1 sums to 1.1; expected 1"),
        (np.zeros((1, 2), int), np.array([[1.5, -0.5]]), "row 0, action 1 is -0.5"),
        (np.zeros((1, 2), int), np.array([[np.nan, 1.0]]), "row 0, action 0 is nan"),
        (np.zeros((1, 2), int), np.array([[np.inf, 1.0]]), "row 0 sums to inf"),
        (np.zeros((1, 1), int), np.array([["a"]]), "probabilities: expected numbers"),
    ],
)
def test_what_is_not_a_table_is_refused(actions, probabilities, message):
    with pytest.raises(PolicyError, match=message):
        ActionTable(actions, probabilities)


@settings(max_examples=50, deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 8), st.integers(1, 6)), elements=st.floats(0.01, 1))
)
def test_rows_sum_to_one(scores):
    probabilities = (scores / scores.sum(axis=1, keepdims=True)).astype(np.float32)
    actions = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    table = ActionTable(actions, probabilities)
    np.testing.assert_allclose(table.probabilities.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(table.probabilities, probabilities, rtol=1e-5)
