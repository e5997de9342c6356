"""Make the data sets that come with fle: logs, policies, and the truth to judge estimates by.

    python examples/make_bundled_data.py [FOLDER] [NAME ...]

needs gymnasium, mo-gymnasium, onnx, onnxruntime and pyarrow. Policies are written as ONNX files
first, and those files act in the environments. With the same versions the same files come out.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import mo_gymnasium
import numpy as np
import onnx
import onnxruntime
import pyarrow
import pyarrow.parquet
from onnx import TensorProto, helper, numpy_helper

from fle.tasks import monte_carlo_returns

FOLDER = Path(__file__).parents[1] / "src" / "fle" / "examples"
PACKAGES = ("gymnasium", "mo-gymnasium", "numpy", "onnx", "onnxruntime")
SEED = 2023
TRUE_RETURNS = 10_000
NEGLIGIBLE = 1e-4

# observations (n, p), generator -> actions (n,) or (n, k)
Act = Callable[[np.ndarray, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Recipe:
    """How one example is made.

    make_endless: the environment without the time limit of the log, for complete returns.
    """

    name: str
    description: str
    environment: str
    make: Callable[[], Any]
    make_endless: Callable[[], Any]
    behaviour: onnx.ModelProto
    target: onnx.ModelProto
    observation_names: tuple[str, ...]
    action_name: str
    reward_names: tuple[str, ...]
    episodes: int
    gamma: float | None = None
    horizon: int | None = None

    @property
    def true_horizon(self) -> int:
        """Steps after which what is left of a return is negligible."""
        if self.horizon is not None:
            return self.horizon
        return int(np.ceil(np.log(NEGLIGIBLE) / np.log(self.gamma or 0.0)))


def cartpole() -> Recipe:
    return Recipe(
        name="cartpole",
        description=(
            "CartPole: a cart keeps a pole upright, and each step that it stands earns 1. The log "
            "is of a controller that pushes almost at random; the target policy follows the same "
            "rule more firmly."
        ),
        environment="gymnasium: CartPole-v1",
        make=lambda: gymnasium.make("CartPole-v1"),
        make_endless=lambda: gymnasium.make_vec(
            "CartPole-v1", 500, vectorization_mode="vector_entry_point", max_episode_steps=10_000
        ),
        behaviour=soft_push(1.0),
        target=soft_push(2.5),
        observation_names=("position", "velocity", "angle", "spin"),
        action_name="action",
        reward_names=("reward",),
        episodes=900,
        gamma=0.97,
    )


def reservoir() -> Recipe:
    def make() -> Any:
        return mo_gymnasium.make("water-reservoir-v0", time_limit=12)

    return Recipe(
        name="reservoir",
        description=(
            "Water reservoir: every month for a year, a dam releases water. It costs to be above "
            "the flood level, and to release less than is demanded. The log is of an operator who "
            "releases about what flows in; the target policy keeps less behind the dam."
        ),
        environment="mo-gymnasium: water-reservoir-v0, time_limit=12",
        make=make,
        make_endless=make,
        behaviour=release_rule(slope=0.45, base=15.0, std=12.0),
        target=release_rule(slope=0.6, base=12.0, std=4.0),
        observation_names=("level",),
        action_name="action.release",
        reward_names=("reward.flooding", "reward.shortage"),
        episodes=1_500,
        horizon=12,
    )


RECIPES = {recipe.__name__: recipe for recipe in (cartpole, reservoir)}


def soft_push(firmness: float) -> onnx.ModelProto:
    """Push to the side to which the pole falls, with probabilities softmax(obs @ weights)."""
    rule = firmness * np.array([0.02, 0.05, 1.0, 0.5]) / 2
    return policy_file(
        [
            helper.make_node("MatMul", ["obs", "weights"], ["scores"]),
            helper.make_node("Softmax", ["scores"], ["probs"], axis=-1),
        ],
        {"weights": np.stack([-rule, rule], axis=1)},
        width=4,
        outputs={"probs": 2},
    )


def release_rule(*, slope: float, base: float, std: float) -> onnx.ModelProto:
    """Ask for a normal amount around base + slope * level; the dam releases what it can of it."""
    return policy_file(
        [
            helper.make_node("Mul", ["obs", "slope"], ["scaled"]),
            helper.make_node("Add", ["scaled", "base"], ["mean"]),
            helper.make_node("Mul", ["obs", "zero"], ["nothing"]),
            helper.make_node("Add", ["nothing", "noise"], ["std"]),
        ],
        {"slope": [slope], "base": [base], "zero": [0.0], "noise": [std]},
        width=1,
        outputs={"mean": 1, "std": 1},
    )


def policy_file(
    nodes: Sequence[onnx.NodeProto], constants: dict[str, Any], *, width: int, outputs: dict
) -> onnx.ModelProto:
    def port(name: str, size: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

    graph = helper.make_graph(
        nodes,
        "policy",
        [port("obs", width)],
        [port(name, size) for name, size in outputs.items()],
        [
            numpy_helper.from_array(np.asarray(values, np.float32), name)
            for name, values in constants.items()
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return model


def acting(path: Path) -> Act:
    """A policy file as a player: draws from its probabilities, or from its normal law."""
    session = onnxruntime.InferenceSession(path.read_bytes())
    names = [output.name for output in session.get_outputs()]

    def act(observations: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        answers = dict(zip(names, session.run(None, {"obs": observations}), strict=True))
        if "probs" in answers:
            levels = generator.random((len(observations), 1))
            return (np.cumsum(answers["probs"][:, :-1], axis=1) <= levels).sum(axis=1)
        # In the precision of the log, so that the logged action is the one that acted.
        return generator.normal(answers["mean"], answers["std"]).astype(np.float32)

    return act


def play(environment: Any, act: Act, episodes: int, seed: int) -> Iterator[dict]:
    """Rows of whole episodes, as far as the environment goes.

    A number of episodes is fixed, not of rows: to cut the last ones off would favour short ones.
    """
    for_environment, for_policy = np.random.SeedSequence(seed).spawn(2)
    generator = np.random.default_rng(for_policy)
    environment.reset(seed=int(for_environment.generate_state(1)[0]))
    for episode in range(episodes):
        observation, _ = environment.reset()
        for step in count():
            action = act(observation[None], generator)[0]
            following, reward, terminated, truncated, _ = environment.step(action)
            yield {
                "episode": episode,
                "step": step,
                "observation": observation,
                "action": action,
                "reward": np.atleast_1d(reward),
                "next_observation": following,
                "terminated": bool(terminated),
                "truncated": bool(truncated and not terminated),
            }
            if terminated or truncated:
                break
            observation = following


def true_returns(recipe: Recipe, act: Act, seed: int) -> np.ndarray:
    """Returns (n, d) of the target policy, from the environment's own initial states."""
    returns = monte_carlo_returns(
        recipe.make_endless,
        act,
        episodes=TRUE_RETURNS,
        gamma=1.0 if recipe.gamma is None else recipe.gamma,
        horizon=recipe.true_horizon,
        seed=seed,
        environments=500,
    )
    return returns.reshape(TRUE_RETURNS, -1).astype(np.float32)


