"""The default GMM in a plain eager PyTorch loop: what a small network costs without compilation.

Runs in an environment of its own, started by `step_time.py`. For every line of input, a kind of
loop and a number of threads, it trains for a while and answers with a line of JSON. The `same` loop
does what the compiled one does in a step, with PyTorch's own parts: AdamW, clipped gradients, a
cosine schedule, averaged parameters, the same loss. The `bare` loop is the least that trains a
mixture: the likelihood and Adam.
"""

import argparse
import json
import sys
import time

import torch
from torch import nn

COMPONENTS = 10
HIDDEN = 64
SCALE_FLOOR = 0.01
FURTHEST = 4.0
COMPONENT_PRIOR = 5e-4
LEARNING_RATE, WEIGHT_DECAY = 7e-3, 0.013
MOST_NORM = 5.0
# Two threads wait for each other without end where other work holds a core.
MOST_SECONDS = 5.0


class GMM(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.gates = nn.Parameter(torch.ones(1, inputs))
        self.linear = nn.Parameter(torch.zeros(1, inputs))
        self.quadratic = nn.Parameter(torch.zeros(inputs, inputs))
        self.network = nn.Sequential(
            nn.Linear(inputs, HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.SiLU(),
            nn.Linear(HIDDEN, 2 + 3 * COMPONENTS),
        )

    def forward(self, inputs):
        """Logits, means and standard deviations of the components, each (..., components)."""
        gated = self.gates * inputs
        location, spread, logits, offsets, scales = self.network(gated).split(
            [1, 1, COMPONENTS, COMPONENTS, COMPONENTS], dim=-1
        )
        near = self.gates * inputs.clamp(-FURTHEST, FURTHEST)
        trend = ((self.linear + near @ self.quadratic) * near).sum(dim=-1, keepdim=True)
        means = location + trend + offsets
        return logits, means, SCALE_FLOOR + nn.functional.softplus(spread + scales)

    def likelihood(self, inputs, returns):
        """Mean log density of returns (batch, draws)."""
        logits, means, stds = self(inputs)
        return log_densities(torch.log_softmax(logits, dim=-1), means, stds, returns).mean()

    def loss(self, inputs, returns):
        """Negative log likelihood, even gradients by the means, regularised to standard normals."""
        logits, means, stds = self(inputs)
        logs = torch.log_softmax(logits, dim=-1)
        away = 0.5 * (means.square().mean() + stds.log().square().mean()) - logs.mean()
        fixed = means.detach()
        even = fixed + stds.detach() * (means - fixed)
        return COMPONENT_PRIOR * away - log_densities(logs, even, stds, returns).mean()


def log_densities(log_weights, means, stds, returns):
    """Log densities (batch, draws) of returns (batch, draws)."""
    normal = torch.distributions.Normal(means[:, None, :], stds[:, None, :], validate_args=False)
    logs = log_weights[:, None, :] + normal.log_prob(returns[:, :, None])
    return torch.logsumexp(logs, dim=-1)


class Data:
    """Random rows in the shapes of the one-dimensional lock."""

    def __init__(self, rows, observation, candidates):
        self.observations = torch.randn(rows, observation)
        self.actions = torch.randint(candidates, (rows,))
        self.rewards = torch.randn(rows)
        self.next_observations = torch.randn(rows, observation)
        self.probabilities = torch.rand(rows, candidates) + 0.1
        self.one_hot = torch.eye(candidates)


@torch.no_grad()
def targets(previous, data, index, draws):
    """Draws (batch, draws) of r + y, with a' ~ policy and y ~ previous(x', a')."""
    batch, candidates = len(index), data.one_hot.shape[0]
    next_inputs = torch.cat(
        [
            data.next_observations[index][:, None, :].expand(-1, candidates, -1),
            data.one_hot.expand(batch, -1, -1),
        ],
        dim=-1,
    )
    logits, means, stds = previous(next_inputs)
    rows = torch.arange(batch)[:, None]
    actions = torch.multinomial(data.probabilities[index], draws, replacement=True)
    weights = torch.softmax(logits[rows, actions], dim=-1)
    components = torch.multinomial(weights.flatten(0, 1), 1).view(batch, draws)
    mean, std = means[rows, actions, components], stds[rows, actions, components]
    return data.rewards[index][:, None] + mean + std * torch.randn(batch, draws)


class SameStep:
    """All that the compiled loop does with a loss."""

    def __init__(self, model, steps):
        self.model = model
        decaying = [p for p in model.parameters() if p.ndim > 1]
        constant = {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}
        self.optimiser = torch.optim.AdamW(
            [{"params": decaying}, constant], lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, steps)
        self.average = torch.optim.swa_utils.AveragedModel(model)

    def __call__(self, inputs, returns):
        self.optimiser.zero_grad()
        self.model.loss(inputs, returns).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), MOST_NORM)
        self.optimiser.step()
        self.schedule.step()
        self.average.update_parameters(self.model)


class BareStep:
    """Likelihood and Adam alone."""

    def __init__(self, model, steps):
        self.model = model
        self.optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)

    def __call__(self, inputs, returns):
        self.optimiser.zero_grad()
        (-self.model.likelihood(inputs, returns)).backward()
        self.optimiser.step()


STEPS = {"same": SameStep, "bare": BareStep}


def train(kind, model, previous, data, steps, batch_size, draws):
    """Milliseconds a step, by the clock and of the processor."""
    step = STEPS[kind](model, steps)
    done, wall, processor = 0, time.perf_counter(), time.process_time()
    while done < steps and time.perf_counter() - wall < MOST_SECONDS:
        index = torch.randint(len(data.rewards), (batch_size,))
        inputs = torch.cat([data.observations[index], data.one_hot[data.actions[index]]], dim=1)
        step(inputs, targets(previous, data, index, draws))
        done += 1
    elapsed = [time.perf_counter() - wall, time.process_time() - processor]
    return [1e3 * seconds / done for seconds in elapsed]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("rows", "observation", "candidates", "batch-size", "draws", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    data = Data(options.rows, options.observation, options.candidates)
    inputs = options.observation + options.candidates
    model, previous = GMM(inputs), GMM(inputs)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        kind, threads = line.split()
        torch.set_num_threads(int(threads))
        # Steps that do not count: threads start, buffers are allocated.
        train(kind, model, previous, data, 5, options.batch_size, options.draws)
        milliseconds = train(
            kind, model, previous, data, options.steps, options.batch_size, options.draws
        )
        print(json.dumps({"milliseconds": milliseconds}), flush=True)


if __name__ == "__main__":
    main()
