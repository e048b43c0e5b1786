"""torch.utils.tensorboard.summary: messages of TensorBoard made of values, one function a kind."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flambeau.utils.tensorboard import protos
from flambeau.utils.tensorboard.arrays import as_array, as_grid, as_images
from flambeau.utils.tensorboard.protos import message


def _metadata(plugin: str, content: bytes = b"", **more: Any) -> Any:
    SummaryMetadata = message("SummaryMetadata")
    return SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content), **more)


def _summary(tag: str, **value: Any) -> Any:
    Summary = message("Summary")
    return Summary(value=[Summary.Value(tag=tag, **value)])


def _tensor(array: np.ndarray[Any, Any], kind: str = "DT_FLOAT") -> Any:
    """A tensor with its numbers one by one, or strings."""
    Shape = message("TensorShapeProto")
    content = {"string_val": list(array.flat)} if kind == "DT_STRING" else {"float_val": array.ravel().tolist()}
    return protos.tensor(kind, tensor_shape=Shape(dim=[Shape.Dim(size=n) for n in array.shape]), **content)


def scalar(name: str, tensor: Any, collections: Any = None, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number: as a plain value, or as a tensor for the plugin "scalars" (`new_style`)."""
    array = np.array(float(tensor)) if isinstance(tensor, str) else as_array(tensor).squeeze()
    if array.ndim:
        raise AssertionError(f"Tensor should contain one element (0 dimensions). Was given size: {array.size} and {array.ndim} dimensions.")
    if not new_style:
        return _summary(name, simple_value=float(array))
    number = [float(array)]
    made = protos.tensor("DT_DOUBLE", double_val=number) if double_precision else protos.tensor("DT_FLOAT", float_val=number)
    return _summary(name, tensor=made, metadata=_metadata("scalars"))


# Dtype -> tensorboard's name of it, and the field with its numbers.
_KINDS = {
    "float16": ("DT_HALF", "half_val"), "float32": ("DT_FLOAT", "float_val"), "float64": ("DT_DOUBLE", "double_val"), "int8": ("DT_INT8", "int_val"),
    "uint8": ("DT_UINT8", "uint32_val"), "int16": ("DT_INT16", "int_val"), "int32": ("DT_INT32", "int_val"), "int64": ("DT_INT64", "int64_val"),
    "bool": ("DT_BOOL", "bool_val"), "complex64": ("DT_COMPLEX64", "scomplex_val"), "complex128": ("DT_COMPLEX128", "dcomplex_val"),
}  # fmt: skip


def tensor_proto(tag: str, tensor: Any) -> Any:
    """A tensor as it is, of one of NumPy's dtypes; bfloat16 as float32."""
    array = as_array(tensor)
    if array.dtype.name not in _KINDS:
        raise ValueError(f"{tag} has unsupported tensor dtype {array.dtype.name}")
    kind, field = _KINDS[array.dtype.name]
    flat = np.ascontiguousarray(array).reshape(-1)
    if array.dtype.kind == "c":
        flat = flat.view(array.real.dtype)  # real and imaginary parts in turn
    elif array.dtype.name == "float16":
        flat = flat.view(np.uint16)  # the field has bits
    Shape = message("TensorShapeProto")
    shape = Shape(dim=[Shape.Dim(size=n) for n in array.shape])
    return _summary(tag, metadata=_metadata("tensor"), tensor=protos.tensor(kind, tensor_shape=shape, **{field: flat.tolist()}))


def histogram_raw(
    name: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Sequence[float], bucket_counts: Sequence[float]
) -> Any:  # fmt: skip
    """A histogram whose counts are known: the upper limits of its buckets, and how many numbers each has."""
    numbers = message("HistogramProto")(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=list(bucket_limits), bucket=list(bucket_counts)
    )
    return _summary(name, histo=numbers)


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """The numbers of `values` counted in `bins` (limits, or NumPy's name of a rule); at most `max_bins` of them."""
    return _summary(name, histo=make_histogram(as_array(values).astype(float), bins, max_bins))


