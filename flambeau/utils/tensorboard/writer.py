"""torch.utils.tensorboard.writer: event files for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from flambeau.utils.tensorboard import embedding, protos, summary
from flambeau.utils.tensorboard.arrays import as_array
from flambeau.utils.tensorboard.records import EventFileWriter


class FileWriter:
    """Writes events to one file in `log_dir`, through a queue of `max_queue` that is emptied every `flush_secs`."""

    def __init__(self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "") -> None:
        self._folder = os.fspath(log_dir)
        self.event_writer = EventFileWriter(self._folder, max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """The folder of the event file."""
        return self._folder

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """An event, with its time and step put in."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """An event of a summary."""
        self.add_event(protos.message("Event")(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: Any, walltime: float | None = None) -> None:
        """An event of a graph (a message GraphDef, and anything after it)."""
        self.add_event(protos.message("Event")(graph_def=graph_profile[0].SerializeToString()), None, walltime)

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        """An event of a graph that is a message GraphDef."""
        self.add_graph((graph, None), walltime)

    def flush(self) -> None:
        """Write what waits in the queue."""
        self.event_writer.flush()

    def close(self) -> None:
        """Write what waits, and close the file."""
        self.event_writer.close()

    def reopen(self) -> None:
        """Begin another file after `close`. NotImplementedError with a package tensorboard that cannot."""
        reopen = getattr(self.event_writer, "reopen", None)
        if reopen is None:
            raise NotImplementedError("FileWriter.reopen: the package tensorboard writes no second file; make another SummaryWriter")
        reopen()


def _default_bins() -> list[float]:
    """Limits that grow by a tenth from 1e-12 to 1e20, on both sides of zero."""
    limit, positive = 1e-12, []
    while limit < 1e20:
        positive.append(limit)
        limit *= 1.1
    return [-limit for limit in reversed(positive)] + [0.0, *positive]


class SummaryWriter:
    """Writes scalars, histograms, images, figures, sounds, texts and more to `log_dir` (runs/DATE_HOST by default), for TensorBoard.

    It needs the package tensorboard, or tensorboardX: ModuleNotFoundError without them. `add_graph` writes nothing, as there is no graph of TorchScript.
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        self.log_dir = os.fspath(log_dir) if log_dir else os.path.join("runs", datetime.now().strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.purge_step = purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self._get_file_writer()
        self.default_bins = _default_bins()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                Event, SessionLog = protos.message("Event"), protos.message("SessionLog")
                step, self.purge_step = self.purge_step, None
                self.file_writer.add_event(Event(step=step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=step, session_log=SessionLog(status=protos.SESSION_START)))
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir

    def _add(self, made: Any, step: int | None, walltime: float | None) -> None:
        self._get_file_writer().add_summary(made, step, walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any], hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None, global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Settings of a run and what its metrics have come to, in a folder of their own (`run_name`; the time by default)."""
        made = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(folder) as writer:
            for part in made:
                writer._add(part, global_step, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None, new_style: bool = False,
        double_precision: bool = False,
    ) -> None:  # fmt: skip
        """One number."""
        self._add(summary.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None, walltime: float | None = None) -> None:
        """Numbers that are plotted together: each in a folder of its own."""
        self._get_file_writer()
        assert self.all_writers is not None
        walltime = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers[folder].add_summary(summary.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A tensor as it is."""
        self._add(summary.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow", walltime: float | None = None, max_bins: int | None = None
    ) -> None:
        """The distribution of numbers: in TensorBoard's bins ("tensorflow"), NumPy's by a rule's name, or in given limits."""
        limits = self.default_bins if isinstance(bins, str) and bins == "tensorflow" else bins
        self._add(summary.histogram(tag, values, limits, max_bins), global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: float, sum: float, sum_squares: float, bucket_limits: Sequence[float], bucket_counts: Sequence[float],
        global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A histogram whose counts are known. ValueError where there are not as many limits as counts."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summary.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "CHW") -> None:
        """An image of bytes, or of floats from 0 to 1."""
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None, dataformats: str = "NCHW") -> None:
        """Images as a grid."""
        if isinstance(img_tensor, list):
            if len(dataformats) != 4:
                raise AssertionError(f"dataformats of images in a list has four letters, got {dataformats!r}")
            img_tensor = np.stack([as_array(image) for image in img_tensor])
        self._add(summary.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: int | None = None, walltime: float | None = None, rescale: float = 1,
        dataformats: str = "CHW", labels: Any = None,
    ) -> None:  # fmt: skip
        """An image with boxes drawn into it: x and y of two corners each."""
        labels = [labels] if isinstance(labels, str) else labels
        self._add(summary.image_boxes(tag, img_tensor, box_tensor, rescale=rescale, dataformats=dataformats, labels=labels), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None) -> None:
        """A figure of matplotlib, or several, as an image."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        several = isinstance(figure, list)
        pixels = []
        for one in figure if several else [figure]:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            pixels.append(np.asarray(canvas.buffer_rgba())[:, :, :3].transpose(2, 0, 1))
            if close:
                from matplotlib import pyplot

                pyplot.close(one)
        if several:
            self.add_image(tag, np.stack(pixels), global_step, walltime, dataformats="NCHW")
        else:
            self.add_image(tag, pixels[0], global_step, walltime)

    def add_video(self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4, walltime: float | None = None) -> None:
        """Films of shape (N, T, C, H, W), bytes or floats from 0 to 1."""
        self._add(summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100, walltime: float | None = None) -> None:
        """Sound of one channel, from -1 to 1."""
        self._add(summary.audio(tag, snd_tensor, sample_rate=sample_rate), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        """A text in Markdown."""
        self._add(summary.text(tag, text_string), global_step, walltime)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """NotImplementedError: files of ONNX are not drawn here."""
        raise NotImplementedError(f"SummaryWriter.add_onnx_graph: {prototxt!r} is not read here; open it with a viewer of ONNX files")

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """Accepted; nothing is written: print torch.fx.symbolic_trace(model).graph, or see `flambeau explain`."""

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: int | None = None, tag: str = "default", metadata_header: Any = None
    ) -> None:
        """Points of many dims with a label and an image each, for the projector; no event, but files of their own in the folder."""
        embedding.write(Path(self._get_file_writer().get_logdir()), as_array(mat), metadata, label_img, int(global_step or 0), tag, metadata_header)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127, weights: Any = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A curve of precision and recall, of true labels and predicted probabilities."""
        self._add(summary.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any, false_negative_counts: Any, precision: Any,
        recall: Any, global_step: int | None = None, num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """The same whose counts at each threshold are known."""
        made = summary.pr_curve_raw(
            tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall, num_thresholds, weights
        )
        self._add(made, global_step, walltime)

    def add_custom_scalars_multilinechart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """One chart of several scalars."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(self, tags: Sequence[str], category: str = "default", title: str = "untitled") -> None:
        """One chart of a scalar between its lower and its upper limit: three tags."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """How charts are put together: {category: {title: ["Multiline" or "Margin", tags]}}."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: Any = None, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Points, and triangles between them, in space."""
        self._add(summary.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def flush(self) -> None:
        """Write what waits, to all files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Write what waits, and close all files; the next call begins new ones."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()