def table(recipe: Recipe, rows: list[dict]) -> pyarrow.Table:
    """One row a transition; next observations only where a time limit makes them needed."""

    def stacked(field: str) -> np.ndarray:
        return np.stack([row[field] for row in rows]).astype(np.float32)

    columns: dict[str, Any] = {
        "episode": np.array([row["episode"] for row in rows], np.int32),
        "step": np.array([row["step"] for row in rows], np.int32),
    }
    fields = ["observation"]
    if any(row["truncated"] for row in rows):
        fields.append("next_observation")
    for field in fields:
        for name, column in zip(recipe.observation_names, stacked(field).T, strict=True):
            columns[f"{field}.{name}"] = column
    actions = np.array([row["action"] for row in rows])
    columns[recipe.action_name] = (
        actions.astype(np.int8) if actions.ndim == 1 else actions.astype(np.float32)[:, 0]
    )
    columns |= dict(zip(recipe.reward_names, stacked("reward").T, strict=True))
    for flag in ("terminated", "truncated"):
        columns[flag] = np.array([row[flag] for row in rows])
    return pyarrow.table(columns)


def make(recipe: Recipe, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for role, model in (("behaviour", recipe.behaviour), ("target", recipe.target)):
        (folder / f"{role}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    behaviour, target = acting(folder / "behaviour.onnx"), acting(folder / "target.onnx")

    rows = list(play(recipe.make(), behaviour, recipe.episodes, SEED))
    log = table(recipe, rows)
    floats = [field.name for field in log.schema if field.type == pyarrow.float32()]
    pyarrow.parquet.write_table(
        log,
        folder / "log.parquet",
        compression="zstd",
        use_dictionary=False,
        use_byte_stream_split=floats,
    )
    returns = true_returns(recipe, target, SEED + 1)
    np.savez_compressed(folder / "truth.npz", returns=returns)

    facts = {
        "description": recipe.description,
        "environment": recipe.environment,
        "gamma": recipe.gamma,
        "horizon": recipe.horizon,
        "rows": log.num_rows,
        "episodes": recipe.episodes,
        "terminated": sum(row["terminated"] for row in rows),
        "truncated": sum(row["truncated"] for row in rows),
        "true_returns": TRUE_RETURNS,
        "true_horizon": recipe.true_horizon,
        "seed": SEED,
        "versions": {name: version(name) for name in PACKAGES},
    }
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    print(f"{recipe.name}: {log.num_rows} rows, {size:.2f} MB")
    print(f"  true mean {returns.mean(axis=0)}, std {returns.std(axis=0)}")


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name in sys.argv[2:] or RECIPES:
        make(RECIPES[name](), folder / name)


if __name__ == "__main__":
    main()