def make_histogram(values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """The message of a histogram. ValueError for no values."""
    values = np.asarray(values).reshape(-1)
    if not values.size:
        raise ValueError("The input has no element.")
    counts, limits = np.histogram(values, bins=bins)
    if max_bins is not None and len(counts) > max_bins:
        step = len(counts) // max_bins
        if len(counts) % step:
            counts = np.append(counts, np.zeros(step - len(counts) % step, counts.dtype))
        counts = counts.reshape(-1, step).sum(-1)
        last, limits = limits[-1], limits[::step]
        if len(limits) != len(counts) + 1:
            limits = np.append(limits, last)
    # Buckets from the first that counts to the last, and an empty one before them: that the plots begin at zero.
    filled = np.flatnonzero(counts)
    begin, end = int(filled[0]), int(filled[-1]) + 1
    shown, edges = counts[max(begin - 1, 0) : end], limits[begin : end + 1]
    if begin == 0:
        shown = np.concatenate([[0], shown])
    if not counts.size or not edges.size:
        raise ValueError("The histogram is empty, please file a bug report.")
    return message("HistogramProto")(
        min=values.min(), max=values.max(), num=len(values), sum=values.sum(), sum_squares=values.dot(values),
        bucket_limit=edges.tolist(), bucket=shown.tolist(),
    )  # fmt: skip


def image(tag: str, tensor: Any, rescale: float = 1, dataformats: str = "NCHW") -> Any:
    """An image, or several as a grid, in the order of dims that `dataformats` says: bytes, or floats from 0 to 1."""
    array = as_array(tensor)
    return _summary(tag, image=make_image(_bytes_of_colours(as_grid(array, dataformats), array.dtype), rescale))


def image_boxes(tag: str, tensor_image: Any, tensor_boxes: Any, rescale: float = 1, dataformats: str = "CHW", labels: Any = None) -> Any:
    """An image with boxes (x and y of two corners each) and their labels drawn into it."""
    array = as_array(tensor_image)
    pixels = _bytes_of_colours(as_grid(array, dataformats), array.dtype)
    return _summary(tag, image=make_image(pixels, rescale, as_array(tensor_boxes), labels))


def _bytes_of_colours(pixels: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    scale = 1 if dtype == np.uint8 else 255
    return (pixels.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def make_image(tensor: Any, rescale: float = 1, rois: Any = None, labels: Any = None) -> Any:
    """The message of an image of bytes (height, width, channels), as PNG; `rois` are drawn."""
    from PIL import Image

    height, width, channels = tensor.shape
    picture = Image.fromarray(tensor if channels != 1 else tensor[:, :, 0])
    if rois is not None:
        picture = draw_boxes(picture, rois, labels)
    picture = picture.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    picture.save(out, format="PNG")
    return message("Summary").Image(height=picture.height, width=picture.width, colorspace=channels, encoded_image_string=out.getvalue())


def draw_boxes(disp_image: Any, boxes: Any, labels: Any = None) -> Any:
    """Boxes with their labels, red, drawn into an image of Pillow."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(disp_image)
    for i, (left, top, right, bottom) in enumerate(np.asarray(boxes).tolist()):
        pen.rectangle((left, top, right, bottom), outline="red", width=2)
        if labels is not None:
            pen.text((left + 2, top + 2), labels[i], fill="black")
    return disp_image


def video(tag: str, tensor: Any, fps: float = 4) -> Any:
    """Films of shape (N, T, C, H, W) beside each other, as one GIF."""
    array = as_array(tensor)
    frames = _bytes_of_colours(as_images(array), array.dtype)
    return _summary(tag, image=make_video(frames, fps))


def make_video(tensor: Any, fps: float) -> Any:
    """The message of a film of bytes (frames, height, width, channels)."""
    from PIL import Image

    frames = [Image.fromarray(f if f.shape[-1] != 1 else f[:, :, 0]) for f in tensor]
    out = io.BytesIO()
    frames[0].save(out, format="GIF", save_all=True, append_images=frames[1:], duration=round(1000 / fps), loop=0)
    return message("Summary").Image(height=tensor.shape[1], width=tensor.shape[2], colorspace=tensor.shape[3], encoded_image_string=out.getvalue())


def audio(tag: str, tensor: Any, sample_rate: int = 44100) -> Any:
    """Sound of one channel from -1 to 1, as WAV of 16 bits."""
    array = as_array(tensor).squeeze()
    if np.abs(array).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        array = array.clip(-1, 1)
    if array.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    samples = (array * np.iinfo(np.int16).max).astype("<i2")
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(samples.tobytes())
    sound = message("Summary").Audio(
        sample_rate=sample_rate, num_channels=1, length_frames=array.shape[-1], encoded_audio_string=out.getvalue(), content_type="audio/wav"
    )
    return _summary(tag, audio=sound)


def text(tag: str, text: str) -> Any:
    """A text in Markdown."""
    content = message("TextPluginData")(version=0).SerializeToString()
    return _summary(tag + "/text_summary", metadata=_metadata("text", content), tensor=_tensor(np.array([text.encode()], object), "DT_STRING"))


def pr_curve_raw(
    tag: str, tp: Any, fp: Any, tn: Any, fn: Any, precision: Any, recall: Any, num_thresholds: int = 127, weights: Any = None
) -> Any:  # fmt: skip
    """A curve of precision and recall whose counts at each threshold are known."""
    thresholds = min(num_thresholds, 127)
    content = message("PrCurvePluginData")(version=0, num_thresholds=thresholds).SerializeToString()
    return _summary(tag, metadata=_metadata("pr_curves", content), tensor=_tensor(np.stack([as_array(x) for x in (tp, fp, tn, fn, precision, recall)])))


def pr_curve(tag: str, labels: Any, predictions: Any, num_thresholds: int = 127, weights: Any = None) -> Any:
    """A curve of precision and recall, of true labels and predicted probabilities."""
    thresholds = min(num_thresholds, 127)
    content = message("PrCurvePluginData")(version=0, num_thresholds=thresholds).SerializeToString()
    found = compute_curve(as_array(labels), as_array(predictions), thresholds, weights)
    return _summary(tag, metadata=_metadata("pr_curves", content), tensor=_tensor(found))


def compute_curve(labels: Any, predictions: Any, num_thresholds: int | None = None, weights: Any = None) -> np.ndarray[Any, Any]:
    """Rows: true and false positives, true and false negatives, precision, recall; a column for each of `num_thresholds` from 0 to 1."""
    count = num_thresholds or 127
    weights = 1.0 if weights is None else as_array(weights)
    bucket = np.int32(np.floor(predictions * (count - 1)))
    inside = {"bins": count, "range": (0, count - 1)}
    true = np.histogram(bucket, weights=labels.astype(float) * weights, **inside)[0]
    false = np.histogram(bucket, weights=(1.0 - labels) * weights, **inside)[0]
    tp, fp = np.cumsum(true[::-1])[::-1], np.cumsum(false[::-1])[::-1]
    tn, fn = fp[0] - fp, tp[0] - tp
    least = 1e-7  # that nothing is divided by zero
    return np.stack((tp, fp, tn, fn, tp / np.maximum(least, tp + fp), tp / np.maximum(least, tp + fn)))


def custom_scalars(layout: Mapping[str, Mapping[str, Any]]) -> Any:
    """How charts are put together: {category: {title: ["Multiline" or "Margin", tags]}}."""

    def of(name: str) -> Any:
        return message(name)

    categories = []
    for category, charts in layout.items():
        made = []
        for title, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError(f"a margin chart needs three tags (value, lower, upper), got {len(tags)}")
                series = of("MarginChartContent").Series(value=tags[0], lower=tags[1], upper=tags[2])
                made.append(of("Chart")(title=title, margin=of("MarginChartContent")(series=[series])))
            else:
                made.append(of("Chart")(title=title, multiline=of("MultilineChartContent")(tag=tags)))
        categories.append(of("Category")(title=category, chart=made))
    content = of("Layout")(category=categories).SerializeToString()
    made = protos.tensor("DT_STRING", string_val=[content], tensor_shape=message("TensorShapeProto")())
    return _summary("custom_scalars__config__", metadata=_metadata("custom_scalars"), tensor=made)


def mesh(
    tag: str, vertices: Any, colors: Any, faces: Any, config_dict: Any, display_name: str | None = None, description: str | None = None
) -> Any:  # fmt: skip
    """Points, and triangles between them, in space; `config_dict` says how they are shown."""
    MeshPluginData = message("MeshPluginData")
    Summary = message("Summary")
    given = [(as_array(t), kind) for t, kind in ((vertices, "VERTEX"), (faces, "FACE"), (colors, "COLOR")) if t is not None]
    components = sum(1 << protos.MESH_CONTENT[kind] for _, kind in given)
    values = []
    for array, kind in given:
        content = MeshPluginData(
            version=0,
            name=tag,
            content_type=protos.MESH_CONTENT[kind],
            shape=array.shape,
            json_config=json.dumps(config_dict or {}, sort_keys=True),
            components=components,
        )
        metadata = _metadata("mesh", content.SerializeToString(), display_name=display_name or "", summary_description=description or "")
        values.append(Summary.Value(tag=f"{tag}_{kind}", tensor=_tensor(array), metadata=metadata))
    return Summary(value=values)


def hparams(
    hparam_dict: Mapping[str, Any] | None = None, metric_dict: Mapping[str, Any] | None = None,
    hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Settings of a run, the names of its metrics, and that it has ended well: three messages."""
    for name, given in (("hparam_dict", hparam_dict), ("metric_dict", metric_dict)):
        if not isinstance(given, Mapping):
            raise TypeError(f"parameter: {name} should be a dictionary, nothing logged.")
    assert hparam_dict is not None and metric_dict is not None
    domains = dict(hparam_domain_discrete or {})
    for key, values in domains.items():
        if key not in hparam_dict or not isinstance(values, (list, tuple)) or not all(isinstance(v, type(hparam_dict[key])) for v in values):
            raise TypeError(f"parameter: hparam_domain_discrete[{key}] should be a list of same type as hparam_dict[{key}].")

    def api(name: str) -> Any:
        return message(name)

    Value, Entry = message("Value"), message("SessionStartInfo").HparamsEntry
    entries, infos = [], []
    for key, value in hparam_dict.items():
        if value is None:
            continue
        if isinstance(value, str):
            of, kind, field = value, "STRING", "string_value"
        elif isinstance(value, (int, float)) or as_array(value).ndim == 0:
            of, kind, field = float(as_array(value).item()), "FLOAT64", "number_value"
        else:
            raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
        entries.append(Entry(key=key, value=Value(**{field: of})))
        choices = {"domain_discrete": message("ListValue")(values=[Value(**{field: choice}) for choice in domains[key]])} if domains.get(key) else {}
        infos.append(api("HParamInfo")(name=key, type=protos.PARAMETER_TYPES[kind], **choices))
    metrics = [api("MetricInfo")(name=api("MetricName")(tag=key)) for key in metric_dict]
    experiment = api("Experiment")(hparam_infos=infos, metric_infos=metrics)
    start = message("SessionStartInfo")(hparams=entries)
    end = message("SessionEndInfo")(status=protos.STATUS_SUCCESS)

    def part(tag: str, **content: Any) -> Any:
        data = message("HParamsPluginData")(version=0, **content)
        return _summary(tag, metadata=_metadata("hparams", data.SerializeToString()))

    return (
        part("_hparams_/experiment", experiment=experiment), part("_hparams_/session_start_info", session_start_info=start),
        part("_hparams_/session_end_info", session_end_info=end),
    )  # fmt: skip
