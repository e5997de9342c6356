"""Columns that stand beside others are paired by their names, never by their place in the file."""

import itertools

import numpy as np
import pytest
from reader_logs import ALL_WRITERS, log, read_with_warnings

from fle.data import read
from fle.errors import DataError

NAMES = ("x", "y", "z")
HERE = np.array([[1.0, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400], [5, 50, 500]]) + 0.5
AFTER = np.append(HERE[1:], HERE[-1:], axis=0)


def columns(order=NAMES, prefixes=("observation.", "next_observation."), names=NAMES, **changes):
    """A log whose next observations stand in another order than the observations."""
    rest = {name: values for name, values in log().items() if not name.startswith("obs")}
    here = {prefixes[0] + name: HERE[:, names.index(name)] for name in names}
    after = {prefixes[1] + name: AFTER[:, names.index(name)] for name in order}
    together = {**rest, **here, **after, **changes}
    return {name: values for name, values in together.items() if values is not None}


@pytest.mark.parametrize("kind", ALL_WRITERS)
@pytest.mark.parametrize("order", list(itertools.permutations(NAMES)), ids="".join)
def test_next_observations_follow_the_observations(tmp_path, kind, order):
    data = read(ALL_WRITERS[kind](tmp_path, columns(order)))
    np.testing.assert_array_equal(data.observations, HERE)
    np.testing.assert_array_equal(data.next_observations, AFTER)
    # HDF5 lists names in the order of the alphabet, whatever was written first.
    moved = kind != "h5" and order != NAMES
    assert len(data.notes) == moved
    if moved:
        assert "'next_observation.x', 'next_observation.y', 'next_observation.z'" in data.notes[0]


@pytest.mark.parametrize(
    ("prefixes", "options"),
    [
        (("obs_", "next_observation."), {"observation": "obs_*"}),
        (("obs_", "then_"), {"observation": "obs_*", "next_observation": "then_"}),
        (("obs.", "then/"), {"observation": "obs", "next_observation": "then/?"}),
        (("observation.", "then_"), {"next_observation": ["then_*"]}),
        (("observation.", "next_observation."), {"observation": "observation.[x-z]"}),
    ],
)
def test_mapped_columns_are_paired_too(prefixes, options):
    data = read(columns(("z", "x", "y"), prefixes), **options)
    np.testing.assert_array_equal(data.observations, HERE)
    np.testing.assert_array_equal(data.next_observations, AFTER)


def test_the_order_that_the_user_lists_is_that_of_both():
    listed = [f"observation.{name}" for name in "zxy"]
    data = read(columns(), observation=listed)
    np.testing.assert_array_equal(data.observations, HERE[:, [2, 0, 1]])
    np.testing.assert_array_equal(data.next_observations, AFTER[:, [2, 0, 1]])


def test_lists_of_other_names_are_paired_as_listed():
    given = columns(prefixes=("a", "b"))
    data = read(given, observation=["az", "ax"], next_observation=["bz", "bx"])
    np.testing.assert_array_equal(data.next_observations, AFTER[:, [2, 0]])


def test_parts_of_the_same_names_are_told_apart():
    """Positions and velocities have an x and a y each."""
    given = log(**{"observation.x": None, "observation.y": None})
    for prefix, values in (("", HERE), ("next_", AFTER)):
        for name, column in (("vel_y", 2), ("pos_x", 0), ("vel_x", 1)):
            given[prefix + name] = values[:, column]
    options = {"observation": ["pos_*", "vel_*"], "next_observation": ["next_pos_*", "next_vel_*"]}
    data = read(given, **options)
    np.testing.assert_array_equal(data.observations, HERE[:, [0, 2, 1]])
    np.testing.assert_array_equal(data.next_observations, AFTER[:, [0, 2, 1]])


@pytest.mark.parametrize("kind", ALL_WRITERS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_observation.y": None}, r"next_observation has none for 'observation\.y';"),
        ({"observation.y": None}, r"observation has none for 'next_observation\.y';"),
        (
            {"next_observation.y": None, "next_observation.w": AFTER[:, 1]},
            r"next_observation has none for 'observation\.y', and observation has none for"
            r" 'next_observation\.w';",
        ),
    ],
)
def test_a_missing_partner_is_named(tmp_path, kind, changes, message):
    with pytest.raises(DataError, match=message):
        read(ALL_WRITERS[kind](tmp_path, columns(**changes)))


