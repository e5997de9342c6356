"""Policies of others: files and words that stand for one, and modules of other libraries.

PyTorch, Stable-Baselines3 and d3rlpy are imported only when a policy of theirs is called. Whatever
they draw follows from our generator: torch is seeded from it for the call, and its own stream is
left as it was.
"""

import dataclasses
import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from fle.errors import PolicyError, SettingsError, nearest
from fle.policies.action_table import Array
from fle.policies.function_policies import (
    Deadline,
    Deterministic,
    FunctionPolicy,
    Normal,
    Policy,
    Probabilities,
    Stochastic,
    is_estimator,
    stated,
)
from fle.policies.onnx_policy import OnnxProcess, load_onnx
from fle.policies.row_policies import Behaviour

TorchKind = Literal["probs", "logits", "action", "mean_std", "mean_log_std"]
Actions = Literal["drawn", "greedy"]
TIMEOUT_SECONDS = 600.0
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "relu": lambda values: np.maximum(values, 0.0),
}
LEAST_MEMORY = 256 * 2**20
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def load_policy(
    source: str | Path,
    *,
    input: str | None = None,  # noqa: A002
    output: str | Mapping[str, str] | None = None,
    allow_code: bool = False,
    timeout: float = TIMEOUT_SECONDS,
    memory: int | None = None,
) -> Policy:
    """The policy that a file or a word stands for.

    Args:
        source: an ONNX file; "behaviour", the policy that logged the data; or "module:function",
            Python code that is imported, for which `allow_code` must be set.
        input: name of the ONNX input. There must be only one, so this is a check.
        output: what the ONNX outputs are: `{"logits": "output_0"}` or "logits=output_0". The roles
            are `probs`, `logits`, `action`, and `mean` with `std` or `log_std`. Not needed if the
            outputs are called so, or as scikit-learn and d3rlpy call them.
        allow_code: whether "module:function" may run code.
        timeout: seconds that an ONNX policy or a function may take in total, over all its calls.
        memory: bytes that an ONNX policy may take. It then runs in a process of its own, as it does
            on the command line; give them for the file of a stranger.

    >>> policy = load_policy("policy.onnx", output="logits=output_0")
    """
    text = str(source)
    if text in ("behaviour", "behavior") and not isinstance(source, Path):
        return Behaviour()
    path = Path(source)
    _refuse_checkpoint(path)
    if path.suffix.lower() == ".onnx" or path.is_file():
        if memory is None:
            return load_onnx(path, input, output, timeout)
        if not isinstance(memory, int) or memory < LEAST_MEMORY:
            raise SettingsError(
                f"memory: expected at least {LEAST_MEMORY:,} bytes, which the packages take alone,"
                f" got {memory!r}"
            )
        return OnnxProcess(path, input, output, timeout, memory).policy()
    if _CODE.fullmatch(text):
        if not allow_code:
            raise PolicyError(
                f"{text}: this would import and run Python code. If you trust it, set `allow_code`"
            )
        return _in_time(_imported(text), Deadline(text, timeout))
    raise PolicyError(
        f"{text}: no such policy; expected an ONNX file, behaviour, or module:function with"
        " `allow_code`"
    )


def _refuse_checkpoint(path: Path) -> None:
    """Files of other libraries, by their first bytes: pickles run code when they are opened."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        head = file.read(9)
    if path.suffix.lower() == ".safetensors" or head[8:] == b"{":
        raise PolicyError(
            f"{path}: a file of weights does not say what network they are of; say so with"
            " fle.policies.from_safetensors(path, kind=..., layers=...)"
        )
    if head.startswith((b"PK\x03\x04", b"\x80")):
        raise PolicyError(
            f"{path}: a checkpoint of PyTorch, Stable-Baselines3, d3rlpy or scikit-learn holds"
            " pickles, which run code when they are opened; expected ONNX: open it where you"
            " trained, and export it, save its weights as safetensors, or give the loaded model to"
            " fle.policies.from_torch, from_stable_baselines3 or from_d3rlpy; of scikit-learn's,"
            " give the estimator itself to fle.evaluate, or write its predict_proba as columns"
            " new_<label> of the log and say --policy columns:new_"
        )


def _imported(text: str) -> Policy:
    module_name, _, names = text.partition(":")
    try:
        found = _import_from_here(module_name)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise PolicyError(f"{text}: cannot be imported: {type(error).__name__}: {error}") from error
    known = stated(found) if is_estimator(found) else found
    if isinstance(known, FunctionPolicy):
        return known
    if not callable(found):
        raise PolicyError(
            f"{text}: expected a function of observations or a fitted scikit-learn estimator, got"
            f" {type(found).__name__}"
        )
    function: Callable[..., Any] = found
    return function


def _in_time(policy: Any, deadline: Deadline) -> Any:
    """The same policy, whose function must keep to a deadline."""
    if isinstance(policy, FunctionPolicy):
        return dataclasses.replace(policy, function=_in_time(policy.function, deadline))
    function = policy

    # With the signature of the function, which says what kind of policy it is.
    @functools.wraps(function)
    def limited(*arguments: Any) -> Any:
        # Python cannot stop a thread; it ends with the program.
        return deadline.run(lambda: function(*arguments), stop=lambda: None)

    return limited


def _import_from_here(module_name: str) -> Any:
    """As `python -m` would find it: the current folder first."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    finally:
        sys.path.remove(here)


