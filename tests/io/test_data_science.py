"""scikit-learn and pandas take our tensors, and what they give becomes tensors, as with PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft

pandas = pytest.importorskip("pandas")
sklearn = pytest.importorskip("sklearn")


def _given() -> tuple[Any, Any]:
    ft.manual_seed(0)
    x = ft.randn(60, 3)
    return x, (x @ ft.tensor([1.0, -2.0, 0.5]) > 0).long()


def test_scikit_learn() -> None:
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, confusion_matrix, roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import StandardScaler

    x, y = _given()
    np.testing.assert_allclose(StandardScaler().fit_transform(x), ((x - x.mean(0)) / x.std(0, correction=0)).numpy(), rtol=1e-4, atol=1e-5)
    predicted = ft.from_numpy(LogisticRegression().fit(x, y).predict(x))
    assert accuracy_score(y, predicted) == float((y == predicted).float().mean()) > 0.9
    assert int(ft.tensor(confusion_matrix(y, predicted)).sum()) == 60
    assert roc_auc_score(y, x @ ft.tensor([1.0, -2.0, 0.5])) == 1.0
    train, test = train_test_split(x, test_size=0.25, random_state=0)
    assert type(train) is ft.Tensor and train.shape == (45, 3) and test.shape == (15, 3)
    assert KMeans(2, n_init=1, random_state=0).fit(x).cluster_centers_.shape == (2, 3)
    assert PCA(2).fit_transform(x).shape == (60, 2)


def test_pandas() -> None:
    x, y = _given()
    frame = pandas.DataFrame(x, columns=list("abc"))
    assert frame.shape == (60, 3) and set(frame.dtypes) == {np.dtype("float32")}
    assert ft.equal(ft.tensor(frame.values), x)
    assert ft.equal(ft.from_numpy(frame["b"].to_numpy().copy()), x[:, 1])
    assert ft.equal(ft.tensor(frame["a"]), x[:, 0])
    counts = pandas.Series(y).value_counts()
    assert counts[1] == int(y.sum())
