"""What a training step costs, against its bare matrix products and against an eager loop.

The shapes are those of the paper's one-dimensional combination lock. A step's time is that of a
whole stage divided by its steps: the order of the rows, target preparation, drawing, gradient and
optimiser are in it, compilation is not. Its matrix products are those of a forward and a backward
pass on the batch and of one forward pass at the batch's next inputs. All times of a repetition are
taken one after the other, and a reported ratio is the median over repetitions. Writes
`results/step_time.json` and `results/step_time.md`; the eager loop has an environment of its own.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import fle
from eager_process import EagerLoop, torch_python
from fle.fitting.encoding import Encoder, Fitted, Frame
from fle.fitting.following import Trail
from fle.fitting.optimiser import Schedule, initial_state, layout_of, stage_training
from fle.fitting.targets import Update, stacked
from fle.models import ModelSpec
from fle.models.support import anywhere
from fle.paper.environment import describe
from fle.policies import tabulated
from fle.recipe import WEIGHT_DECAYS, Resolved, usual
from fle.tasks import CombinationLock

HERE = Path(__file__).parent

GMM = fle.GMM()
SPECS = (GMM, fle.Histogram(), fle.Gaussian(), fle.Categorical(), fle.Quantile())
ROWS_A_STAGE = 20_000
STEP = 10
# An eager loop that does the same in a step, and one with likelihood and Adam alone.
EAGER = ("same", "bare")
THREADS = (1, 2)
MOST_PRODUCTS = 2.0
LEAST_SPEEDUP = 10.0


def default_recipe(spec: ModelSpec) -> Resolved:
    return usual(repeats=1, rows=ROWS_A_STAGE, coordinates=1, tuning=spec.usual_tuning)


class Lock:
    """The lock's rows as the Bellman loop holds them, and one stage's, one step ahead."""

    def __init__(self):
        task = CombinationLock.paper_1d()
        data = fle.Dataset(**task.offline_data(ROWS_A_STAGE // 2, seed=0))
        table = tabulated(task.target_policy, data, draws=1, seed=0).following
        self.encoder = Encoder.standardising(data)
        trail = Trail.of(data, table, self.encoder.rewards(data), gamma=1.0, trace=0.0)
        self.rows = self.encoder.rows(data, table, trail)
        stage_rows = np.flatnonzero(data.steps == STEP)
        self.lines = trail.lines(stage_rows, np.random.default_rng(0), fit=0)
        self.candidates = table.candidates


def stage_runner(spec: ModelSpec, lock: Lock) -> Callable[[], object]:
    """A function that trains one stage and waits for the result."""
    generator = np.random.default_rng(0)
    recipe = default_recipe(spec)
    law = spec.build(lock.encoder.sizes, recipe, generator)
    frame = Frame(jnp.zeros(1), jnp.ones(1))
    update = Update(
        objective=spec.objective(recipe),
        law=law,
        previous=stacked([Fitted(law, frame, anywhere(1))]),
        frame=frame,
        support=anywhere(1),
        rows=lock.rows,
        sizes=lock.encoder.sizes,
        draws=recipe.draws,
    )
    layout = layout_of(
        update, recipe.steps, recipe.batch_size, ROWS_A_STAGE, copies=1, several=False
    )
    passes = -(-recipe.steps * recipe.batch_size // ROWS_A_STAGE)

    def run() -> object:
        order = np.concatenate([generator.permutation(ROWS_A_STAGE) for _ in range(passes)])
        order = order[: recipe.steps * recipe.batch_size].astype(np.int32)
        schedule = Schedule(
            batches=jnp.asarray(order.reshape(recipe.steps, recipe.batch_size)),
            learning_rates=jnp.asarray(recipe.learning_rates(0, 1)),
            average_rates=jnp.asarray(recipe.average_rates()),
        )
        decay, key = jnp.float32(WEIGHT_DECAYS[0]), jax.random.key(0)
        result = stage_training(recipe.batch_size)(
            update, initial_state(law), lock.lines, schedule, decay, key, layout
        )
        return jax.block_until_ready(result)

    return run


@partial(jax.jit, static_argnames="steps")
def bare_products(weights, previous, inputs, next_inputs, *, steps):
    """The matrix products of `steps` training steps.

    Both sets of weights change a little at every step, and every product ends up in one of them,
    so that none can be moved out of the loop or left out.
    """

    def step(carry, _):
        weights, previous = carry
        target = next_inputs
        for weight in previous:
            target = target @ weight
        layers = [inputs]
        for weight in weights:
            layers.append(layers[-1] @ weight)
        gradient = layers.pop() - target
        changes = []
        for number in reversed(range(len(weights))):
            changes.insert(0, layers[number].T @ gradient)
            if number > 0:
                gradient = gradient @ weights[number].T
        weights = [w - 1e-9 * change for w, change in zip(weights, changes, strict=True)]
        previous = [p + 1e-9 * w for p, w in zip(previous, weights, strict=True)]
        return (weights, previous), None

    return jax.lax.scan(step, (weights, previous), None, length=steps)[0]


def products_runner(spec: ModelSpec, lock: Lock) -> Callable[[], object]:
    """A function that computes the matrix products of one stage."""
    generator, recipe = np.random.default_rng(1), default_recipe(spec)
    law = spec.build(lock.encoder.sizes, recipe, generator)
    shapes = [w.shape for w in law.network.weights]

    def random(rows: int, columns: int) -> jax.Array:
        values = generator.standard_normal((rows, columns)) / np.sqrt(columns)
        return jnp.asarray(values, jnp.float32)

    batch = (recipe.batch_size, lock.encoder.sizes.inputs)
    arguments = [[random(*shape) for shape in shapes] for _ in range(2)]
    arguments += [random(*batch), random(*batch)]
    compiled = bare_products.lower(*arguments, steps=recipe.steps).compile()
    expected = 4 * len(shapes) - 1
    found = compiled.as_text().count(" dot(")
    if found != expected:
        raise RuntimeError(f"Expected {expected} matrix products a step, XLA kept {found}.")
    return lambda: jax.block_until_ready(compiled(*arguments))


def eager_shapes(lock: Lock, steps: int) -> dict[str, int]:
    """What the eager loop must know to do as much."""
    recipe = default_recipe(GMM)
    return {
        "rows": ROWS_A_STAGE,
        "observation": lock.encoder.sizes.observation,
        "candidates": lock.candidates,
        "batch-size": recipe.batch_size,
        "draws": recipe.draws,
        "steps": steps,
    }


def milliseconds_a_step(run: Callable[[], object], steps: int) -> list[float]:
    """Time of one step, by the clock and of the processor."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    elapsed = [time.perf_counter() - wall, time.process_time() - processor]
    return [1e3 * seconds / steps for seconds in elapsed]