def from_torch(module: Callable[[Any], Any], *, kind: TorchKind) -> Policy:
    """A PyTorch module: float32 observations (n, p) -> what `kind` says.

    `probs` and `logits` are (n, A); `action` is integers (n,) or floats (n, k); `mean_std` and
    `mean_log_std` are a pair of (n, k). Put the module in evaluation mode first: `module.eval()`.
    """
    if getattr(module, "training", False):
        raise PolicyError(
            "the module is in training mode, where dropout and batch normalisation make its"
            " answers random; call module.eval() first"
        )

    def ask(observations: Array) -> Any:
        import torch

        with torch.no_grad():
            return module(torch.as_tensor(observations.astype(np.float32)))

    if kind == "probs":
        return Probabilities(lambda observations: _to_numpy(ask(observations)))
    if kind == "logits":
        return Probabilities(lambda observations: _to_numpy(ask(observations).softmax(-1)))
    if kind == "action":
        return Deterministic(lambda observations: _to_numpy(ask(observations)))
    if kind not in ("mean_std", "mean_log_std"):
        raise SettingsError(
            f"kind: expected probs, logits, action, mean_std or mean_log_std, got {kind!r}"
        )

    def mean_and_std(observations: Array) -> tuple[Array, Array]:
        mean, std = ask(observations)
        return _to_numpy(mean), _to_numpy(std.exp() if kind == "mean_log_std" else std)

    return Normal(mean_and_std)


def from_safetensors(
    path: str | Path,
    *,
    kind: Literal["logits", "action", "mean_log_std"],
    layers: str | Sequence[str] = "",
    activation: Literal["tanh", "relu"] = "tanh",
    log_std: str | None = None,
) -> Policy:
    """A plain network from a file of its weights, which can run no code, in NumPy alone.

    h <- activation(W h + b) for every layer but the last, which has no activation; CleanRL's and
    RLlib's usual actors are such networks.

    Args:
        path: of a safetensors file with `NAME.weight` (out, in) and `NAME.bias` (out,).
        kind: what the last layer says: `logits` (n, A); `action` (n, k); or `mean_log_std`, means
            and log standard deviations side by side, (n, 2k), unless `log_std` names the latter.
        layers: what the names of its layers begin with, such as "actor."; they are taken in the
            order of the numbers in their names. Several beginnings follow each other.
        activation: between two layers.
        log_std: the name of a tensor of k log standard deviations, the same at all observations.

    Example: `from_safetensors("agent.safetensors", kind="logits", layers="actor.")`.
    """
    tensors = read_tensors(Path(path))
    parts = [layers] if isinstance(layers, str) else list(layers)
    network = _layers_of(str(path), tensors, parts)
    if activation not in ACTIVATIONS:
        raise SettingsError(f'activation: expected "tanh" or "relu", got {activation!r}')
    between = ACTIVATIONS[activation]

    def ask(observations: Array) -> Array:
        hidden = np.asarray(observations, np.float64).reshape(len(observations), -1)
        for place, (weight, bias) in enumerate(network):
            if hidden.shape[1] != weight.shape[1]:
                raise PolicyError(
                    f"{path}: expected observations of {weight.shape[1]} numbers, got"
                    f" {hidden.shape[1]}"
                )
            hidden = (hidden if place == 0 else between(hidden)) @ weight.T + bias
        return hidden

    if kind == "logits":
        return Probabilities(lambda observations: softmax(ask(observations), axis=1))
    if kind == "action":
        return Deterministic(ask)
    if kind != "mean_log_std":
        raise SettingsError(f"kind: expected logits, action or mean_log_std, got {kind!r}")
    if log_std is not None and log_std not in tensors:
        raise PolicyError(f"{path}: has no {log_std!r}{nearest(log_std, tensors)}")

    def mean_and_std(observations: Array) -> tuple[Array, Array]:
        outputs = ask(observations)
        if log_std is None:
            mean, logs = np.split(outputs, 2, axis=1)
            return mean, np.exp(logs)
        return outputs, np.broadcast_to(np.exp(tensors[log_std].reshape(1, -1)), outputs.shape)

    return Normal(mean_and_std)


