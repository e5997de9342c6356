"""The directory that a reproduction fills: one file a run, so that it can go on at any time."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from fle.files import make_directory, read_json, write_json
from fle.fitting.progress import Progress, Silent
from fle.paper.presets import METHODS, Key, Setting, setting_of

Perform = Callable[[Key, Setting, Progress], dict[str, Any]]


class Collected(NamedTuple):
    """Runs that were made with the present settings, and the names of files that were not."""

    runs: list[dict[str, Any]]
    outdated: list[str]


class Store:
    """Runs of one directory. Quick ones are kept apart, so that they replace nothing."""

    def __init__(self, directory: Path, *, quick: bool):
        self.directory = directory
        self.quick = quick
        self.runs = directory / ("runs-quick" if quick else "runs")

    def prepare(self) -> None:
        """Make the directories before anything is trained."""
        make_directory(self.runs)

    def setting(self, key: Key) -> Setting:
        """How the run of a key is to be made."""
        return setting_of(key.experiment, key.method, key.preset, quick=self.quick)

    def missing(self, keys: Iterable[Key]) -> list[Key]:
        """Those that have no file, or one that was made with other settings."""
        return [key for key in keys if not self._has(key)]

    def make(self, key: Key, perform: Perform, progress: Progress | None = None) -> None:
        """Perform a run and keep what it found."""
        content = perform(key, self.setting(key), progress or Silent())
        write_json(self.runs / key.file_name, content)

    def collect(self) -> Collected:
        """All runs there are, whichever call made them."""
        runs, outdated = [], []
        for path in sorted(self.runs.glob("*_seed*.json")):
            run = read_json(path)
            known = run["method"] in METHODS.get((run["experiment"], run["preset"]), ())
            if known and self._is_current(run):
                runs.append(run)
            else:
                outdated.append(path.name)
        return Collected(runs, outdated)

    def study_path(self, name: str) -> Path:
        """The file of a study of the theory."""
        return self.runs / f"study_{name}.json"

    def _has(self, key: Key) -> bool:
        path = self.runs / key.file_name
        return path.exists() and read_json(path)["settings"] == self.setting(key).as_plain()

    def _is_current(self, run: dict[str, Any]) -> bool:
        setting = setting_of(run["experiment"], run["method"], run["preset"], quick=self.quick)
        return bool(run["settings"] == setting.as_plain())
