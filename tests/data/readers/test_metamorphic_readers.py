"""Other units, orders and names of what is in a file change what is read only as they must."""

import sys
import warnings

import numpy as np
import pytest
from reader_logs import ALL_WRITERS, write_parquet
from test_read_minari import write_arrow, write_hdf5

from fle.data import Dataset, prepare, read

LENGTHS = (3, 5, 2, 4)
ROWS, WIDTH = sum(LENGTHS), 3
EPISODES = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
STEPS = np.concatenate([np.arange(length) for length in LENGTHS])
ENDS = np.append(EPISODES[1:] != EPISODES[:-1], True)
UNITS = [(1e-9, 0.0), (1e-9, 1e6), (1e9, -1e6), (1e9, 0.0)]


def arrays(scale=1.0, offset=0.0):
    generator = np.random.default_rng(0)
    values = generator.standard_normal((ROWS, WIDTH + 3))
    return scale * (values + offset)


def table(values, names=("x.0", "x.1", "x.2")):
    columns = {"episode": EPISODES, "step": STEPS, "terminated": ENDS}
    columns |= {name: values[:, i] for i, name in enumerate(names)}
    return columns | {"u": values[:, WIDTH], "v": values[:, WIDTH + 1], "r": values[:, WIDTH + 2]}


ROLES = {"observation": ["x.0", "x.1", "x.2"], "action": ["u", "v"], "reward": "r"}