def read_tensors(path: Path) -> dict[str, Array]:
    """The tensors of a safetensors file, all of finite numbers."""
    # Imported here, as other policies do without it.
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = {name: np.asarray(t, np.float64) for name, t in load_file(path).items()}
    except (OSError, SafetensorError, TypeError, ValueError, KeyError) as error:
        raise PolicyError(
            f"{path}: cannot be read as safetensors ({error}); of a PyTorch checkpoint, save the"
            " weights with safetensors.torch.save_file"
        ) from error
    for name, tensor in found.items():
        if not np.isfinite(tensor).all():
            raise PolicyError(f"{path}: {name} has values that are not finite")
    return found


def _layers_of(
    path: str, tensors: Mapping[str, Array], prefixes: Sequence[str]
) -> list[tuple[Array, Array]]:
    """Weights and biases in order, each of which takes what the one before gives."""
    names = [name.removesuffix(".weight") for name in tensors if name.endswith(".weight")]
    names.sort(key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
    chosen: list[str] = []
    for prefix in prefixes:
        found = [name for name in names if f"{name}.".startswith(prefix)]
        if not found:
            known = ", ".join(sorted(tensors)[:10])
            raise PolicyError(f"{path}: no layer begins with {prefix!r}; the file has {known}")
        chosen += found
    network: list[tuple[Array, Array]] = []
    for name in chosen:
        weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias", np.zeros(1))
        before = network[-1][0].shape[0] if network else weight.shape[-1]
        if weight.ndim != 2 or weight.shape[1] != before:
            raise PolicyError(
                f"{path}: {name}.weight has shape {weight.shape}; expected (outputs, {before}), as"
                " the layer before it gives: say by `layers` which network is meant"
            )
        network.append((weight, np.broadcast_to(bias, weight.shape[:1])))
    return network


def from_stable_baselines3(model: Any, *, actions: Actions = "drawn") -> Policy:
    """A Stable-Baselines3 model, with the distribution it acts by.

    Discrete: its probabilities, or the greedy action of a method without any, such as DQN.
    Continuous: draws, clipped and scaled as the model does when it acts. `actions="greedy"` is the
    deterministic policy instead, which is another policy with another return. Observations must be
    those that the model sees: apply `VecNormalize` to the data first.
    """
    _check_actions(actions)
    space = type(model.action_space).__name__
    if space not in ("Discrete", "Box"):
        raise PolicyError(f"the action space is {space}; expected Discrete or Box")
    get_distribution: Any = getattr(model.policy, "get_distribution", None)
    if actions == "greedy" or (space == "Discrete" and get_distribution is None):
        return Deterministic(
            lambda observations: model.predict(observations, deterministic=True)[0]
        )
    if space == "Discrete":

        def probabilities(observations: Array) -> Array:
            import torch

            with torch.no_grad():
                tensor, _ = model.policy.obs_to_tensor(observations)
                return _to_numpy(get_distribution(tensor).distribution.probs)

        return Probabilities(probabilities)
    return Stochastic(
        _seeded(lambda observations: model.predict(observations, deterministic=False)[0])
    )


def from_d3rlpy(policy: Any, *, actions: Actions = "drawn") -> Policy:
    """A d3rlpy algorithm: draws of `sample_action`, or with `actions="greedy"` of `predict`.

    Methods without a distribution, such as DQN, answer `sample_action` with their greedy action, or
    not at all; then ask for the greedy one.
    """
    _check_actions(actions)
    if actions == "greedy":
        return Deterministic(lambda observations: policy.predict(_as_float32(observations)))

    def sample(observations: Array) -> Any:
        try:
            return policy.sample_action(_as_float32(observations))
        except NotImplementedError as error:
            raise PolicyError(
                f"{type(policy).__name__} has no distribution to draw from; pass"
                ' actions="greedy" to evaluate its single action'
            ) from error

    return Stochastic(_seeded(sample))


def _check_actions(actions: str) -> None:
    if actions not in ("drawn", "greedy"):
        raise SettingsError(f'actions: expected "drawn" or "greedy", got {actions!r}')


def _seeded(
    function: Callable[[Array], Any],
) -> Callable[[Array, np.random.Generator], Any]:
    def draw(observations: Array, generator: np.random.Generator) -> Any:
        import torch

        with torch.random.fork_rng():
            torch.manual_seed(int(generator.integers(2**63)))
            return function(observations)

    return draw


def _as_float32(observations: Array) -> Array:
    """Images stay as they are; d3rlpy scales them itself."""
    return observations if observations.dtype == np.uint8 else observations.astype(np.float32)


def _to_numpy(tensor: Any) -> Array:
    return np.asarray(tensor.detach().cpu().numpy())
