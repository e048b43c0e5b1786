"""Convolution and its gradients: which algorithm computes a node.

| node                         | groups of one input channel (depthwise) | everything else, the first that applies                                |
|------------------------------|------------------------------------------|------------------------------------------------------------------------|
| `convolution`                | convolution_depthwise.py                 | convolution_pointwise.py, _images.py, _tiles.py, _direct.py, _few.py  |
| `convolution_input_gradient` | convolution_depthwise.py                 | the same; with a stride in phases, but for convolution_images          |
| `convolution_weight_gradient`| convolution_depthwise.py                 | convolution_weight.py, sums by convolution_weight_tiles.py, _planes.py |

Depthwise ones of small images, with a stride, and weights' gradients go by convolution_depthwise_lanes.py where there are planes for all lanes.
Images are (N, C, H, W) in any strides,
results in the strides of their Value. One-dimensional convolutions come with H = 1.
"""

from __future__ import annotations

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.kernels.convolution_depthwise import make_depthwise
from flambeau.compiler.kernels.convolution_depthwise_lanes import lanes_apply, make_depthwise_lanes
from flambeau.compiler.kernels.convolution_direct import lanes_are_filled, make_direct_convolution
from flambeau.compiler.kernels.convolution_few import make_few_convolution
from flambeau.compiler.kernels.convolution_images import images_apply, make_image_convolution
from flambeau.compiler.kernels.convolution_patches import phases
from flambeau.compiler.kernels.convolution_pointwise import make_pointwise_convolution, pointwise_applies
from flambeau.compiler.kernels.convolution_problem import problem
from flambeau.compiler.kernels.convolution_tiles import make_tile_convolution, tiles_apply
from flambeau.compiler.kernels.convolution_weight import make_weight_gradient
from flambeau.compiler.kernels.description import Epilogue


def make_convolution(graph: Graph, node_index: int, epilogue: Epilogue | None = None) -> list[Kernel]:
    """Kernels of a `convolution`, `convolution_input_gradient` or `convolution_weight_gradient` node.

    They run in order; what one writes and the next reads may be a new value of the graph (a temporary). `epilogue` is
    applied to finished rectangles of the result: batch item, channels, flattened pixels.
    """
    node = graph.nodes[node_index]
    if graph.values[node.outputs[0]].numel == 0:
        return []
    p = problem(graph, node_index)
    if p.is_depthwise:
        if lanes_apply(p, node.op):
            return make_depthwise_lanes(p, node.op, node_index, epilogue)
        return make_depthwise(graph, p, node.op, node_index, epilogue)
    if node.op == "convolution_weight_gradient":
        return make_weight_gradient(graph, p, node_index, epilogue)
    gradient = node.op == "convolution_input_gradient"
    if pointwise_applies(p, gradient):
        return make_pointwise_convolution(graph, p, gradient, node_index, epilogue)
    if images_apply(p, gradient):
        return make_image_convolution(graph, p, gradient, node_index, epilogue)
    bare = phases(p, gradient)
    if tiles_apply(p, gradient, bare):
        return make_tile_convolution(graph, p, gradient, bare[0], node_index, epilogue)
    if lanes_are_filled(p, gradient):
        return make_direct_convolution(graph, p, gradient, bare, node_index, epilogue)
    return make_few_convolution(graph, p, gradient, bare, node_index, epilogue)
