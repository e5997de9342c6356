"""Three logs as a hospital, a robot and a shop would write them, whose truth is known.

    python examples/make_messy_logs.py messy/

writes `visits.csv` (text, dates, gaps, rows in no order), `robot.h5` with `robot.onnx`, and
`shop.parquet` (50 actions, two rewards) with `shop.onnx`; and `truth.json`, the mean return of each
target policy, from as many simulated episodes as leave a standard error of at most 0.01 standard
deviations.
"""

import argparse
import json
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
from onnx import TensorProto, helper, numpy_helper

DRUGS = np.array(["none", "A", "B"])
EFFECT, COST = np.array([0.0, 0.8, 1.2]), np.array([0.0, 0.1, 0.6])
VISITS, ROBOT_STEPS, ITEMS = 4, 10, 50
# How much an item suits a visitor is its quality and this much of their taste for it; the policy
# shows items by what suits, sharpened.
TASTE, SHARPNESS = 0.3, 0.6
TRUTH_EPISODES = 10_000


def main(folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = {"visits": hospital(folder), "robot": robot(folder), "shop": shop(folder)}
    (folder / "truth.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")


def hospital(folder: Path, patients: int = 600) -> float:
    """A lab value falls by 30% between visits, and by what the drug does."""
    generator = np.random.default_rng(0)
    lab, drugs, rewards = treated(generator, patients, careless)
    rows = pd.DataFrame(
        {
            "patient": np.repeat([f"P{number:04d}" for number in range(patients)], VISITS),
            "date": visit_dates(generator, patients),
            "ward": np.select([lab > 1.5, lab > 0], ["icu", "general"], "home").ravel(),
            "lab": lab.ravel().round(3),
            "drug": DRUGS[drugs].ravel(),
            "score": rewards.ravel().round(4),
            "discharged": np.where(
                np.arange(patients * VISITS) % VISITS == VISITS - 1, "yes", "no"
            ),
        }
    )
    chances = careful(lab).reshape(-1, 3)
    for code, drug in enumerate(DRUGS):
        rows[f"new_{drug}"] = chances[:, code].round(4)
    later = np.arange(len(rows)) % VISITS > 0
    rows.loc[later & (generator.random(len(rows)) < 0.05), "lab"] = np.nan
    rows = rows.sample(frac=1.0, random_state=0)
    rows.to_csv(folder / "visits.csv", index=False, date_format="%Y-%m-%d")
    return float(treated(generator, TRUTH_EPISODES, careful)[2].sum(axis=1).mean())


def treated(generator, patients, policy):
    """Lab values, drug codes and scores, (patients, visits) each."""
    x = generator.normal(1.0, 1.0, patients)
    labs, drugs, scores = [], [], []
    for _ in range(VISITS):
        chances = policy(x)
        drug = (generator.random(patients)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
        labs.append(x)
        drugs.append(drug)
        scores.append(-x - COST[drug] + 0.3 * generator.standard_normal(patients))
        x = 0.7 * x - EFFECT[drug] * (x > 0) + 0.4 * generator.standard_normal(patients)
    return tuple(np.stack(part, axis=1) for part in (labs, drugs, scores))


def careless(x):
    """What was done: any drug, whatever the lab says."""
    return np.broadcast_to([0.4, 0.3, 0.3], (*x.shape, 3))


def careful(x):
    """What is asked about: A where the lab is above 0, and B besides where it is high."""
    chances = np.zeros((*x.shape, 3))
    high = x > 1.5
    chances[..., 0] = np.where(x > 0, 0.1, 0.9)
    chances[..., 1] = np.where(x > 0, np.where(high, 0.3, 0.8), 0.05)
    chances[..., 2] = 1 - chances[..., 0] - chances[..., 1]
    return chances


def visit_dates(generator, patients):
    """One to twenty days apart."""
    first = np.datetime64("2023-01-01") + generator.integers(0, 300, patients)
    days = generator.integers(1, 21, (patients, VISITS)).cumsum(axis=1)
    return (first[:, None] + days).ravel()


def robot(folder: Path, episodes: int = 1_000) -> float:
    """A joint is pushed towards zero; pushing costs. D4RL's layout, time limits as timeouts."""
    generator = np.random.default_rng(1)
    states, actions, rewards = driven(generator, episodes, (-0.5, 0.6))
    last = np.arange(episodes * ROBOT_STEPS) % ROBOT_STEPS == ROBOT_STEPS - 1
    with h5py.File(folder / "robot.h5", "w") as file:
        file["observations"] = states.reshape(-1, 2).astype(np.float32)
        file["actions"] = actions.reshape(-1, 1).astype(np.float32)
        file["rewards"] = rewards.ravel()
        file["terminals"] = last
        file["timeouts"] = np.zeros(last.size, bool)
    gain, spread = -0.8, 0.4
    weights = np.array([[gain], [gain / 2]], np.float32)
    nodes = [
        helper.make_node("MatMul", ["obs", "w"], ["mu"]),
        helper.make_node("Mul", ["mu", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "s"], ["log_sigma"]),
    ]
    constants = {"w": weights, "zero": np.zeros(1, np.float32)}
    constants["s"] = np.full(1, np.log(spread), np.float32)
    save_network(folder / "robot.onnx", nodes, constants, {"mu": 1, "log_sigma": 1}, 2)
    rewards = driven(generator, TRUTH_EPISODES, (gain, spread))[2]
    return float(rewards.sum(axis=1).mean())


def driven(generator, episodes, policy):
    """States (episodes, steps, 2), actions and rewards (episodes, steps)."""
    gain, spread = policy
    state = generator.normal(0, 1, (episodes, 2))
    states, actions, rewards = [], [], []
    for _ in range(ROBOT_STEPS):
        action = gain * (state[:, 0] + state[:, 1] / 2) + spread * generator.standard_normal(
            episodes
        )
        states.append(state)
        actions.append(action)
        rewards.append(-(state[:, 0] ** 2) - 0.1 * action**2)
        speed = 0.8 * state[:, 1] + 0.3 * action + 0.05 * generator.standard_normal(episodes)
        state = np.stack([state[:, 0] + 0.3 * speed, speed], axis=1)
    return np.stack(states, axis=1), np.stack(actions, axis=1), np.stack(rewards, axis=1)


def shop(folder: Path, visitors: int = 6_000) -> dict[str, float]:
    """One item is shown to each visitor: is it clicked, and for how many minutes is it watched?"""
    generator = np.random.default_rng(2)
    taste = generator.normal(0, 1, (visitors, 3))
    items, quality = TASTE * generator.normal(0, 1, (3, ITEMS)), generator.normal(0, 1, ITEMS)
    shown = generator.integers(0, ITEMS, visitors)
    clicks, minutes = reactions(generator, (taste @ items + quality)[np.arange(visitors), shown])
    names = np.array([f"item-{number:02d}" for number in range(ITEMS)])
    table = pd.DataFrame(
        taste, columns=[f"observation.{name}" for name in ("news", "sport", "art")]
    )
    table["action"] = names[shown]
    table["reward.click"], table["reward.minutes"] = clicks, minutes
    table["terminated"] = True
    table["propensity"] = 1 / ITEMS
    table.to_parquet(folder / "shop.parquet", index=False)
    # The network was trained with the items in another order, and says so.
    order = generator.permutation(ITEMS)
    save_network(
        folder / "shop.onnx",
        [
            helper.make_node("MatMul", ["obs", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["logits"]),
        ],
        {
            "w": (SHARPNESS * items[:, order]).astype(np.float32),
            "b": (SHARPNESS * quality[order]).astype(np.float32),
        },
        {"logits": ITEMS},
        3,
        action_labels=names[order].tolist(),
        observation_names=["news", "sport", "art"],
    )
    suits = generator.normal(0, 1, (5 * TRUTH_EPISODES, 3)) @ items + quality
    chosen = (SHARPNESS * suits + generator.gumbel(size=suits.shape)).argmax(axis=1)
    clicks, minutes = reactions(generator, suits[np.arange(len(suits)), chosen])
    return {"click": float(clicks.mean()), "minutes": float(minutes.mean())}


def reactions(generator, suits):
    """Clicks of 0 and 1, and minutes, which are 0 without a click."""
    clicks = (generator.random(len(suits)) < 1 / (1 + np.exp(1 - suits))).astype(float)
    return clicks, clicks * generator.gamma(2.0, 1.0, len(suits)) * (1 + np.maximum(suits, 0))


def save_network(path, nodes, constants, outputs, width, **names):
    """An ONNX file of some nodes; `names` go to its metadata."""
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["n", width])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])
            for name, size in outputs.items()
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    for key, listed in names.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, json.dumps(listed)
    path.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default="messy", help="where they go")
    main(parser.parse_args().folder)
