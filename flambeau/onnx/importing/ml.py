"""The classic models of ai.onnx.ml that are there: labels, thresholds, trees, linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import ML, Call, operator


@operator("Binarizer", domain=ML)
def binarizer(n: Call, x: Any) -> Any:
    """1 above a threshold, else 0."""
    return (x > n.get("threshold", 0.0)).to(x.dtype)


@operator("Scaler", domain=ML)
def scaler(n: Call, x: Any) -> Any:
    """(x - offset) * scale of each column."""
    return (x.to(flambeau.float32) - flambeau.tensor(n.get("offset"))) * flambeau.tensor(n.get("scale"))


@operator("LinearRegressor", domain=ML)
def linear_regressor(n: Call, x: Any) -> Any:
    """A linear model."""
    if n.get("post_transform", "NONE") != "NONE":
        raise n.refuse(f"post_transform {n.get('post_transform')} is not there")
    w = flambeau.tensor(n.get("coefficients")).reshape(n.get("targets", 1), -1)
    made = x.to(flambeau.float32) @ w.t()
    return made + flambeau.tensor(n.get("intercepts")) if n.get("intercepts") else made


@operator("LabelEncoder", domain=ML, raw=True)
def label_encoder(n: Call, x: Any) -> Any:
    """What a table says of each element."""

    def table(stem: str) -> Any:
        held = n.get(f"{stem}_tensor")
        if held is not None:
            return values.to_array(held).reshape(-1).tolist(), values.to_array(held).dtype
        for kind, dtype in (("strings", object), ("int64s", np.int64), ("floats", np.float32)):
            if n.get(f"{stem}_{kind}"):
                return list(n.get(f"{stem}_{kind}")), dtype
        raise n.refuse(f"there are no {stem}")

    (keys, _), (to, dtype) = table("keys"), table("values")
    default = n.get("default_tensor")
    if default is not None:
        other = values.to_array(default).reshape(-1).tolist()[0]
    else:
        other = {"O": n.get("default_string", "_Unused"), "i": n.get("default_int64", -1), "f": n.get("default_float", -0.0)}[np.dtype(dtype).kind]
    found = dict(zip([_key(k) for k in keys], to, strict=True))
    array = values.to_array(x)
    return values.from_array(np.array([found.get(_key(v), other) for v in array.reshape(-1).tolist()], dtype).reshape(array.shape))


def _key(k: Any) -> Any:
    return "nan" if isinstance(k, float) and k != k else k


_COMPARE = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)


@operator("TreeEnsemble", domain=ML)
def tree_ensemble(n: Call, x: Any) -> Any:
    """Trees whose leaves are added, averaged, or compared."""
    data = x.detach().numpy()
    splits, modes = values.to_array(n.get("nodes_splits")), values.to_array(n.get("nodes_modes")).tolist()
    feature, yes, no = n.get("nodes_featureids"), n.get("nodes_truenodeids"), n.get("nodes_falsenodeids")
    yes_leaf, no_leaf = n.get("nodes_trueleafs"), n.get("nodes_falseleafs")
    target, weight = n.get("leaf_targetids"), values.to_array(n.get("leaf_weights"))
    sets: list[set[float]] = []
    if n.get("membership_values") is not None:
        members: set[float] = set()
        for v in values.to_array(n.get("membership_values")).tolist():
            if v != v:
                sets.append(members)
                members = set()
            else:
                members.add(v)
        sets.append(members)
    member: dict[int, set[float]] = {}
    for i, m in enumerate(modes):
        if m == 6:
            member[i] = sets[len(member)]
    nan_true = n.get("nodes_missing_value_tracks_true") or [0] * len(modes)
    roots = n.get("tree_roots")
    picked = np.zeros((len(roots), len(data)), np.int64)
    for t, root in enumerate(roots):
        for row, sample in enumerate(data):
            at, leaf = root, False
            if yes[at] == no[at] and yes_leaf[at] and no_leaf[at] and yes[at] == no[at]:
                picked[t, row] = yes[at]
                continue
            while not leaf:
                value = sample[feature[at]]
                holds = value in member[at] if modes[at] == 6 else bool(_COMPARE[modes[at]](value, splits[at]))
                holds = holds or (value != value and bool(nan_true[at]))
                leaf = bool((yes_leaf if holds else no_leaf)[at])
                at = (yes if holds else no)[at]
            picked[t, row] = at
    how, count = n.get("aggregate_function", 1), n.get("n_targets", 1)
    if n.get("post_transform", 0):
        raise n.refuse("post_transform is not there")
    start = {2: np.inf, 3: -np.inf}.get(how, 0.0)
    made = np.full((len(data), count), start, weight.dtype)
    for t in range(len(roots)):
        for row in range(len(data)):
            leaf_at = picked[t, row]
            w, column = weight[leaf_at], target[leaf_at]
            made[row, column] = {2: min, 3: max}[how](made[row, column], w) if how in (2, 3) else made[row, column] + w
    made = np.where(np.isinf(made), 0, made) if how in (2, 3) else made / len(roots) if how == 0 else made
    return values.own(made.astype(data.dtype))
