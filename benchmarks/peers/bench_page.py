"""The page of the bench: every estimator in short, rankings, a picture, and every answer."""

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy import stats

Line = dict[str, Any]
# (heading, figure)
MEASURES = (("W1/std", "w1"), ("mean", "mean"), ("CVaR 10%", "cvar"))
OURS = "FLE"
# Of the picture: smaller and larger errors lie on its edges.
ENDS = (1e-3, 20.0)


def write_page(page: Path, lines: list[Line], facts: dict[str, Any]) -> None:
    """Markdown, and a picture beside it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    picture = page.with_suffix(".svg")
    drawn = _picture(picture, lines)
    own = [line for line in lines if not line["mixed"]]
    tasks = sorted({line["task"] for line in own})
    rows = sorted({line["rows"] for line in own})
    seeds = len({line["seed"] for line in own})
    lines = [{**line, "commit": line.get("commit") or facts["commit"]} for line in lines]
    commits = sorted({line["commit"] for line in lines})
    text = [
        "# Beside its peers",
        "",
        f"Written by `fle bench`. Code {', '.join(map(_short, commits))}, "
        f"{facts['machine']['cores']} cores of "
        f"a {facts['machine']['cpu']}; {len(tasks)} validation tasks, "
        f"{' and '.join(f'{number:,}' for number in rows)} rows, {seeds} seed"
        f"{'s' if seeds > 1 else ''}. Errors are in standard deviations of the true return, "
        "without their sign. W1 is a distance of laws; estimators of a mean have none.",
        *_cost(lines, facts.get("costs", {})),
        "",
        "## In short",
        "",
        *_summary(own),
        "",
        *([f"![Errors of every estimator]({picture.name})", ""] if drawn else []),
        "## One against one",
        "",
        *_pairs(own),
        "",
        "## Ranking policies",
        "",
        *_rankings(lines),
        "",
        *_losses(own),
        "",
        *RULES,
        "",
        "## Every answer",
        "",
        *_table(lines),
    ]
    page.write_text("\n".join(text) + "\n")


RULES = (
    "## The rules",
    "",
    "All are given the same logs. Ours is given its defaults, and no propensities.",
    "",
    "- **d3rlpy** FQE is run as its documentation has it (10,000 steps, its own settings), and with"
    " our budget: standardised observations, actions and rewards, and as many seconds of the"
    " processor as ours took. It evaluates greedy actions; here it is handed draws of the policy,"
    " which it can take. It knows no horizon: there the step is one more observation, and the last"
    " step ends the episode. With our budget its target network is renewed at least three times as"
    " often as a return has steps; its own 100 steps between two renewals leave a third of a return"
    " with γ = .99 unseen after 10,000. It scales rewards and returns values scaled: here they are"
    " put back.",
    "- **SCOPE-RL** is given the true probabilities of the logging policy, episodes filled up to"
    " one length, and d3rlpy's values for its direct method and doubly robust estimators. It"
    " discounts the first reward once, and its direct method takes means of starts for"
    " returns: both are left as they are.",
    "- Importance sampling, doubly robust and stitching are those of `fle.baselines`, with"
    " propensities that are estimated. The distribution of fitted Q evaluation on features is"
    " normal, with its mean and standard deviation.",
    "- A uniform policy hardly ever brings the mountain car to its goal: all of its returns are"
    " nearly the same, and errors in their standard deviations are large for everyone.",
    "- Seconds are those of the processor, in processes that others ran beside; those of doubly"
    " robust come after our fit; one follows the weights to the end, the other as second opinions"
    " do, while they are worth 50 episodes. Memory is the most of a process, with its libraries,"
    " and what runs in the process of our fit is not told apart.",
    "",
    "## When to use something else",
    "",
    "- Only the mean is wanted, and many seconds matter: `fle.baselines.fitted_q_evaluation` takes"
    " a few seconds.",
    "- Episodes are short, propensities are logged, and overlap is good: importance sampling and"
    " doubly robust estimates need no model of what is to come, and their standard errors hold.",
    "- Observations have few coordinates, and the tail matters: `fle.baselines.stitching` takes a"
    " second and is often as near there; where rows are far apart it is off by whole standard"
    " deviations.",
    "- You train policies: d3rlpy does, and FLE does not.",
    "- Contextual bandits with large action sets and logged propensities: OBP has estimators made"
    " for them.",
)


def _short(commit: str) -> str:
    """Its first figures, and whether files had been changed."""
    return commit[:7] + (", changed" if "changes" in commit else "")


def _question(line: Line) -> tuple[Any, ...]:
    return line["task"], line["mixed"], line["seed"], line["rows"]


def _cost(lines: list[Line], costs: dict[str, dict[str, float]]) -> list[str]:
    """What all answers took, and all processes where that is known."""
    number = len({_question(line) for line in lines})
    alone = sum(line.get("seconds", 0.0) for line in lines) / 60
    told = f"Estimators alone took {alone:.0f} minutes of the processor for all {number} questions."
    if not costs:
        return [told]
    spent, elapsed = (
        sum(cost[key] for cost in costs.values()) / 60 for key in ("processor", "elapsed")
    )
    whole = f"All {number}" if len(costs) == number else f"{len(costs)} of {number}"
    return [
        f"{told} {whole} questions took {spent:.0f} minutes, start-up included and without the"
        f" truth, in processes that lasted {elapsed:.0f} minutes one after the other."
    ]


def _of(lines: list[Line], name: str, figure: str) -> list[float]:
    return [abs(x[figure]) for x in lines if x["estimator"] == name and figure in x]


def estimators(lines: list[Line]) -> list[str]:
    """Ours first, then by the median error of the law, those of means at the end."""
    names = list(dict.fromkeys(line["estimator"] for line in lines))

    def order(name: str) -> tuple[bool, float]:
        laws, means = _of(lines, name, "w1"), _of(lines, name, "mean")
        figures = laws or means
        return name != OURS, (0 if laws else 1000) + (median(figures) if figures else 500)

    return sorted(names, key=order)


def _summary(lines: list[Line]) -> list[str]:
    head = ["estimator", "answers"]
    head += [f"{text}: median, worst" for text, _ in MEASURES] + ["seconds", "GB"]
    table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    questions = len({(x["task"], x["seed"], x["rows"]) for x in lines})
    for name in estimators(lines):
        cells = [name, f"{len(_of(lines, name, 'mean'))} of {questions}"]
        for _, figure in MEASURES:
            found = _of(lines, name, figure)
            cells.append(f"{median(found):.3f}, {max(found):.2f}" if found else "")
        for figure, scale, digits in (("seconds", 1.0, 0), ("memory", 1e9, 1)):
            found = _of(lines, name, figure)
            cells.append(f"{median(found) / scale:.{digits}f}" if found else "")
        table.append("| " + " | ".join(cells) + " |")
    return table


def _pairs(lines: list[Line]) -> list[str]:
    """Medians of ours and of each other, over the questions that both answered."""
    table = [
        "Medians over the questions that both answered, ours and the other's, and in how many of "
        "them ours was nearer; bold where the other's median is.",
        "",
        "| estimator | " + " | ".join(text for text, _ in MEASURES) + " |",
        "|---" * (1 + len(MEASURES)) + "|",
    ]
    ahead: dict[str, list[str]] = {text: [] for text, _ in MEASURES}
    for name in estimators(lines):
        if name == OURS:
            continue
        cells = [name]
        for text, figure in MEASURES:
            both = _both(lines, name, figure)
            if not both:
                cells.append("")
                continue
            ours, theirs = (median(side) for side in zip(*both, strict=True))
            nearer = sum(mine < other for mine, other in both)
            shown = f"{ours:.3f}, {theirs:.3f} ({nearer} of {len(both)})"
            if theirs < ours:
                ahead[text].append(name)
                shown = f"**{shown}**"
            cells.append(shown)
        table.append("| " + " | ".join(cells) + " |")
    told = [
        f"{text}: " + (f"behind {', '.join(names)}" if names else "ahead of all")
        for text, names in ahead.items()
    ]
    return [*table, "", "On the median, " + "; ".join(told) + "."]


def _both(lines: list[Line], name: str, figure: str) -> list[tuple[float, float]]:
    """Errors of ours and of another, of each question that both answered."""
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for line in lines:
        if line["estimator"] in (OURS, name) and figure in line:
            key = (line["task"], line["seed"], line["rows"])
            found.setdefault(key, {})[line["estimator"]] = abs(line[figure])
    return [(pair[OURS], pair[name]) for pair in found.values() if len(pair) == 2]


def _rankings(lines: list[Line]) -> list[str]:
    """Spearman's correlation of estimated and true means, and what choosing by them costs."""
    groups: dict[tuple[Any, ...], dict[str, list[Line]]] = {}
    for line in lines:
        if "estimate" in line:
            key = (line["task"], line["seed"], line["rows"])
            groups.setdefault(key, {}).setdefault(line["estimator"], []).append(line)
    ranked = {key: group for key, group in groups.items() if len(group.get(OURS, [])) > 2}
    if not ranked:
        return ["No task was asked with several policies."]
    most = {key: len(group[OURS]) for key, group in ranked.items()}
    table = [
        f"{len(ranked)} logs with {min(most.values())} policies each: the task's own, mixed with a "
        "uniform one in several shares. Regret is what the policy with the highest estimate earns "
        "less than the best one, in standard deviations of the latter's return.",
        "",
        "| estimator | rank correlation of means | regret at 1 |",
        "|---|---|---|",
    ]
    for name in estimators(lines):
        figures = []
        for key, group in ranked.items():
            found = group.get(name, [])
            if len(found) < most[key]:
                continue
            true, said = (np.array([x[k] for x in found]) for k in ("true_mean", "estimate"))
            best = int(true.argmax())
            regret = (true[best] - true[int(said.argmax())]) / found[best]["true_std"]
            figures.append((float(stats.spearmanr(true, said)[0]), float(regret)))
        if figures:
            correlation, regret = np.nanmean(np.array(figures), axis=0)
            table.append(f"| {name} | {correlation:.2f} | {regret:.3f} |")
    return table


