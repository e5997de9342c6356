"""The default GMM in a plain eager PyTorch loop: what a small network costs without compilation.

Runs in an environment of its own, started by `step_time.py`. For every line of input it trains for
a while and answers with a line of JSON. It does what the compiled loop does in a step, with
PyTorch's own parts: AdamW, clipped gradients, a cosine schedule, averaged parameters.
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
LEARNING_RATE, WEIGHT_DECAY = 7e-3, 0.013
MOST_NORM = 5.0
# Two threads wait for each other without end where other work holds a core.
MOST_SECONDS = 5.0


class GMM(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.gates = nn.Parameter(torch.ones(1, inputs))
        self.slopes = nn.Parameter(torch.zeros(1, inputs))
        self.curvatures = nn.Parameter(torch.zeros(inputs, inputs))
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
        trend = ((self.slopes + near @ self.curvatures) * near).sum(dim=-1, keepdim=True)
        means = location + trend + offsets
        return logits, means, SCALE_FLOOR + nn.functional.softplus(spread + scales)

    def log_prob(self, inputs, returns):
        """Log densities (batch, draws) of returns (batch, draws)."""
        logits, means, stds = self(inputs)
        normal = torch.distributions.Normal(
            means[:, None, :], stds[:, None, :], validate_args=False
        )
        weights = torch.log_softmax(logits, dim=-1)[:, None, :]
        return torch.logsumexp(weights + normal.log_prob(returns[:, :, None]), dim=-1)


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


def train(model, previous, data, steps, batch_size, draws):
    """Milliseconds a step, by the clock and of the processor."""
    decaying = [p for p in model.parameters() if p.ndim > 1]
    constant = {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}
    optimiser = torch.optim.AdamW(
        [{"params": decaying}, constant], lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    average = torch.optim.swa_utils.AveragedModel(model)
    done, wall, processor = 0, time.perf_counter(), time.process_time()
    while done < steps and time.perf_counter() - wall < MOST_SECONDS:
        index = torch.randint(len(data.rewards), (batch_size,))
        inputs = torch.cat([data.observations[index], data.one_hot[data.actions[index]]], dim=1)
        loss = -model.log_prob(inputs, targets(previous, data, index, draws)).mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MOST_NORM)
        optimiser.step()
        schedule.step()
        average.update_parameters(model)
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
        torch.set_num_threads(int(line))
        # Steps that do not count: threads start, buffers are allocated.
        train(model, previous, data, 5, options.batch_size, options.draws)
        milliseconds = train(
            model, previous, data, options.steps, options.batch_size, options.draws
        )
        print(json.dumps({"milliseconds": milliseconds}), flush=True)


if __name__ == "__main__":
    main()
