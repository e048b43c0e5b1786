"""keras: Keras 3 on torch: fit, evaluate and predict of a small model."""

import json
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import warm

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
history = model.fit(x, x.sum(1, keepdims=True), epochs=2, batch_size=8, verbose=0, shuffle=False)
evaluated = float(model.evaluate(x, x.sum(1), verbose=0))
print(json.dumps({"loss": history.history["loss"], "evaluated": evaluated, "predicted": model.predict(x, verbose=0)[:3, 0].tolist()}))
warm.measure("train_on_batch", lambda: model.train_on_batch(x, x.sum(1, keepdims=True)))
warm.measure("predict_on_batch", lambda: model.predict_on_batch(x))