def _losses(lines: list[Line]) -> list[str]:
    """Where another estimator was nearer than ours, by more than 0.02."""
    found = ["## Wins and losses", ""]
    by_task: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        by_task.setdefault((line["task"], line["seed"]), []).append(line)
    losses, first, asked = [], 0, 0
    for (task, seed), group in by_task.items():
        ours = next((x for x in group if x["estimator"] == OURS), {})
        for text, figure in MEASURES:
            better = [x for x in group if figure in x and x["estimator"] != OURS]
            best = min(better, key=lambda x: abs(x[figure]), default=None)
            if best and figure in ours:
                asked, first = asked + 1, first + (abs(ours[figure]) <= abs(best[figure]))
            if best and figure in ours and abs(ours[figure]) > abs(best[figure]) + 0.02:
                losses.append(
                    f"| {task} ({seed}) | {text} | {abs(ours[figure]):.3f} | "
                    f"{abs(best[figure]):.3f} | {best['estimator']} |"
                )
    told = (
        f"Ours was the nearest of all in {first} of {asked} comparisons. The best of all others is "
        "chosen with the truth in hand, which no user has."
    )
    if not losses:
        return [*found, f"{told} None was nearer by more than 0.02."]
    return [
        *found,
        f"{told} Another was nearer by more than 0.02 in {len(losses)}:",
        "",
        "| task (seed) | figure | FLE | nearest | whose |",
        "|---|---|---|---|---|",
        *losses,
    ]