def quietly(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read(source, **options)


def shards(folder, columns):
    """Two files, of which the second begins in the middle of an episode."""
    (folder / "shards").mkdir()
    for name, rows in (("0.parquet", slice(0, 5)), ("1.parquet", slice(5, None))):
        write_parquet(folder / "shards" / name, {n: v[rows] for n, v in columns.items()})
    return folder / "shards"


def through(write):
    return lambda folder, columns, **roles: quietly(write(folder, columns), **roles)


def without_pyarrow(folder, columns, **roles):
    """CSV by the reader of its own."""
    path = ALL_WRITERS["csv"](folder, columns)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
            patch.setitem(sys.modules, name, None)
        return quietly(path, **roles)


def prepared(folder, columns, **roles):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepare(shards(folder, columns), folder / "prepared", **roles)


READERS = {kind: through(write) for kind, write in ALL_WRITERS.items()}
READERS |= {"shards": through(shards), "csv without pyarrow": without_pyarrow}
# Reads files once, so that the rows of an episode are together.
IN_ONE_PASS = {"prepared": prepared}


def ask(kind, folder, columns, **roles):
    return (READERS | IN_ONE_PASS)[kind](folder, columns, **roles)


every_reader = pytest.mark.parametrize("kind", READERS | IN_ONE_PASS)


def numbers(data):
    """Observations, actions and rewards side by side."""
    parts = (data.observations, data.actions, data.rewards)
    return np.concatenate([part.astype(np.float64) for part in parts], axis=1)


def check_numbers(data, values):
    """Readers round to float32 only what loses nothing, or has no offset to lose digits to."""
    found = numbers(data)
    spread = values.std(axis=0)
    np.testing.assert_allclose(found / spread, values / spread, rtol=0, atol=1e-6)
    # Next observations are those of the row after.
    inside = np.flatnonzero(~ENDS)
    np.testing.assert_array_equal(data.next_observations[inside], data.observations[inside + 1])
    np.testing.assert_array_equal(data.terminations, ENDS)


@every_reader
@pytest.mark.parametrize(("scale", "offset"), UNITS)
def test_units_come_through(kind, scale, offset, tmp_path):
    values = arrays(scale, offset)
    check_numbers(ask(kind, tmp_path, table(values), **ROLES), values)


@every_reader
@pytest.mark.parametrize("seed", range(3))
def test_order_and_names_of_columns_make_no_difference(kind, seed, tmp_path):
    generator = np.random.default_rng(seed)
    names = ("height", "9 lives", "é")
    columns = table(arrays(), names)
    shuffled = {name: columns[name] for name in generator.permutation(list(columns))}
    roles = ROLES | {"observation": list(names)}
    data = ask(kind, tmp_path, shuffled, **roles)
    check_numbers(data, arrays())
    assert data.observation_names == names
    # What columns are called is no part of it, but for folders that go by their checksums.
    if kind not in IN_ONE_PASS:
        (tmp_path / "plain").mkdir()
        plain = ask(kind, tmp_path / "plain", table(arrays()), **ROLES)
        assert data.fingerprint == plain.fingerprint


@every_reader
def test_numbered_columns_are_in_the_order_of_their_numbers(kind, tmp_path):
    values = arrays()
    wide = {f"observation.{i}": values[:, i % 6] + i for i in range(12)}
    columns = {"action": np.arange(ROWS) % 2, "reward": values[:, 0], "terminated": ENDS}
    names = np.random.default_rng(0).permutation(list(wide))
    data = ask(kind, tmp_path, columns | {name: wide[name] for name in names})
    expected = np.stack([wide[f"observation.{i}"] for i in range(12)], axis=1)
    np.testing.assert_allclose(data.observations, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("seed", range(3))
def test_order_of_rows_and_names_of_episodes_make_no_difference(kind, seed, tmp_path):
    """Episodes come in the order of their first rows, and rows in the order of their steps."""
    generator = np.random.default_rng(seed)
    values, order = arrays(), generator.permutation(ROWS)
    columns = table(values) | {"episode": generator.permutation(1000)[:4][EPISODES]}
    shuffled = {name: column[order] for name, column in columns.items()}
    data = ask(kind, tmp_path, shuffled, **ROLES)
    first = {episode: int(np.flatnonzero(EPISODES[order] == episode)[0]) for episode in range(4)}
    by_place = sorted(first, key=first.__getitem__)
    rows = np.concatenate([np.flatnonzero(episode == EPISODES) for episode in by_place])
    np.testing.assert_array_equal(order[data.source_rows], rows)
    np.testing.assert_allclose(numbers(data), values[rows], rtol=1e-6)
    assert data.episodes.tolist() == np.repeat(np.arange(4), np.array(LENGTHS)[by_place]).tolist()


@pytest.mark.parametrize(("scale", "offset"), UNITS)
def test_units_come_through_whole_episodes(scale, offset):
    values = arrays(scale, offset)
    episodes = [
        {
            "observations": values[mine, :WIDTH],
            "actions": values[mine, WIDTH : WIDTH + 2],
            "rewards": values[mine, -1],
            "terminated": True,
        }
        for mine in (episode == EPISODES for episode in range(len(LENGTHS)))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_numbers(Dataset.from_episodes(episodes), values)


def words(kind, folder, names, **options):
    """A log whose actions, and one of whose observations, are words."""
    codes = np.arange(ROWS) % 3
    columns = {"mood": np.array(names)[codes[::-1]], "act": np.array(names)[codes]}
    roles = {"observation": ["x.0", "mood"], "action": "act", "reward": "r"}
    return ask(kind, folder, table(arrays()) | columns, **roles, **options)


# NumPy's text has no place in HDF5, and one pass does not know all categories: it is refused.
@pytest.mark.parametrize("kind", [kind for kind in READERS if kind != "h5"])
def test_names_of_actions_and_categories_change_their_codes_alone(kind, tmp_path):
    """Renamed so that their order is another: what each row says stays."""
    one, other = ("left", "right", "stay"), ("z", "é", "9 b")
    labels = [{"action_labels": list(names)} for names in (one, other)]
    for names, options in ((one, {}), (other, {}), (one, labels[0]), (other, labels[1])):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        data = words(kind, folder, names, **options)
        said = [data.action_labels[code] for code in data.actions]
        assert said == [names[code] for code in np.arange(ROWS) % 3]
        assert data.action_labels == (names if options else tuple(sorted(names)))
        moods = [name.removeprefix("mood=") for name in data.observation_names[1:]]
        assert [moods[code] for code in data.observations[:, 1:].argmax(axis=1)] == [
            names[code] for code in (np.arange(ROWS) % 3)[::-1]
        ]


def d4rl(folder, values):
    """Flat arrays under the names of D4RL."""
    columns = {"observations": values[:, :WIDTH], "actions": values[:, WIDTH : WIDTH + 2]}
    columns |= {"rewards": values[:, -1], "terminals": ENDS, "timeouts": np.zeros(ROWS, bool)}
    return ALL_WRITERS["h5"](folder, columns)


def minari(write):
    def written(folder, values):
        episodes = [
            {
                "observations": np.concatenate([values[mine, :WIDTH], values[mine, :WIDTH][-1:]])[
                    :, :2
                ],
                "actions": values[mine, WIDTH],
                "rewards": values[mine, -1],
                "terminations": ENDS[mine],
                "truncations": np.zeros(mine.sum(), bool),
            }
            for mine in (episode == EPISODES for episode in range(len(LENGTHS)))
        ]
        box = '{"type": "Box", "dtype": "float64", "shape": [1], "low": [-9], "high": [9]}'
        write(folder / "data", episodes, total_episodes=len(LENGTHS), action_space=box)
        return folder / "data"

    return written


@pytest.mark.parametrize(("scale", "offset"), UNITS)
def test_units_come_through_d4rl(scale, offset, tmp_path):
    values = arrays(scale, offset)
    check_numbers(quietly(d4rl(tmp_path, values)), values)


@pytest.mark.parametrize("write", [write_hdf5, write_arrow])
@pytest.mark.parametrize(("scale", "offset"), UNITS)
def test_units_come_through_minari(write, scale, offset, tmp_path):
    values = arrays(scale, offset)
    check_numbers(quietly(minari(write)(tmp_path, values)), values[:, [0, 1, WIDTH, -1]])
