"""A flambeau program behind Ray Serve: `serve run ray_serve:app` beside models/digits/1/model.pt2. Ray puts requests into batches and spreads replicas."""

from pathlib import Path

import numpy as np
from ray import serve
from starlette.requests import Request

from flambeau.serve.programs import load_pt2


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 1})
class Digits:
    """One replica: the program, warmed up at the sizes that batches have."""

    def __init__(self, path: str) -> None:
        self.program = load_pt2(Path(path), mapped=True)
        self.program.warm_up([1, 2, 4, 8, 16])

    @serve.batch(max_batch_size=16, batch_wait_timeout_s=0.001)
    async def predict(self, images: list[np.ndarray]) -> list[list[float]]:
        """One row of scores for each image [1, 8, 8]."""
        return [made[0][0].tolist() for made in self.program.run_many([[image[None]] for image in images])]

    async def __call__(self, request: Request) -> dict[str, list[float]]:
        """POST {"pixels": [64 numbers]}."""
        pixels = np.array((await request.json())["pixels"], np.float32).reshape(1, 8, 8)
        return {"scores": await self.predict(pixels)}


app = Digits.bind("models/digits/1/model.pt2")