def _table(lines: list[Line]) -> list[str]:
    table = [
        "| task | mixed | seed | code | estimator | W1/std [floor] | mean | CVaR 10% | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        cells = [line["task"], f"{line['mixed']:g}", str(line["seed"])]
        cells += [_short(line["commit"]), line["estimator"]]
        if "none" in line:
            table.append("| " + " | ".join([*cells, f"none: {line['none']}", "", "", ""]) + " |")
            continue
        law = f"{line['w1']:.3f} [{line['floor']:.3f}]" if "w1" in line else ""
        tail = f"{line['cvar']:+.3f}" if "cvar" in line else ""
        cells += [law, f"{line['mean']:+.3f}", tail, f"{line['seconds']:.1f}"]
        table.append("| " + " | ".join(cells) + " |")
    return table


def _picture(place: Path, lines: list[Line]) -> bool:
    """Errors of every estimator on a logarithmic scale, one dot a task."""
    try:
        import altair
        import vl_convert
    except ImportError:
        return False
    dots = [
        {
            "estimator": x["estimator"],
            "figure": text,
            "error": float(np.clip(abs(x[figure]), *ENDS)),
        }
        for x in lines
        if not x["mixed"]
        for text, figure in MEASURES
        if figure in x
    ]
    order = estimators([x for x in lines if not x["mixed"]])
    where: dict[str, Any] = {
        "scale": altair.Scale(type="log", domain=ENDS),
        "axis": altair.Axis(values=[0.001, 0.01, 0.1, 1, 10], format="~g"),
        "title": "error / std, and the median",
    }
    colour = altair.condition(
        altair.datum.estimator == OURS, altair.value("#c0392b"), altair.value("#4c78a8")
    )
    rows = altair.Y("estimator:N", sort=order, title=None, axis=altair.Axis(labelLimit=300))
    base = altair.Chart().encode(y=rows, color=colour)
    chart = (
        altair.layer(
            base.mark_circle(size=40, opacity=0.5).encode(x=altair.X("error:Q", **where)),
            base.mark_tick(thickness=2, size=14).encode(x=altair.X("median(error):Q", **where)),
            data=altair.Data(values=dots),
        )
        .properties(width=220, height=16 * len(order))
        .facet(column=altair.Column("figure:N", sort=[text for text, _ in MEASURES], title=None))
    )
    place.write_text(vl_convert.vegalite_to_svg(chart.to_json()))
    return True
