"""All families, the set each belongs to, and the packages it needs."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, NamedTuple

from tasks.task import Task

Set = Literal["development", "validation"]
SETS: tuple[Set, ...] = ("development", "validation")
MUJOCO = ("gymnasium", "mujoco", "imageio")


class Family(NamedTuple):
    """A family of tasks: the module of its name says what they are."""

    name: str
    set: Set
    requires: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Packages that are not installed."""
        return tuple(package for package in self.requires if find_spec(package) is None)

    def tasks(self) -> tuple[Task, ...]:
        """Its tasks; the packages it requires must be there."""
        return _tasks_of(self.name)


@cache
def _tasks_of(family: str) -> tuple[Task, ...]:
    return tuple(import_module(f"tasks.{family}").tasks())


# The split was made before any of them was run; README.md says why it is as it is.
FAMILIES = (
    Family("acrobot", "development"),
    Family("bandit", "development"),
    Family("cartpole", "development"),
    Family("chain", "development"),
    Family("clinical", "development"),
    Family("deep_sea_treasure", "development", ("gymnasium", "mo_gymnasium")),
    Family("frozen_lake", "development", ("gymnasium",)),
    Family("inverted_pendulum", "development", MUJOCO),
    Family("late_reward", "development"),
    Family("lender", "development"),
    Family("pendulum", "development"),
    Family("point_mass", "development"),
    Family("recommender", "development"),
    Family("tabular", "development"),
    Family("wide", "development"),
    Family("blackjack", "validation", ("gymnasium",)),
    Family("cliff_walking", "validation", ("gymnasium",)),
    Family("finance", "validation"),
    Family("hopper", "validation", MUJOCO),
    Family("inventory", "validation"),
    Family("lqr", "validation"),
    Family("lunar_lander", "validation", ("gymnasium", "Box2D")),
    Family("maintenance", "validation"),
    Family("mountain_car", "validation"),
    Family("queueing", "validation"),
    Family("resource_gathering", "validation", ("gymnasium", "mo_gymnasium")),
    Family("swimmer", "validation", MUJOCO),
    Family("taxi", "validation", ("gymnasium",)),
)


def set_of(task: Task) -> Set:
    """The set that a task's family belongs to."""
    return next(family.set for family in FAMILIES if family.name == task.family)


def available_tasks(families: tuple[Family, ...] = FAMILIES) -> list[Task]:
    """All tasks whose packages are installed."""
    return [task for family in families if not family.missing for task in family.tasks()]


def chosen_tasks(only_set: Set | None, names: list[str]) -> tuple[list[Task], list[str]]:
    """The tasks of a set, or those named by task or family; and what had to be left out, and why.

    A name that no family has is refused.
    """
    families = [family for family in FAMILIES if only_set in (None, family.set)]
    known = {family.name for family in families}
    for name in names:
        if name.split("-")[0] not in known:
            raise SystemExit(
                f"--task: expected a task or a family of {', '.join(sorted(known))}, got {name}"
            )
    wanted = {name.split("-")[0] for name in names} or known
    asked = [family for family in families if family.name in wanted]
    skipped = [
        f"{family.name}: needs {', '.join(family.missing)}" for family in asked if family.missing
    ]
    found = available_tasks(tuple(asked))
    if names:
        found = [task for task in found if {task.name, task.family} & set(names)]
    if not found and not skipped:
        offered = ", ".join(task.name for task in available_tasks(tuple(asked)))
        raise SystemExit(f"--task: expected one of {offered}, got {', '.join(names)}")
    return found, skipped