def measure(lock: Lock, eager: EagerLoop | None, repetitions: int) -> list[dict[str, object]]:
    """For every model, the times of all repetitions."""
    runners = [(stage_runner(spec, lock), products_runner(spec, lock)) for spec in SPECS]
    for pair in runners:
        for run in pair:
            run()
    times = [{"model": spec.name, "stage": [], "products": []} for spec in SPECS]
    times[0].update({f"{kind}_{threads}": [] for kind in EAGER for threads in THREADS})
    for _ in range(repetitions):
        for spec, record, (stage, products) in zip(SPECS, times, runners, strict=True):
            steps = default_recipe(spec).steps
            record["stage"].append(milliseconds_a_step(stage, steps))
            record["products"].append(milliseconds_a_step(products, steps))
            if record["model"] == "gmm" and eager is not None:
                for kind in EAGER:
                    for threads in THREADS:
                        record[f"{kind}_{threads}"].append(eager.milliseconds(kind, threads))
    return times


def summarise(record: dict[str, object]) -> dict[str, object]:
    """Medians of times and of ratios; the eager loop counts at its faster number of threads."""
    stage, products = np.array(record["stage"]), np.array(record["products"])
    result = {
        "model": record["model"],
        "milliseconds": float(np.median(stage[:, 0])),
        **_ratio("times_products", stage, products),
    }
    for kind in EAGER if record.get("same_1") else ():
        eager = np.minimum(*(record[f"{kind}_{threads}"] for threads in THREADS))
        result[f"{kind}_milliseconds"] = float(np.median(eager[:, 0]))
        result.update(_ratio(f"times_faster_than_{kind}", eager, stage))
    return {**result, "repetitions": record}


