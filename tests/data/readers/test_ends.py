"""How episodes end: by several columns, or with every row."""

import numpy as np
import pytest
from reader_logs import log, read_with_warnings

from fle.data import read
from fle.errors import DataError

DIED, DISCHARGED = np.array(["N", "N", "Y", "N", "N"]), np.array([0, 0, 0, 0, 1])


def test_any_of_several_columns_ends_an_episode():
    columns = log(terminated=None, died=DIED, discharged=DISCHARGED)
    data = read(columns, terminated=["died", "discharged"])
    np.testing.assert_array_equal(data.terminations, [0, 0, 1, 0, 1])
    single, messages = read_with_warnings(columns, terminated="died")
    assert single.terminations.sum() == 1
    assert "1 of 2 episodes end with a row that is neither" in messages[0]


def test_each_of_them_is_checked():
    columns = log(terminated=None, died=DIED, discharged=DISCHARGED * 2)
    with pytest.raises(DataError, match=r"column 'discharged'.*row 4 is 2; expected True or False"):
        read(columns, terminated=["died", "discharged"])


def test_every_row_may_be_an_episode_of_its_own():
    columns = log(episode=None, terminated=None, truncated=None, step=None)
    with pytest.raises(DataError, match="nothing says where episodes end"):
        read(columns)
    data = read(columns, terminated=True)
    assert data.terminations.all()
    assert data.number_of_episodes == len(data) == 5


@pytest.mark.parametrize("wrong", [{"terminated": False}, {"truncated": True}])
def test_no_other_truth_value_means_anything(wrong):
    with pytest.raises(DataError, match="expected columns, or terminated=True"):
        read(log(), **wrong)
