"""Strings: NumPy arrays on the host."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.pointwise import aligned, narrowed
from flambeau.onnx.importing.registry import Call, operator


@operator("StringConcat", raw=True)
def string_concat(n: Call, a: Any, b: Any) -> Any:
    """Texts one after the other."""
    a, b = np.broadcast_arrays(a, b)
    return np.array([x + y for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)], object).reshape(a.shape)


@operator("StringSplit", raw=True)
def string_split(n: Call, x: Any) -> Any:
    """The parts between delimiters, filled with empty texts, and how many there are."""
    delimiter, most = n.get("delimiter") or None, n.get("maxsplit", -1)
    parts = [s.split(delimiter, most) if most is not None else s.split(delimiter) for s in x.reshape(-1)]
    width = max([len(p) for p in parts], default=0)
    made = np.array([p + [""] * (width - len(p)) for p in parts], object).reshape(*x.shape, width) if parts else np.empty((*x.shape, 0), object)
    return made, np.array([len(p) for p in parts], np.int64).reshape(x.shape)


@operator("StringNormalizer", raw=True)
def string_normalizer(n: Call, x: Any) -> Any:
    """Without stop words, in upper or lower case."""
    stop, sensitive = n.get("stopwords", []), n.get("is_case_sensitive", 0)
    change = {"UPPER": str.upper, "LOWER": str.lower}.get(n.get("case_change_action", "NONE"), lambda s: s)
    words = set(stop) if sensitive else {s.lower() for s in stop}
    rows = x if x.ndim > 1 else x[None]
    kept = [[change(s) for s in row if (s if sensitive else s.lower()) not in words] for row in rows]
    made = np.array(kept, object).reshape(len(kept), -1)
    if made.size == 0:
        made = np.array([[""]], object)
    return made if x.ndim > 1 else made[0]


@operator("RegexFullMatch", raw=True)
def regex_full_match(n: Call, x: Any) -> Any:
    """Where a pattern fits the whole text."""
    pattern = re.compile(n.get("pattern"))
    return np.array([bool(pattern.fullmatch(s)) for s in x.reshape(-1)], bool).reshape(x.shape)


@operator("Equal", raw=True)
def equal(n: Call, a: Any, b: Any) -> Any:
    """Where two texts, or two numbers, are equal."""
    if isinstance(a, np.ndarray) and a.dtype == object:
        return np.asarray(np.equal(a, b), bool)
    return narrowed(flambeau.eq, *aligned(n, values.tensor(a), values.tensor(b)))


@operator("TfIdfVectorizer", raw=True)
def tf_idf_vectorizer(n: Call, x: Any) -> Any:
    """How often n-grams of a pool come, with gaps, and weighed."""
    shortest, longest, gap = n.get("min_gram_length"), n.get("max_gram_length"), n.get("max_skip_count")
    mode, starts, places = n.get("mode"), n.get("ngram_counts"), n.get("ngram_indexes")
    pool = n.get("pool_strings") or n.get("pool_int64s")
    weights = n.get("weights") or [1.0] * len(places)
    found: dict[tuple[Any, ...], int] = {}
    number = 0
    for length, first in enumerate(starts, 1):
        last = starts[length] if length < len(starts) else len(pool)
        for at in range(first, last, length):
            found[tuple(pool[at : at + length])] = number
            number += 1
    array = x if isinstance(x, np.ndarray) else x.numpy()
    rows = array if array.ndim > 1 else array[None]
    counts = np.zeros((len(rows), max(places) + 1), np.float32)
    for r, row in enumerate(rows.tolist()):
        for length in range(shortest, longest + 1):
            for step in range(1, 2 if length == 1 else gap + 2):
                for at in range(len(row) - (length - 1) * step):
                    which = found.get(tuple(row[at : at + length * step : step]))
                    if which is not None:
                        counts[r, places[which]] += 1
    if mode in ("IDF", "TFIDF"):
        by_place = np.ones(counts.shape[1], np.float32)
        for i, place in enumerate(places):
            by_place[place] = weights[i]
        counts = (counts > 0) * by_place if mode == "IDF" else counts * by_place
    made = counts.astype(np.float32)
    return values.own(made if array.ndim > 1 else made[0])