def _ratio(name: str, above: np.ndarray, below: np.ndarray) -> dict[str, object]:
    wall, processor = (above / below).T
    return {
        name: float(np.median(wall)),
        f"{name}_range": [float(wall.min()), float(wall.max())],
        f"{name}_by_processor": float(np.median(processor)),
    }


def table(results: list[dict[str, object]]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| model | ms a step | × products | × faster than eager | × faster than bare eager |",
        "|---|---|---|---|---|",
    ]
    for r in results:
        names = ("times_products", *(f"times_faster_than_{kind}" for kind in EAGER))
        ratios = " | ".join(_with_range(r, name) for name in names)
        lines.append(f"| {r['model']} | {r['milliseconds']:.3f} | {ratios} |")
    return "\n".join(lines)


def _with_range(result: dict[str, object], name: str) -> str:
    if name not in result:
        return ""
    low, high = result[f"{name}_range"]
    return f"{result[name]:.2f} ({low:.2f} to {high:.2f})"


def by_processor(results: list[dict[str, object]]) -> str:
    """The same ratios, of processor time."""
    parts = [f"{r['model']} {r['times_products_by_processor']:.2f} × products" for r in results]
    for kind in EAGER:
        name = f"times_faster_than_{kind}_by_processor"
        if name in results[0]:
            parts.append(f"{kind} eager loop {results[0][name]:.1f} × gmm")
    return ", ".join(parts)


def bars(gmm: dict[str, object]) -> list[str]:
    """What the default model is held to, and whether it got there."""
    ratio = gmm["times_products"]
    lines = [f"gmm at most {MOST_PRODUCTS:g} × its matrix products: {_met(ratio <= MOST_PRODUCTS)}"]
    for kind, name in (("same", "eager"), ("bare", "bare eager")):
        if f"times_faster_than_{kind}" in gmm:
            enough = gmm[f"times_faster_than_{kind}"] >= LEAST_SPEEDUP
            lines.append(f"gmm at least {LEAST_SPEEDUP:g} × faster than {name}: {_met(enough)}")
    return lines


def _met(holds: bool) -> str:
    return "met" if holds else "NOT met"


def write(results: list[dict[str, object]], facts: dict[str, object], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "step_time.json").write_text(
        json.dumps({**facts, "results": results}, indent=1) + "\n"
    )
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    machine = facts["machine"]
    load = " to ".join(f"{value:.1f}" for value in facts["load"])
    text = f"""# Time of a training step

{table(results)}

Medians over {facts["repetitions"]} repetitions, each measured in one go; in brackets the least and
the most. Shapes of the paper's one-dimensional combination lock: {facts["shapes"]}. The eager loops
are those of `eager_gmm.py`, at the faster of one and two threads: one does all that ours does in a
step, the bare one has likelihood and Adam alone.

- {bars(results[0])[0]}
""" + "".join(f"- {line}\n" for line in bars(results[0])[1:])
    text += f"""
By processor time, which other work on the machine disturbs less: {by_processor(results)}.

{machine["cpu"]}, {machine["cores"]} cores, {machine["system"]}, load {load} during the run (other
work on the machine); {versions}; commit {facts["commit"]}. Seeds: data 0, training 0.
"""
    (folder / "step_time.md").write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one repetition; writes no files")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    quick = options.quick
    repetitions, eager_steps = (1, 50) if quick else (options.repetitions, 200)

    facts, began = describe(), os.getloadavg()[0]
    lock = Lock()
    python = torch_python()
    eager = None if python is None else EagerLoop(python, eager_shapes(lock, eager_steps))
    results = [summarise(record) for record in measure(lock, eager, repetitions)]
    if eager is not None:
        eager.close()
        facts["versions"] = {**facts["versions"], "torch": eager.version}
    facts["load"] = [began, os.getloadavg()[0]]
    facts["repetitions"] = repetitions
    recipe = default_recipe(GMM)
    facts["shapes"] = (
        f"{lock.encoder.sizes.inputs} inputs, {lock.candidates} candidate actions, "
        f"{ROWS_A_STAGE:,} rows a stage, each model with its default batch and draws (gmm: "
        f"{recipe.batch_size} rows, {recipe.draws} draws)"
    )
    print(table(results))
    print(f"By processor time: {by_processor(results)}")
    for line in bars(results[0]):
        print(line)
    if not quick:
        write(results, facts, HERE / "results")


if __name__ == "__main__":
    main()
