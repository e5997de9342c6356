"""The time that a policy may take, over all its calls."""

import time

import pytest

from fle.errors import PolicyError
from fle.policies.function_policies import Deadline


def nothing():
    pass


def test_an_answer_in_time_is_given():
    assert Deadline("policy", 60).run(lambda: 7, nothing) == 7


def test_work_that_ends_while_it_is_waited_for_was_too_long_all_the_same():
    # The thread is often done before anyone looks: twenty times, so that chance does not decide.
    for _ in range(20):
        with pytest.raises(PolicyError, match="took longer than 1e-09 s in total"):
            Deadline("policy", 1e-9).run(nothing, nothing)


def test_calls_add_up():
    deadline = Deadline("policy", 0.5)
    deadline.run(lambda: time.sleep(0.3), nothing)
    with pytest.raises(PolicyError, match=r"longer than 0\.5 s"):
        deadline.run(lambda: time.sleep(0.3), nothing)


def test_late_work_is_told_to_stop():
    told = []
    with pytest.raises(PolicyError, match="more time"):
        Deadline("policy", 0.05).run(lambda: time.sleep(0.5), lambda: told.append(True))
    assert told == [True]
