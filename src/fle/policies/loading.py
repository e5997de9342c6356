"""`load_policy`: what a command line can say of a policy becomes one."""

import dataclasses
import functools
import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fle.errors import PolicyError
from fle.policies.function_policies import Deadline, FunctionPolicy, Policy
from fle.policies.onnx_policy import load_onnx
from fle.policies.row_policies import Behaviour

TIMEOUT_SECONDS = 600.0
_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def load_policy(
    source: str | Path,
    *,
    input: str | None = None,  # noqa: A002
    output: str | Mapping[str, str] | None = None,
    allow_code: bool = False,
    timeout: float = TIMEOUT_SECONDS,
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

    >>> policy = load_policy("policy.onnx", output="logits=output_0")
    """
    text = str(source)
    if text in ("behaviour", "behavior") and not isinstance(source, Path):
        return Behaviour()
    path = Path(source)
    if path.suffix.lower() == ".onnx" or path.is_file():
        return load_onnx(path, input, output, timeout)
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


def _imported(text: str) -> Policy:
    module_name, _, names = text.partition(":")
    try:
        found = _import_from_here(module_name)
        for name in names.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise PolicyError(f"{text}: cannot be imported: {type(error).__name__}: {error}") from error
    if isinstance(found, FunctionPolicy):
        return found
    if not callable(found):
        raise PolicyError(
            f"{text}: expected a function of observations, got {type(found).__name__}"
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