def test_names_beside_no_names_are_refused():
    nameless = {f"observation.{name}": None for name in NAMES}
    with pytest.raises(DataError, match="cannot be paired by their names"):
        read(columns(**nameless, observation=HERE))
    with pytest.raises(DataError, match="cannot be paired by their names"):
        read(columns(prefixes=("a", "next_observation.")), observation=["az", "ax", "ay"])


def test_numbers_say_the_place_in_an_array():
    given = columns(order="201", names="012")
    for number in "012":
        del given[f"observation.{number}"]
    data = read({**given, "observation": HERE})
    np.testing.assert_array_equal(data.next_observations, AFTER)


def test_lists_must_have_the_width_of_their_partners():
    """Widths 2 + 1 and 1 + 2 make three columns each, of which the second would be mixed up."""
    given = columns(
        **{f"{side}.{name}": None for side in ("observation", "next_observation") for name in NAMES}
    )
    given |= {"observation.a": HERE[:, :2], "observation.b": HERE[:, 2:]}
    given |= {"next_observation.a": AFTER[:, :1], "next_observation.b": AFTER[:, 1:]}
    with pytest.raises(DataError, match=r"'observation\.a' has width 2 but 'next_observation\.a'"):
        read(given)


def test_initial_observations_have_no_names_and_a_note_says_so():
    data = read(columns(initial_observations=HERE[:1]))
    assert data.notes == (
        "initial_observations has no names; its columns are taken to be 'observation.x',"
        " 'observation.y', 'observation.z'",
    )
    assert read(log(initial_observations=HERE[:1, :1]), observation="observation.x").notes == ()


CHANCES = np.array([[0.5, 0.25, 0.25], [1, 0, 0], [0, 0, 1], [0.25, 0.5, 0.25], [0, 1, 0]])
ACTIONS = ("left", "none", "right")


def chances(prefix, order=ACTIONS):
    return {prefix + name: CHANCES[:, ACTIONS.index(name)] for name in order}


@pytest.mark.parametrize("order", list(itertools.permutations(ACTIONS)), ids="-".join)
def test_actions_have_one_order_in_all_policies(order):
    given = {**log(), **chances("old."), **chances("new.", order)}
    data = read(given, probability={"old": "old", "new": "new"})
    for policy in ("old", "new"):
        np.testing.assert_array_equal(data.recorded_probabilities(policy)[1], CHANCES[[0, 3]])


@pytest.mark.parametrize("order", list(itertools.permutations(ACTIONS)), ids="-".join)
def test_next_probabilities_have_the_order_of_the_probabilities(order):
    given = {**log(), **chances("probability."), **chances("next_probability.", order)}
    following, initial = read(given).recorded_probabilities()
    np.testing.assert_array_equal(following, CHANCES)
    np.testing.assert_array_equal(initial, CHANCES[[0, 3]])


def test_policies_with_different_actions_are_refused():
    other = {f"new.{number}": CHANCES[:, number] for number in range(3)}
    with pytest.raises(DataError, match=r"new has none for 'old\.left', 'old\.none', 'old\.right'"):
        read({**log(), **chances("old."), **other}, probability={"old": "old", "new": "new"})
    with pytest.raises(DataError, match=r"next_probability has none for 'probability\.none'"):
        read(
            {**log(), **chances("probability."), **chances("next_probability.", ("left", "right"))}
        )


def test_a_list_of_columns_beside_numbers():
    """The list is the user's word for which action is which."""
    other = {f"new.{number}": CHANCES[:, number] for number in range(3)}
    listed = [f"old.{name}" for name in ACTIONS]
    data, _ = read_with_warnings(
        {**log(), **chances("old.", ACTIONS[::-1]), **other},
        probability={"old": listed, "new": "new"},
    )
    for policy in ("old", "new"):
        np.testing.assert_array_equal(data.recorded_probabilities(policy)[1], CHANCES[[0, 3]])
